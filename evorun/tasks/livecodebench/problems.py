"""LiveCodeBench's problems: its files (gigabytes), the draw, and grading by hidden tests."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from glob import glob
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from evorun.errors import ConfigError, DataError
from evorun.fields import NonNegativeInt, PositiveFloat, PositiveInt, require_one_of
from evorun.runs.candidates import Response
from evorun.sandbox.base import Limits, Suite
from evorun.tasks.base import Grade, LoadedTask, Problem, Tools, look_up
from evorun.tasks.benchmark import drop_repeats
from evorun.tasks.livecodebench.programs import make_check, make_program
from evorun.tasks.livecodebench.records import STRATA, Answers, Layout, ReleaseLayout, detect_layout
from evorun.tasks.livecodebench.simulator import LiveCodeBenchSimulator
from evorun.tasks.livecodebench.task import LiveCodeBench
from evorun.tasks.loading import load_rows
from evorun.tasks.stratified_benchmark import StratifiedBenchmark

RELEASE_FILES = ("test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl", "test6.jsonl")
"""Release v6: each release adds a file to those before it."""
HUB_ID = "livecodebench/code_generation_lite"
SAMPLE = Path(__file__).parent / "sample.jsonl"

_log = logging.getLogger(__name__)


class TestGrader:
    """Grades by hidden tests: a correct program passes all of them (§4.1).

    The release's own harness runs the public tests with them; here they are feedback and do not count.
    """

    __test__ = False  # not for pytest to collect

    def __init__(self, hidden: Mapping[str, Suite]) -> None:
        """hidden: each problem's suite; always the same object per problem, so that a journal recognizes it cheaply."""
        self._hidden = hidden

    async def grade(self, problem: Problem, response: Response, tools: Tools) -> Grade:
        """Grade one response, up to the first test that it fails. Raises DataError for an unknown problem."""
        suite = look_up(self._hidden, problem)
        if response.answer is None:
            return Grade(correct=False, detail="no program")
        # Further tests could not change the verdict, and hundreds of them may be slow.
        results = await tools.test(make_program(problem, response.answer), suite, stop_at_failure=True)
        verdict, total = results[-1].verdict, len(suite.cases)
        if verdict == "accepted":
            return Grade(correct=True, detail=f"accepted on all {total} hidden tests")
        return Grade(correct=False, detail=f"{verdict} at hidden test {len(results)} of {total}")


