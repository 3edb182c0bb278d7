"""Rivals on the embedded model's real weights: a run of each, at a few calls, ends with records of all calls.

What a model of 135 million parameters writes is mostly unreadable, so this holds that real texts break nothing.
"""

from pathlib import Path

import pytest

from building import composed
from evorun.runner.settings import check
from evorun.testing.runs import COMPLETED, carry_out

# Each method on simulated or scripted models: its own file beside this one.
pytestmark = [pytest.mark.nightly, pytest.mark.embedded, pytest.mark.slow]

ARITHMETIC = ("task=arithmetic", "task.limit=2", "method.max_tokens=32")
RUNS: dict[str, tuple[int, tuple[str, ...]]] = {
    "rsa": (12, (*ARITHMETIC, "method.population=3", "method.subset=2", "method.steps=2")),
    "pdr": (8, (*ARITHMETIC, "method.drafts=[2,1]", "method.summary_tokens=32")),
    "v1_infer": (10, (*ARITHMETIC, "method.samples=3", "method.comparisons=2", "method.judge_max_tokens=32")),
    "ab_mcts": (8, ("task=sudoku", "task.limit=2", "method.max_tokens=32", "budget.calls_per_problem=4")),
    "squeeze_evolve": (
        12,
        (*ARITHMETIC, "method.population=3", "method.groups=3", "method.subset=2", "method.steps=2"),
    ),
    "islands": (
        8,
        (
            *("task=circle_packing", "task.limit=1", "method.max_tokens=32", "method.children=2"),
            *("method.generations=2", "budget.calls_per_problem=8"),
        ),
    ),
    "ace": (
        14,
        (*ARITHMETIC, "method.problems=2", "method.rounds=1", "method.reflection_max_tokens=32"),
    ),
    "rler": (
        16,
        (
            *(
                "task=arithmetic",
                "task.limit=1",
                "method.max_tokens=24",
                "method.steps=1",
                "method.problems_per_step=2",
            ),
            *("method.group=2", "method.write_max_tokens=32", "method.write_attempts=1", "method.eval_samples=1"),
            "method.eval_max_tokens=24",
        ),
    ),
}
"""The most calls of a run, and its settings."""


@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_real_weights_ends(tmp_path: Path, name: str) -> None:
    max_calls, words = RUNS[name]
    engine = ("engine=transformers", "model=smollm2_135m", "evorun.progress=off")
    run = carry_out(check(composed(f"method={name}", *engine, *words)), tmp_path)
    assert run.outcome == COMPLETED
    results = run.json("results.json")
    assert 0 < results["cost"]["total"]["calls"] <= max_calls
    assert results["counts"]["problems"] == len(run.records("predictions"))
