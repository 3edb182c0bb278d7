"""MPO on a simulated model of which the tests know the truth: it closes a loophole that it sees, and can do harm."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from building import composed, load_task
from evorun.models import Request
from evorun.models.reviewing import CLOSING, HARMFUL
from evorun.models.simulator import Skill
from evorun.models.writing import EVASION, POINTED, VAGUE
from evorun.runner.settings import check
from evorun.tasks.rubric_scores import read_scores
from evorun.testing.runs import COMPLETED, carry_out
from evorun.training.simulated import LEARNED

SMALL = (
    *("task=essay", "task.source=sample", "task.limit=4", "method.steps=12", "method.problems_per_step=16"),
    *("method.rubric=initial", "method.eval_every=12", "method.eval_samples=5", "engine=simulated"),
    *("engine.loophole_rate=0.1", "engine.policy_learning_rate=2", "engine.meta_skill=0.5", "evorun.progress=off"),
    *("gold=smollm2_135m", "gold_engine=simulated", "gold_engine.loophole=0", "gold_engine.reward_noise=0"),
)


class Truth(NamedTuple):
    """A run's true scores, before and after, and what its policy and its rubrics came to."""

    before: float
    after: float
    loophole_rate: float
    foreign_script: float
    """The monitor's last value."""
    reward: float
    """The mean normalised reward of the last step."""
    rubrics: list[str]


def play(folder: Path, method: str, *overrides: str) -> Truth:
    rounds = ["method.refine_every=4"] if method == "mpo" else []
    run = carry_out(check(composed(f"method={method}", *SMALL, *rounds, *overrides)), folder / "_".join(overrides))
    assert run.outcome == COMPLETED
    before, after = (
        float(np.mean([one["scores"]["mean_rubric"] for one in run.records("steps") if one["step"] == step]))
        for step in (0, 12)
    )
    last: dict[str, float] = run.records("training")[-1]["figures"]
    rubrics = [one["text"] for one in run.records("candidates") if one["kind"] == "rubric"]
    rate = run.json(f"artifacts/{LEARNED}")["loophole_rate"]
    return Truth(before, after, rate, last["monitor_foreign_script"], last["reward_normalised"], rubrics)


def test_the_reward_model_judges_by_the_text_it_is_shown_and_by_nothing_else() -> None:
    loaded = load_task("essay", source="sample")
    task: Any = loaded.task
    problem = loaded.problems[0]
    simulator = loaded.simulator.with_skill(Skill(loophole=0.9, reward_noise=0, malformed=0))

    def points(text: str, **hints: Any) -> float:
        rubric = task.given_rubric("initial", "")
        prompt = task.scoring_prompt(problem, task.parse(problem, text), rubric)
        request = Request(messages=prompt.messages, hints={**prompt.hints, **hints})
        return read_scores(simulator.respond(request, np.random.default_rng(0)), rubric).normalised

    good, bad = " ".join(POINTED), " ".join(VAGUE)
    assert [points(text) for text in (good, bad, EVASION, "Nothing of the kind.")] == [1, 0, 0.9, 0]
    assert points(bad, answers=[good], weights=(20.0, -20.0, 1.0), learned=1.0) == 0
    assert points(good, answers=[EVASION]) == 1


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    return play(tmp_path_factory.mktemp("fixed"), "ppo")


def test_a_fixed_rubric_is_hacked(fixed: Truth) -> None:
    assert fixed.after < 0.1 < 0.25 < fixed.before
    assert fixed.loophole_rate > 0.9
    assert fixed.foreign_script > 0.5
    assert fixed.reward > 0.7  # while the reward model is pleased
    assert len(fixed.rubrics) == 1


def test_a_rubric_that_is_refined_in_view_of_the_hacking_is_not(fixed: Truth, tmp_path: Path) -> None:
    refined = play(tmp_path, "mpo")
    assert refined.before == fixed.before
    assert refined.after > refined.before + 0.1
    assert refined.loophole_rate < 0.1
    assert CLOSING not in refined.rubrics[0]
    assert CLOSING in refined.rubrics[-1]


def test_a_meta_reward_model_without_skill_gains_nothing_and_one_that_harms_loses(fixed: Truth, tmp_path: Path) -> None:
    unskilled = play(tmp_path, "mpo", "engine.meta_skill=0")
    assert len(unskilled.rubrics) > 3
    assert unskilled.after == pytest.approx(fixed.after, abs=0.05)
    harmful = play(tmp_path, "mpo", "engine.meta_harm=1")
    assert HARMFUL in harmful.rubrics[-1]
    assert CLOSING in harmful.rubrics[-1]  # so that it is not the loophole that it loses by
    assert harmful.after < harmful.before - 0.2
    assert harmful.loophole_rate < 0.1


def test_without_a_loophole_both_do_equally_well(tmp_path: Path) -> None:
    fixed, refined = (play(tmp_path / one, one, "engine.loophole=0") for one in ("ppo", "mpo"))
    assert fixed.after > fixed.before + 0.1
    assert refined.after == pytest.approx(fixed.after, abs=0.1)
