"""MPO on a simulated model of which the tests know the truth: it closes a loophole that it sees, and can do harm."""

import importlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from building import composed, load_task
from evorun.models import Request
from evorun.runner.settings import check
from evorun.simulation.loopholes import KINDS, exploit
from evorun.simulation.reviewing import CLOSING, HARMFUL
from evorun.simulation.skill import Skill
from evorun.simulation.writing import POINTED, VAGUE
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
        rubric = task.starting_rubric("initial", "")
        prompt = task.scoring_prompt(problem, task.parse(problem, text), rubric)
        request = Request(messages=prompt.messages, hints={**prompt.hints, **hints})
        return read_scores(simulator.respond(request, np.random.default_rng(0)), rubric).normalised

    good, bad, evasion = " ".join(POINTED), " ".join(VAGUE), exploit("title", np.random.default_rng(0))
    assert [points(text) for text in (good, bad, evasion, "Nothing of the kind.")] == [1, 0, 0.9, 0]
    assert points(bad, answers=[good], weights=(20.0, -20.0, 1.0), learned=1.0) == 0
    assert points(good, answers=[evasion]) == 1


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    return play(tmp_path_factory.mktemp("fixed"), "ppo")


def test_a_fixed_rubric_is_hacked(fixed: Truth) -> None:
    assert fixed.after < 0.1 < 0.25 < fixed.before
    assert fixed.loophole_rate > 0.9
    assert fixed.foreign_script > 0.5
    assert fixed.reward > 0.7  # while the reward model is pleased
    assert len(fixed.rubrics) == 1


@pytest.fixture(name="study")
def _study(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    return importlib.import_module("measure_rubric_study")


def write_overrides(run: Path, method: str) -> None:
    (run / ".hydra").mkdir(exist_ok=True)
    (run / ".hydra" / "overrides.yaml").write_text(f"- method={method}\n- seed=0\n")


@pytest.mark.nightly
def test_the_measured_delay_is_that_between_the_loopholes_onset_and_the_rubric_that_closes_it(
    tmp_path: Path, study: Any
) -> None:
    def measure(method: str, rates: list[float]) -> Any:
        """Measure a run as if its policy had exploited the loophole at these rates after each update."""
        run = tmp_path / method
        play(run, method)
        write_overrides(run, method)
        learned = {"loophole_rates_by_update": [{"language": rate} for rate in rates]}
        (run / "artifacts" / LEARNED).write_text(json.dumps(learned))
        return study.measured(run)

    fixed = measure("ppo", [0.02] * 3 + [0.5] * 10)
    assert (fixed.figures["onset"], fixed.figures["delay"], fixed.figures["closed"]) == (1, 12 - 3, 0)
    assert fixed.figures["meta calls"] == fixed.figures["in vain"] == 0
    refined = measure("mpo", [0.02] * 3 + [0.5] * 10)
    # after step 4, which is the first refinement
    assert (refined.figures["onset"], refined.figures["delay"], refined.figures["closed"]) == (1, 1, 1)
    assert refined.figures["in vain"] == 0
    assert refined.figures["meta calls"] > 40
    assert "method=mpo" in study.table([fixed, refined])
    score, regret, _ = study.notes([fixed, refined])
    assert "`mean_rubric` in `evorun report`" in score
    assert "instead of `rubric`" in score
    assert regret == "regret: there is no run of `method=ppo engine.loophole=0` with seed 0."


@pytest.mark.nightly
@pytest.mark.parametrize(("keep", "refused", "harmful"), [("validated", 2, 0), ("newest", 0, 2)])
def test_harmful_rubrics_that_a_check_refuses_are_counted_though_proposals_take_their_place(
    keep: str, refused: int, harmful: int, tmp_path: Path, study: Any
) -> None:
    harm = ("engine.meta_harm=1", "engine.meta_skill=0", "engine.loophole_rate=0", "engine.reward_noise=0.05")
    rubrics = play(tmp_path, "mpo", *harm, f"method.keep_rubric={keep}").rubrics
    assert len(rubrics) == 3  # a merged rubric that is refused leaves its place to a proposal, which does no harm
    (run,) = tmp_path.iterdir()
    write_overrides(run, "mpo")
    figures = study.measured(run).figures
    assert (figures["refused"], figures["harmful"]) == (refused, harmful)


def test_a_rubric_that_is_refined_in_view_of_the_hacking_is_not(fixed: Truth, tmp_path: Path) -> None:
    refined = play(tmp_path, "mpo")
    assert refined.before == fixed.before
    assert refined.after > refined.before + 0.1
    assert refined.loophole_rate < 0.1
    assert CLOSING["language"] not in refined.rubrics[0]
    assert CLOSING["language"] in refined.rubrics[-1]


@pytest.mark.nightly  # one kind is closed by day
def test_loopholes_of_all_kinds_at_once_are_found_one_by_one(tmp_path: Path) -> None:
    all_kinds = ("engine.loophole_kind=all", "engine.loophole_rate=0.3")
    fixed, refined = (play(tmp_path / method, method, *all_kinds) for method in ("ppo", "mpo"))
    assert fixed.loophole_rate > 0.7
    assert sum(CLOSING[kind] in refined.rubrics[-1] for kind in KINDS) >= 3
    assert refined.after > fixed.after + 0.2


@pytest.mark.nightly
def test_a_meta_reward_model_without_skill_gains_nothing_and_one_that_harms_loses(fixed: Truth, tmp_path: Path) -> None:
    unskilled = play(tmp_path, "mpo", "engine.meta_skill=0")
    assert len(unskilled.rubrics) == 3  # the first, and those of steps 4 and 8: none follows the last batch
    assert unskilled.after == pytest.approx(fixed.after, abs=0.05)
    harmful = play(tmp_path, "mpo", "engine.meta_harm=1")
    assert HARMFUL in harmful.rubrics[-1]
    assert CLOSING["language"] in harmful.rubrics[-1]  # so that it is not the loophole that it loses by
    assert harmful.after < harmful.before - 0.2
    assert harmful.loophole_rate < 0.1


@pytest.mark.nightly  # the control of the loophole that is found by day
def test_without_a_loophole_both_do_equally_well(tmp_path: Path) -> None:
    fixed, refined = (play(tmp_path / one, one, "engine.loophole=0") for one in ("ppo", "mpo"))
    assert fixed.after > fixed.before + 0.1
    assert refined.after == pytest.approx(fixed.after, abs=0.1)
