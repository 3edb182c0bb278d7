"""Whatever a model or its program writes, reading it raises nothing and takes time and memory linear in its length."""

import gc
import re
import time
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

import evorun
from evorun.tasks import json_text
from evorun.tasks.boxes import last_boxed
from evorun.tasks.puzzles.reading import last_block
from model_texts import PARSERS, PUMPS, functions, parser, texts

FUNCTIONS = functions()

WITHOUT_MODEL_TEXT = {
    "cli.completion": "the command line",
    "cli.explain": "errors of Hydra",
    "cli.job_folders": "the command line",
    "cli.local_launcher": "an error that a job of evorun's own prints",
    "cli.naming": "the command line",
    "cli.overrides": "the command line",
    "cli.quoting": "the command line",
    "cli.secrets": "a configuration",
    "cli.sweep_resume": "a folder",
    "errors": "durations of a configuration",
    "exports.archive": "all files of a run, in linear time",
    "exports.latex": "the cells of a comparison's tables: names of runs, and figures",
    "models.adapters": "names of tensors",
    "models.base": "an engine's reason for a refusal",
    "models.chat_templates": "a model's chat template",
    "models.config": "errors about engines",
    "models.keys": "names of variables",
    "models.memory": "errors of libraries",
    "models.vllm.failures": "the log of vLLM's errors, in linear time",
    "runs.prices": "names of GPUs",
    "runs.slurm": "numbers of jobs",
    "simulation.reviewing": "a simulator's prompts",
    "reports.comparison.output": "links of a comparison's page, in linear time",
    "reports.drawing": "matplotlib's output",
    "reports.islands": "names of a method's figures",
    "sandbox.config": "names of installed packages",
    "tasks.assertions": "the reader of options is checked, which calls it",
    "tasks.livecodebench.problems": "titles of problems",
    "tasks.livecodebench.task": "errors of at most some hundred characters",
    "tasks.livecodebench.records": "a benchmark's records",
    "tasks.math.clusters": "a benchmark's problems",
    "tasks.math.math": "a benchmark's records",
    "tasks.math_contest.equations": "the reader of contests is checked, which calls it",
    "tasks.math_contest.forms": "answers, in a worker with a time limit",
    "tasks.math_contest.problems": "a benchmark's records",
    "tasks.mathbench.mathbench": "a benchmark's records",
    "tasks.graph_coloring.reading": "the puzzle's reader is checked, which calls it",
    "tasks.puzzles.lenient": "the puzzles' readers are checked, which call it",
    "tasks.sudoku.reading": "the puzzle's reader is checked, which calls it",
    "tasks.tsp.routes": "the puzzle's reader is checked, which calls it",
    "tasks.tsp.tsplib": "a benchmark's files",
    "training.failures": "the trainer's log",
}
"""Modules with regular expressions of which no function is checked here by itself, and why."""


def test_every_module_with_regular_expressions_is_checked_or_reads_no_model_text() -> None:
    folder = Path(evorun.__file__).parent
    using = {
        ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.rglob("*.py")
        if re.search(r"^import re$", path.read_text(), re.MULTILINE)
    }
    checked = {reader.module.removeprefix("evorun.") for reader in FUNCTIONS.values()}
    assert using - checked == set(WITHOUT_MODEL_TEXT)


@pytest.mark.sample(76)
@pytest.mark.parametrize("name", [*FUNCTIONS, *PARSERS])
def test_no_text_raises(name: str) -> None:
    read = FUNCTIONS[name].read if name in FUNCTIONS else parser(name)

    @settings(max_examples=settings.default.max_examples // 2, suppress_health_check=list(HealthCheck))
    @given(texts)
    def reads(text: str) -> None:
        read(text)

    reads()


LENGTHS = (200, 1_600, 12_800)
SUSPECT, SLACK = 1.5, 3
"""A linear reader takes 8 times as long for the second length as for the first, and 8 times as long again for the
third; a quadratic one 64 times. A reader is suspected early, by `SUSPECT` times a linear one's time. Chance and readers
that look back over some hundred characters come to as much, but not again for a text of twice the second length.
`SLACK` times a linear one's time for the third proves it."""


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_time_grows_as_the_length_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name != "tasks.json_text: object":  # whose repair of JSON the others use, and which takes most of their time
        monkeypatch.setattr(json_text, "_repair", lambda text: None)
    for text in PUMPS:
        refuse_growth(FUNCTIONS[name].read, text)


@pytest.mark.parametrize("name", ["mutate", "crossover"])
def test_functions_of_a_program_are_not_searched_for_each_of_its_numbers(name: str) -> None:
    function = "def f():\n return 1\n"
    refuse_growth(FUNCTIONS[f"tasks.livecodebench.operators: {name}"].read, lambda n: function * (n // len(function)))


@pytest.mark.nightly
def test_boxes_in_boxes_are_not_copied_box_by_box() -> None:
    nested, flat = "\\boxed{" * 20_000 + "}" * 20_000, "\\boxed{}" * 20_000
    assert any(_seconds(last_boxed, nested) < 10 * _seconds(last_boxed, flat) for _ in range(3))


def refuse_growth(read: Callable[[str], object], text: Callable[[int], str]) -> None:
    """Fail if the time of a reader grows faster than the length of its text."""
    first, second, third = LENGTHS
    long = text(second)
    seconds = _seconds(read, long)
    # Read in less time than some loops over its characters take: not worth a second measurement.
    if seconds <= 10 * _of_a_loop(second) or seconds <= SUSPECT * second / first * _least(read, text(first)):
        return
    if _seconds(read, text(2 * second)) <= SUSPECT * 2 * seconds:
        return
    seconds = _least(read, long)
    longer, limit = text(third), SLACK * third / second * seconds
    quadratic = all(_seconds(read, longer) > limit for _ in range(3))
    growth = f"a text {third // second} times as long takes more than {limit / seconds:g} times as long"
    assert not quadratic, f"{growth}: {long[:40]!r}..."


@cache
def _of_a_loop(length: int) -> float:
    return _least(lambda text: sum(character == "x" for character in text), "-" * length)


def _least(read: Callable[[str], object], text: str) -> float:
    return min(_seconds(read, text) for _ in range(3))


def _seconds(read: Callable[[str], object], text: str) -> float:
    """Return how long a text takes by this thread's own clock, which whatever else runs can still slow down."""
    if hasattr(json_text._repair, "cache_clear"):
        json_text._repair.cache_clear()
    gc.disable()  # it looks through all that the process holds, at times of its own
    try:
        started = time.thread_time()
        read(text)
        return time.thread_time() - started + 1e-6
    finally:
        gc.enable()


@pytest.mark.sample(1)
@pytest.mark.parametrize("piece", ["```\n", "```x```\n", "~~~\nx\n"])
def test_the_text_before_a_block_is_not_copied_for_each(piece: str) -> None:
    def peak(length: int) -> int:
        text = piece * (length // len(piece))
        tracemalloc.start()
        try:
            last_block(text)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(80_000) < 16 * peak(10_000)  # 8 times when linear, 64 times when quadratic
