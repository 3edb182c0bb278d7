"""Readers of a run's files keep figures, not texts: a long run has gigabytes of them."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from evorun.reports.browser import load_browser
from evorun.runs.aggregates import count_aggregates
from evorun.runs.reading import read_predictions, read_steps_without_texts
from evorun.runs.results import write_results
from evorun.runs.scores import ACCURACY
from run_fixture import RunSpec, write_run

pytestmark = pytest.mark.nightly

SHORT, LONG = 100, 20_000


def memory(act: Callable[[], object]) -> tuple[int, int]:
    """Return the bytes that are allocated at most, and those that the result of a second call keeps."""
    act()  # imports and caches
    tracemalloc.start()
    try:
        result = act()
        kept, peak = tracemalloc.get_traced_memory()
        del result
    finally:
        tracemalloc.stop()
    return peak, kept


def reading(what: str, run: Path) -> Callable[[], object]:
    return {
        "results": lambda: write_results(run, [ACCURACY], {}),
        "steps": lambda: read_steps_without_texts(run),
        "candidates": lambda: count_aggregates(run, ACCURACY),
    }[what]


@pytest.mark.parametrize("what", ["results", "steps", "candidates"])
def test_the_length_of_texts_does_not_decide_what_is_in_memory(what: str, tmp_path: Path) -> None:
    def peak(length: int) -> int:
        spec = RunSpec(problems=3, candidates=20, generations=20, text_length=length)
        return memory(reading(what, write_run(tmp_path / f"{length}", spec)))[0]

    short, long = peak(SHORT), peak(LONG)
    assert long - short < 10 * LONG  # one record being read, in a few forms; there are 60 texts


def test_a_page_has_the_texts_of_one_problem_in_memory(tmp_path: Path) -> None:
    def beyond_the_result(problems: int) -> int:
        run = write_run(tmp_path / f"{problems}", RunSpec(problems=problems, candidates=30, text_length=4_000))
        numbers = count_aggregates(run, ACCURACY).by_problem
        predictions, steps = read_predictions(run), read_steps_without_texts(run)
        peak, kept = memory(lambda: load_browser(run, predictions, steps, numbers, ACCURACY))
        return peak - kept

    assert beyond_the_result(6) < 2 * beyond_the_result(1)