@dataclass(frozen=True)
class Entry:
    """A problem and the location of its record, whose hidden tests are read only when it is drawn."""

    problem: Problem
    contest_date: date
    layout: Layout
    path: Path
    line: int
    """Counted from 1."""
    offset: int
    size: int
    """Bytes of the line."""

    @property
    def where(self) -> str:
        """`FILE:LINE`, for errors."""
        return f"{self.path}:{self.line}"

    def answers(self) -> Answers:
        """Read the hidden tests and the solution. Raises DataError naming file and line."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                line = file.read(self.size)
        except OSError as error:
            raise DataError(f"{self.path}: cannot read: {error.strerror}") from error
        return self.layout.answers(line, self.where)


def find_files(data: str) -> list[Path]:
    """Return the files that `data` names: a file, a folder, or a pattern such as `FOLDER/lcb_*.jsonl`.

    For a folder with files of the release, only those; for any other folder, every `*.jsonl`. Raises DataError without
    any file, or if a part of the release is missing.
    """
    place = Path(data).expanduser()
    if place.is_file():
        return [place]
    if not place.is_dir():
        found = sorted(Path(name) for name in glob(str(place)))
        if not found:
            raise DataError(f"task.data: expected a folder, a file or a pattern of files, got '{data}'")
        return found
    if any((place / name).is_file() for name in RELEASE_FILES):
        missing = [name for name in RELEASE_FILES if not (place / name).is_file()]
        if missing:
            raise DataError(
                f"task.data: LiveCodeBench's release v6 is {', '.join(RELEASE_FILES)}; {missing[0]} is missing in "
                f"'{place}'. To use a part of it, name the files: task.data='{place}/test*.jsonl'"
            )
        return [place / name for name in RELEASE_FILES]
    found = sorted(place.glob("*.jsonl"))
    if not found:
        raise DataError(
            f"task.data: expected {RELEASE_FILES[0]} to {RELEASE_FILES[-1]} of LiveCodeBench's release v6, or other "
            f"*.jsonl files, in '{place}'"
        )
    return found


def read_entries(paths: Sequence[Path]) -> list[Entry]:
    """Read the records of these files in order, without their hidden tests.

    Raises DataError naming file and line for a malformed record or an id that is used twice.
    """
    entries: list[Entry] = []
    for path in paths:
        layout: Layout | None = None
        offset = 0
        try:
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        where = f"{path}:{number}"
                        # All records of a file have the layout of its first.
                        layout = layout or detect_layout(line, where)
                        record = layout.read_public(line, where)
                        entries.append(
                            Entry(record.problem, record.contest_date, layout, path, number, offset, len(line))
                        )
                    offset += len(line)
        except OSError as error:
            raise DataError(f"{path}: cannot read: {error.strerror}") from error
    return drop_repeats(entries, lambda problem: problem.id)


@dataclass(kw_only=True)
class LiveCodeBenchConfig(StratifiedBenchmark):
    """LiveCodeBench as Duel-Evolve uses it: release v6, 33 problems of each difficulty, hidden tests (§4.1).

    `data` may also be a file or a pattern of files (`FOLDER/lcb_*.jsonl`) in one of two layouts. With `source=auto` the
    files count as the benchmark's own when all of release v6 is there; `hub_id` downloads it (4.5 GB).
    """

    task_class = LiveCodeBench
    runs_programs = True
    folder = "livecodebench"
    sample = SAMPLE
    sample_set = "evorun's own sample set of programming problems, not LiveCodeBench"
    own_files = "LiveCodeBench's own files, release v6"
    other_files = "problems in LiveCodeBench's manner, not the release itself"
    hub_files = RELEASE_FILES
    known_hub_id = HUB_ID
    all_strata = STRATA
    called = "difficulties"
    missing = (
        "LiveCodeBench's files",
        f"give task.hub_id={HUB_ID} to download release v6, or its folder as task.data=FOLDER or "
        "$EVORUN_DATA/livecodebench",
        f"release v6 in $EVORUN_DATA/livecodebench; or task.hub_id={HUB_ID}",
    )

    validation_per_stratum: NonNegativeInt
    """Further problems of each difficulty, held out for demonstrations."""
    start_date: str | None
    """Draw only from contests on this day (such as 2024-06-30) or later; null: from the first."""
    end_date: str | None
    """Draw only from contests on this day or earlier; null: to the last."""
    platforms: list[str] | None
    """Draw only from these platforms (of atcoder, codeforces, leetcode); null: from all."""
    exclude: list[str]
    """Problems never to draw, by id or by title in lower case with hyphens (those in the benchmark's errata)."""
    time_limit_s: PositiveFloat
    """CPU seconds of a program on one test (the benchmark's harness: 6)."""
    stated_time_limit_s: PositiveFloat
    """The limit stated in prompts (B.2: 4)."""
    memory_mib: Annotated[int, Meta(ge=64)]
    """Address space of each of a program's processes."""
    hidden_tests: PositiveInt | None
    """Grade by this many hidden tests of each problem, the first ones; null: by all, as the benchmark does. Fewer are
    cheaper, and wrong programs may pass them."""
    solution_max_chars: PositiveInt
    """Maximum characters of a program in the JSON schema and from a symbolic operator."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_day("task.start_date", self.start_date)
        _check_day("task.end_date", self.end_date)

    @property
    def private_files(self) -> list[Path]:
        return [] if self.data is None else [Path(self.data)]

    @property
    def limits(self) -> Limits:
        """The limits of a program on one test."""
        return Limits(cpu_seconds=self.time_limit_s, memory_mib=self.memory_mib)

    def make_task(self) -> LiveCodeBench:
        return LiveCodeBench(
            limits=self.limits,
            stated_time_limit_s=self.stated_time_limit_s,
            prompts=self.prompts,
            reasoning_max_chars=self.reasoning_max_chars,
            shown_reasoning_chars=self.shown_reasoning_chars,
            solution_max_chars=self.solution_max_chars,
        )

    def load(self) -> LoadedTask:
        """Read, filter and draw the problems; hidden tests are decoded only for drawn problems.

        Raises DataError for missing or malformed files and strata that are too small, ConfigError for prompt files.
        """
        task = self.make_task()
        location, place = self.locate()
        paths = find_files(str(location))
        entries = read_entries(paths)
        selected, held_out = self.draw(self._strata(entries), self.validation_per_stratum)
        # Only drawn problems' hidden tests are read: all together are gigabytes.
        answers = {
            entry.problem.id: msgspec.structs.replace(found, hidden=found.hidden[: self.hidden_tests])
            for entry in (*selected, *held_out)
            for found in (entry.answers(),)
        }
        digest = sha256()
        for problem in (entry.problem for entry in selected):
            digest.update(msgspec.json.encode((problem.id, problem.data, answers[problem.id].hidden)))
        is_own = (
            self.hidden_tests is None
            and {path.name for path in paths} == set(RELEASE_FILES)
            and all(isinstance(entry.layout, ReleaseLayout) for entry in entries)
        )
        suites = {
            entry.problem.id: Suite(answers[entry.problem.id].hidden, make_check(entry.problem), self.limits)
            for entry in (*selected, *held_out)
        }
        # The suites are shared with the grader, which keeps one object per problem; see `TestGrader`.
        hidden = {identity: suite.cases for identity, suite in suites.items()}
        return load_rows(
            task,
            [(entry.problem, answers[entry.problem.id].solution) for entry in selected],
            validation=[(entry.problem, answers[entry.problem.id].solution) for entry in held_out],
            provenance=self.describe(is_own, place, digest.hexdigest()),
            grader=TestGrader(suites),
            simulator=partial(LiveCodeBenchSimulator, hidden=hidden),
        )

    def _strata(self, entries: Sequence[Entry]) -> dict[str, list[Entry]]:
        platforms = {entry.problem.data["platform"] for entry in entries}
        for platform in self.platforms or ():
            require_one_of("task.platforms", platform, platforms)
        wanted = []
        for entry in entries:
            problem, day = entry.problem, entry.contest_date.isoformat()
            title = re.sub(r"[^a-z0-9]+", "-", problem.data["title"].lower()).strip("-")
            if (
                problem.stratum in self.strata
                and (self.start_date or "") <= day <= (self.end_date or day)
                and (self.platforms is None or problem.data["platform"] in self.platforms)
                and problem.id not in self.exclude
                and title not in self.exclude
            ):
                wanted.append(entry)

        def repeated(earlier: Entry, later: Entry) -> None:
            _log.warning("%s: left out, the same problem as %s", later.where, earlier.where)

        def content(problem: Problem) -> tuple[str, str]:
            return problem.data["question"], problem.data["starter_code"]

        # Filtered first: a problem must not be dropped as a repeat of one that is excluded.
        unique = drop_repeats(wanted, content, repeated)
        return {stratum: [entry for entry in unique if entry.problem.stratum == stratum] for stratum in self.strata}


def _check_day(key: str, value: str | None) -> None:
    try:
        valid = value is None or date.fromisoformat(value).isoformat() == value
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(f"{key}: expected a day such as 2024-06-30, got '{value}'")
