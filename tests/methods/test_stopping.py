"""Ending a problem once its answer is sure: calls saved at equal accuracy, and a guarantee as good as the judge."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from building import make_method, simulated_run
from evorun.ratings.best import probability_of_best
from evorun.runs.candidates import Step
from evorun.testing.runs import Run
from method_fixture import Ask, Scripted, solve

SIZES = ("method=best_of_n", "method.samples=10", "method.rounds=16", "method.duels=8")
TASK = ("task=mathbench", "task.source=sample", "task.limit=24", "engine.skill=0.5", "engine.judge_skill=0.7")
SHARED = "engine.typical_mistake=1"
"""All mistakes on a problem are the same one, as a judge's preference for it is."""


def play(folder: Path, limit: str, *world: str) -> Run:
    return simulated_run(folder / limit, *SIZES, *TASK, SHARED, *world, f"method.stop_probability={limit}")


def accuracy(run: Run) -> float:
    value: float = run.json("results.json")["metrics"]["accuracy"]["value"]
    return value


def stopped(run: Run) -> list[bool]:
    """Return whether the answer was right, for each problem that ended early."""
    last = {step["problem"]: step for step in run.records("steps")}
    return [bool(step["correct"]) for step in last.values() if step["extra"]["best_probability"] >= 0.95]


@pytest.mark.nightly
def test_a_noisy_judge_saves_calls_at_equal_accuracy(tmp_path: Path) -> None:
    early, whole = play(tmp_path, "0.95"), play(tmp_path, "null")
    calls = [run.json("results.json")["cost"]["total"]["calls"] for run in (early, whole)]
    assert calls[0] < 0.9 * calls[1]
    assert accuracy(early) >= accuracy(whole) - 0.02
    right = stopped(early)
    assert len(right) >= 10
    assert sum(right) / len(right) >= 0.95


@pytest.mark.nightly
def test_a_judge_that_repeats_its_errors_is_sure_of_wrong_answers(tmp_path: Path) -> None:
    """The guarantee is the posterior's, and its errors are independent."""
    right = stopped(play(tmp_path, "0.95", "engine.judge_persistence=1"))
    assert len(right) >= 16
    assert sum(right) / len(right) < 0.9


@pytest.mark.parametrize("name", ["duel_evolve", "best_of_n", "v1_infer"])
async def test_the_first_sure_step_is_the_last(name: str) -> None:
    def judged(ask: Ask) -> str:
        if ask.role == "generate":
            return "same" if ask.index else "other"
        first, second = (ask.shown[side]["answer"] == "same" for side in "ab")
        if name == "v1_infer":
            return f"{10 if first else 1} {10 if second else 1}:"
        return "T:" if first == second else "A:" if first else "B:"

    sizes = {
        "duel_evolve": {"generations": 30, "initial_candidates": 5, "children": 2, "parents": 2, "duels": 6},
        "best_of_n": {"samples": 5, "rounds": 30, "duels": 6},
        "v1_infer": {"samples": 5, "comparisons": 60},
    }[name]
    method = make_method(name, stop_probability=0.9, **sizes)
    history = await solve(method, Scripted(judged))
    sure = [step.extra["best_probability"] for step in history if name != "v1_infer" or step.step > 0]
    assert len(history) < 31
    assert sure[-1] >= 0.9
    assert all(value < 0.9 for value in sure[:-1])
    if name == "v1_infer":
        assert sure[-1] == pytest.approx(probability_by_all_ratings(method, history), abs=1e-8)
    unlimited = await solve(make_method(name, **sizes), Scripted(judged))
    assert len(unlimited) > len(history)
    assert "best_probability" not in unlimited[0].extra


def probability_by_all_ratings(method: Any, history: Sequence[Step]) -> float:
    """Return that of the last step's best answer, by the ratings of all steps."""
    pool, best = history[-1].candidates, history[-1].best
    assert best is not None
    places = {candidate.id: place for place, candidate in enumerate(pool)}
    rated = [((places[c.first], places[c.second]), c.ratings) for step in history for c in step.comparisons]
    posterior = method.config.posterior(len(pool), rated)
    return probability_of_best(posterior.mean, posterior.sd, [other.answer == best.answer for other in pool])
