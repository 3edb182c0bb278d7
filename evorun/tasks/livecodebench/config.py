"""Configuration of the task: which problems, from where, how many, under which limits and with which prompts."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from hashlib import sha256
from pathlib import Path

import msgspec

from evorun.errors import ConfigError, above, at_least, one_of
from evorun.sandbox.base import Limits, Suite
from evorun.tasks.base import LoadedTask, Provenance, TaskConfig
from evorun.tasks.benchmark_files import MissingFilesError, default_folder, download
from evorun.tasks.livecodebench import files
from evorun.tasks.livecodebench.files import Entry
from evorun.tasks.livecodebench.grader import TestGrader
from evorun.tasks.livecodebench.programs import check_of
from evorun.tasks.livecodebench.records import STRATA, Answers
from evorun.tasks.livecodebench.simulator import LiveCodeBenchSimulator
from evorun.tasks.livecodebench.task import LiveCodeBench
from evorun.tasks.loading import load_rows
from evorun.tasks.sampling import stratified_draw

SOURCES = ("auto", "benchmark", "stand_in", "sample", "hub")


@dataclass(kw_only=True)
class LiveCodeBenchConfig(TaskConfig):
    """LiveCodeBench as Duel-Evolve uses it: release v6, 33 problems of each difficulty, hidden tests (§4.1)."""

    task_class = LiveCodeBench
    runs_programs = True

    source: str
    """auto: `data`, else $EVORUN_DATA/livecodebench, else `hub_id`; the files count as the benchmark's own when all of
    release v6 is there. benchmark | stand_in: the same places, and you say what the files are. hub: `hub_id` only.
    sample: evorun's own small set."""
    data: str | None
    """Folder with the release's files, or a file or a pattern of files (`FOLDER/lcb_*.jsonl`) in one of two layouts."""
    hub_id: str | None
    """Hub data set that holds the release's files (livecodebench/code_generation_lite: 4.5 GB)."""
    strata: list[str]
    """Difficulties to draw from, each a stratum of the results (§4.1)."""
    per_stratum: int | None
    """Problems of each difficulty; null: all that there are. Fewer are an error, except that the sample set gives what
    it has."""
    validation_per_stratum: int
    """Further problems of each difficulty, held out for demonstrations."""
    limit: int | None
    """Work on this many problems only: the first ones of the full draw, which goes round the difficulties in turn."""
    start_date: str | None
    """Draw only from contests on this day (such as 2024-06-30) or later; null: from the first."""
    end_date: str | None
    """Draw only from contests on this day or earlier; null: to the last."""
    platforms: list[str] | None
    """Draw only from these platforms (of atcoder, codeforces, leetcode); null: from all."""
    exclude: list[str]
    """Problems never drawn, by id or by title in lower case with hyphens (those that the benchmark's errata name)."""
    time_limit_s: float
    """CPU seconds of a program on one test (the benchmark's harness: 6)."""
    stated_time_limit_s: float
    """The limit that the prompts tell the model (B.2: 4)."""
    memory_mib: int
    """Address space of each of a program's processes."""
    prompts: str | None
    """Folder of your own prompt files; each replaces the built-in one of its name (null: the built-in ones)."""
    reasoning_max_chars: int
    """Longest reasoning that the JSON schema allows."""
    shown_reasoning_chars: int | None
    """As much of a candidate's reasoning as a later prompt shows, its beginning and its end; null: all. Demonstrations
    show all of theirs."""
    solution_max_chars: int
    """Longest program that the JSON schema allows and that a symbolic operator makes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("task.source", self.source, SOURCES)
        at_least("task.per_stratum", self.per_stratum, 1)
        at_least("task.validation_per_stratum", self.validation_per_stratum, 0)
        at_least("task.limit", self.limit, 1)
        above("task.time_limit_s", self.time_limit_s, 0)
        above("task.stated_time_limit_s", self.stated_time_limit_s, 0)
        at_least("task.memory_mib", self.memory_mib, 64)
        at_least("task.reasoning_max_chars", self.reasoning_max_chars, 1)
        at_least("task.shown_reasoning_chars", self.shown_reasoning_chars, 1)
        at_least("task.solution_max_chars", self.solution_max_chars, 1)
        for stratum in self.strata:
            one_of("task.strata", stratum, STRATA)
        if not self.strata or len(set(self.strata)) < len(self.strata):
            raise ConfigError(f"task.strata: expected distinct difficulties, at least one, got {list(self.strata)}")
        _day("task.start_date", self.start_date)
        _day("task.end_date", self.end_date)
        if self.source == "sample" and self.data is not None:
            raise ConfigError("task.data: has no effect with task.source=sample; leave one of the two out")
        if self.source == "hub" and self.hub_id is None:
            raise ConfigError(f"task.hub_id: expected a hub data set with task.source=hub, such as {files.HUB_ID}")

    @property
    def private_files(self) -> list[Path]:
        return [] if self.data is None else [Path(self.data)]

    def load(self) -> LoadedTask:
        """Read, filter and draw the problems. Hidden tests are decoded for drawn ones only.

        Raises DataError for missing or malformed files and strata that are too small, ConfigError for prompt files.
        """
        limits = Limits(cpu_seconds=self.time_limit_s, memory_mib=self.memory_mib)
        task = LiveCodeBench(
            limits=limits,
            stated_time_limit_s=self.stated_time_limit_s,
            prompts=self.prompts,
            reasoning_max_chars=self.reasoning_max_chars,
            shown_reasoning_chars=self.shown_reasoning_chars,
            solution_max_chars=self.solution_max_chars,
        )
        paths, place = self._locate()
        entries = files.read(paths)
        draw = stratified_draw(
            self._strata(entries),
            per_stratum=self.per_stratum,
            held_out=self.validation_per_stratum,
            seed=self.draw_seed,
            name=self.name,
            allow_fewer=self.source == "sample",
        )
        selected = draw.selected[: self.limit]
        # Hidden tests are read for drawn problems only: all of them together are gigabytes.
        answers = {entry.problem.id: entry.answers() for entry in (*selected, *draw.held_out)}
        rows, held_out = (
            [(one.problem, answers[one.problem.id].solution) for one in p] for p in (selected, draw.held_out)
        )
        suites = {
            problem.id: Suite(answers[problem.id].hidden, check_of(problem), limits)
            for problem, _ in (*rows, *held_out)
        }
        # The suites are shared with the grader, which holds one object a problem; see `TestGrader`.
        hidden = {identity: suite.cases for identity, suite in suites.items()}
        return load_rows(
            task,
            rows,
            validation=held_out,
            provenance=self._provenance(paths, entries, place, selected, answers),
            grader=TestGrader(suites),
            simulator=partial(LiveCodeBenchSimulator, hidden=hidden),
        )

    def _locate(self) -> tuple[list[Path], str]:
        """Return the files to read and how results name them."""
        if self.source == "sample":
            return [files.SAMPLE], "sample"
        if self.source != "hub":
            data = self.data if self.data is not None else default_folder("livecodebench")
            if data is not None:
                place = Path(data).expanduser()
                return files.find(str(data)), f"{'folder' if place.is_dir() else 'file'} {place.resolve().name}"
        if self.hub_id is not None:
            folder = download(self.hub_id, files.RELEASE_FILES, "task.hub_id")
            return files.find(str(folder)), f"hub data set {self.hub_id}"
        raise MissingFilesError(
            "LiveCodeBench's files",
            f"give task.hub_id={files.HUB_ID} to download release v6, or its folder as task.data=FOLDER or "
            "$EVORUN_DATA/livecodebench",
            f"release v6 in $EVORUN_DATA/livecodebench; or task.hub_id={files.HUB_ID}",
        )

    def _strata(self, entries: Sequence[Entry]) -> dict[str, list[Entry]]:
        platforms = {entry.problem.data["platform"] for entry in entries}
        for platform in self.platforms or ():
            one_of("task.platforms", platform, platforms)
        strata: dict[str, list[Entry]] = {stratum: [] for stratum in self.strata}
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
        # Filtered first: a problem must not be left out for one that is not drawn from.
        for entry in files.distinct(wanted):
            strata[entry.problem.stratum].append(entry)
        return strata

    def _provenance(
        self,
        paths: Sequence[Path],
        entries: Sequence[Entry],
        place: str,
        selected: Sequence[Entry],
        answers: Mapping[str, Answers],
    ) -> Provenance:
        source = self.source
        if source in ("auto", "hub"):
            source = "benchmark" if files.is_release(paths, entries) else "stand_in"
        description = {
            "benchmark": f"LiveCodeBench's own files, release v6 ({place})",
            "stand_in": f"problems in LiveCodeBench's manner, not the release itself ({place})",
            "sample": "evorun's own sample set of programming problems, not LiveCodeBench",
        }[source]
        digest = sha256()
        for entry in selected:
            problem = entry.problem
            digest.update(msgspec.json.encode((problem.id, problem.data, answers[problem.id].hidden)))
        return Provenance(source=source, description=description, digest=digest.hexdigest())


def _day(key: str, value: str | None) -> None:
    try:
        valid = value is None or date.fromisoformat(value).isoformat() == value
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(f"{key}: expected a day such as 2024-06-30, got '{value}'")
