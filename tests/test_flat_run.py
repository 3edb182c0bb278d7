"""A whole run keeps the texts of its pool in memory, and of all others nothing: more calls leave hardly more bytes."""

import gc
import io
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from building import composed
from evorun.models.base import Reply, Request
from evorun.runner.experiment import run_experiment
from evorun.runner.settings import check
from evorun.runner.work import Outcome
from evorun.runs import journal_file
from evorun.runs.candidates import Candidate, Response
from evorun.runs.terminal import Terminal
from evorun.simulation.engine import SimulatedModel

TOKENS = 5_000
"""Of a response: 20 kB, so that texts which stay stand out from what else a call leaves."""
SIZES = ["generations=12", "initial_candidates=6", "children=6", "duels=3", "max_pool=6"]


@pytest.mark.nightly  # test_driver.py has the memory of problems that wait
def test_calls_that_are_done_leave_no_texts_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # what the journal's writer remembers is bounded, but by more than this run writes
    monkeypatch.setattr(journal_file, "REMEMBERED_BYTES", 100_000)
    monkeypatch.setattr(journal_file, "PACKED_BYTES", 100_000)
    complete, held = SimulatedModel.complete, list[int]()

    async def watched(model: SimulatedModel, request: Request) -> Reply:
        if not tracemalloc.is_tracing():  # not from the start: imports take long when they are traced
            tracemalloc.start()
        if len(held) % 20 == 0:
            gc.collect()
        held.append(tracemalloc.get_traced_memory()[0])
        return await complete(model, request)

    monkeypatch.setattr(SimulatedModel, "complete", watched)
    words = ["engine=simulated", f"engine.mean_tokens={TOKENS}", "evorun.progress=off"]
    words += ["method=duel_evolve", *(f"method.{size}" for size in SIZES), f"method.max_tokens={2 * TOKENS}"]
    words += ["task=mathbench", "task.source=sample", "task.limit=2"]
    try:
        outcome = run_experiment(check(composed(*words)), tmp_path, ["evorun"], Terminal(file=io.StringIO()))
    finally:
        tracemalloc.stop()
    assert outcome == Outcome("completed")
    # the least of a quarter: what is in flight comes and goes
    quarter = len(held) // 4
    second, last = min(held[quarter : 2 * quarter]), min(held[3 * quarter :])
    texts = 4 * TOKENS * 2 * 6 * 12 * 2  # bytes of a text; as text and as reasoning; of both problems
    assert last - second < texts / 8  # of the texts of two quarters, which are half of them all


MATHBENCH = ["task=mathbench", "task.source=sample"]
SUDOKU = ["task=sudoku", "task.limit=1"]
ARITHMETIC = ["task=arithmetic", "task.test_problems=2"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "words",
    [
        ["method=feedback_descent", "method.generations=150", "method.window=2", *MATHBENCH, "task.limit=1"],
        ["method=lyria", "method.generations=40", "method.population=6", *SUDOKU],
        ["method=best_of_n", "method.choose=oracle", "method.samples=60", "method.batches=20", *SUDOKU],
        ["method=grpo", "method.steps=20", "method.problems_per_step=1", "method.eval_every=1", *ARITHMETIC],
    ],
    ids=lambda words: words[0],
)
def test_texts_of_candidates_that_no_prompt_will_show_have_no_references(
    words: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, complete = Candidate.from_response.__func__, SimulatedModel.complete  # type: ignore[attr-defined]
    texts, held = list[str](), list[int]()

    def noted(cls: type[Candidate], response: Response, **origin: Any) -> Candidate:
        texts.append(response.text)
        candidate: Candidate = of(cls, response, **origin)
        return candidate

    async def watched(model: SimulatedModel, request: Request) -> Reply:
        # the list's, the loop's, and the call's own
        held.append(sum(sys.getrefcount(text) > 3 for text in texts))
        return await complete(model, request)

    monkeypatch.setattr(Candidate, "from_response", classmethod(noted))
    monkeypatch.setattr(SimulatedModel, "complete", watched)
    config = check(composed("engine=simulated", "evorun.progress=off", *words))
    assert run_experiment(config, tmp_path, ["evorun"], Terminal(file=io.StringIO())) == Outcome("completed")
    # those of the pool and of the latest step, and the replies that a parser has read last
    assert 0 < max(held) < len(texts) / 3
