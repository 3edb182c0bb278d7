"""The common part of benchmarks: settings, the questions read from their files, and the task made of them.

A benchmark defines its files and hub data sets, how to read a record, and its task. A benchmark with a train and a test
split is a `SplitBenchmark`; one that is drawn stratum by stratum is a `StratifiedBenchmark`.
"""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from evorun.errors import ConfigError, DataError
from evorun.fields import PositiveInt, require_one_of
from evorun.tasks.base import Grader, LoadedTask, Problem, Provenance, Row, TaskConfig
from evorun.tasks.benchmark_files import default_folder
from evorun.tasks.loading import GoldGrader, load_rows
from evorun.tasks.simulator import TextSimulator
from evorun.tasks.text_task import TextTask


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A problem with its accepted answers, which are removed before a method sees it."""

    problem: Problem
    answers: tuple[str, ...] = ()
    """The first is the canonical one; empty where no right answer is known."""
    details: Mapping[str, Any] = {}
    """Other fields of the record that identify or select it."""
    solution: str = ""
    """The worked solution, which includes the answer."""
    where: str = ""
    """`FILE:LINE` of its record, for errors."""

    @property
    def row(self) -> Row:
        """The problem and its canonical answer."""
        return Row(self.problem, self.answers[0] if self.answers else None)

    @property
    def identifying_fields(self) -> Mapping[str, Any]:
        """The identifying fields, without the solution: runs with and without solutions have equal problems."""
        return {"problem": self.problem, "answers": self.answers, **self.details}


class Located(Protocol):
    """An item with a problem and the location of its record."""

    @property
    def problem(self) -> Problem: ...

    @property
    def where(self) -> str: ...


T = TypeVar("T")
L = TypeVar("L", bound=Located)


def encode_content(problem: Problem) -> Hashable:
    """Return a value that is equal for problems with the same content."""
    return msgspec.json.encode(problem.data, order="deterministic")


def drop_repeats(
    questions: Iterable[L],
    content: Callable[[Problem], Hashable] = encode_content,
    repeated: Callable[[L, L], None] = lambda earlier, later: None,
) -> list[L]:
    """Return the questions without repeats of earlier ones. Raises DataError for an id that is used twice.

    repeated: called with the earlier question and each repeat of it.
    """
    places: dict[str, str] = {}
    first: dict[Hashable, L] = {}
    for question in questions:
        if (place := places.setdefault(question.problem.id, question.where)) != question.where:
            raise DataError(f"{question.where}: id '{question.problem.id}' is already used in {place}")
        earlier = first.setdefault(content(question.problem), question)
        if earlier is not question:
            repeated(earlier, question)
    return list(first.values())


def hash_content(content: object) -> str:
    """Return the SHA-256 of a run's problems, for its provenance."""
    return sha256(msgspec.json.encode(content)).hexdigest()


@dataclass(kw_only=True)
class BenchmarkConfig(TaskConfig):
    """The settings that all benchmarks have."""

    folder: ClassVar[str]
    """Name of the folder in $EVORUN_DATA that holds its files."""
    sources: ClassVar[Sequence[str]]
    simulator: ClassVar[type[TextSimulator]] = TextSimulator
    """The class of the simulated model."""
    sample_set: ClassVar[str]
    """A description of evorun's own small set, for the provenance."""

    source: str
    """auto: `data`, else the benchmark's folder in $EVORUN_DATA. hub: the hub data sets. sample: evorun's own small
    set."""
    data: str | None
    """Folder with the files, or a single file where one is enough (JSON lines or Parquet)."""
    limit: PositiveInt | None
    """Work on this many problems only: the first ones in the drawn order."""
    prompts: str | None
    """Folder of your own prompt files; each replaces the built-in one of its name (null: the built-in ones)."""
    shown_reasoning_chars: PositiveInt | None
    """Maximum characters of a candidate's text in later prompts, which show its beginning and end; null: no limit.
    Demonstrations are always shown whole."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of("task.source", self.source, self.sources)
        if self.source in ("hub", "sample") and self.data is not None:
            raise ConfigError(f"task.data: has no effect with task.source={self.source}; omit one of the two")

    # --- what a benchmark defines ---

    @abstractmethod
    def make_task(self) -> TextTask:
        """Return the task. Raises ConfigError for unusable prompt files."""

    def make_grader(self, task: Any, answers: Mapping[str, Sequence[str]]) -> Grader:
        """Return the grader, given the accepted answers by problem id. The default uses the task's own scores."""
        return GoldGrader(task, answers)

    def content(self, problem: Problem) -> Hashable:
        """Return a value that is equal for problems with the same content."""
        return encode_content(problem)

    # --- what all benchmarks share ---

    def place(self) -> Path | None:
        """Return the file or folder of the data; None where there is none."""
        return default_folder(self.folder) if self.data is None else Path(self.data).expanduser()

    def provenance(self, source: str, description: str, digest: str) -> Provenance:
        """Return the provenance of problems from files, or that of the sample set."""
        if self.source == "sample":
            source, description = "sample", self.sample_set
        return Provenance(source=source, description=description, digest=digest)

    def assemble(
        self, task: TextTask, selected: Sequence[Question], held_out: Sequence[Question], provenance: Provenance
    ) -> LoadedTask:
        """Return the task with the selected questions as problems and the held-out ones as demonstrations."""
        loaded = load_rows(
            task,
            [question.row for question in selected],
            validation=[question.row for question in held_out],
            provenance=provenance,
            grader=self.make_grader(
                task, {question.problem.id: question.answers for question in (*selected, *held_out)}
            ),
            simulator=self.simulator,
        )
        return replace(
            loaded, solutions={question.problem.id: question.solution for question in selected if question.solution}
        )
