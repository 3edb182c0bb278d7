"""The loader of benchmarks: it locates their files, splits or stratifies problems, and draws them.

A benchmark defines its files and hub data sets, how to read a record, and its task. A benchmark with a train and a test
split is a `SplitBenchmark`; one that is drawn stratum by stratum is a `StratifiedBenchmark`.
"""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from evorun.errors import ConfigError, DataError
from evorun.fields import NonNegativeInt, OneOf, PositiveInt, one_of
from evorun.runs.streams import stream
from evorun.tasks.base import DrawHelp, Grader, LoadedTask, Problem, Provenance, TaskConfig
from evorun.tasks.benchmark_files import (
    FORMATS,
    MissingFilesError,
    NotFoundError,
    Record,
    Source,
    default_folder,
    download,
    download_records,
    read_sources,
)
from evorun.tasks.loading import GoldGrader, Row, load_rows
from evorun.tasks.simulator import TextSimulator
from evorun.tasks.text_task import TextTask

SPLITS = ("train", "test")
SPLIT_HELP = DrawHelp(
    more_validation="raise task.validation_problems (they come from the train split, less what the run works on)",
    grade_held_out="set task.split=train to grade it",
    keys="task.split, task.train_problems, task.test_problems, task.draw_seed and task.limit",
)
"""Advice on the draw of a benchmark with two splits."""


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
        return self.problem, self.answers[0] if self.answers else None

    @property
    def identity(self) -> Mapping[str, Any]:
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
        one_of("task.source", self.source, self.sources)
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


# --- benchmarks with a train and a test split ---


class Part(NamedTuple):
    """A split or a stratum, and the location of its problems."""

    name: str
    """Its name in errors."""
    files: Sequence[str]
    """Glob patterns of its files in the folder."""
    hub: Sequence[str]
    """Hub data sets: OWNER/NAME, or OWNER/NAME/PATTERN for some of their files."""
    files_key: str
    """The key that sets `files`; `hub_key` sets `hub`."""
    hub_key: str


class SplitData(NamedTuple):
    """The problems in a split's files, before the draw."""

    split: str
    questions: list[Question]
    records: int
    """Number of records in the files, including those left out."""
    place: str
    """The name of the files' location in results."""


@dataclass(kw_only=True)
class SplitBenchmark(BenchmarkConfig):
    """A benchmark with a train and a test split, which may be drawn from the same files.

    The train split never holds a problem of the test split.
    """

    training_split = "train"
    sources = ("auto", "hub", "sample")
    wanted: ClassVar[str] = "problems"
    given_as: ClassVar[str] = "PATH"
    """FOLDER for benchmarks that need several files."""

    split: Annotated[str, OneOf(SPLITS)]
    """train | test: which problems the run works on."""
    validation_problems: NonNegativeInt
    """Number of problems of the train split that serve as demonstrations, unless the run works on that split."""

    # --- what a benchmark defines ---

    @abstractmethod
    def part(self, name: str) -> Part:
        """Return the location of a split."""

    @abstractmethod
    def sample_sources(self, split: str) -> list[Source]:
        """Return the files of a split in evorun's own small set."""

    @abstractmethod
    def size(self, split: str) -> tuple[str, int | None]:
        """Return the key that sets a split's size, and the number of problems to draw (None: all)."""

    @abstractmethod
    def read(self, record: Record, split: str) -> Question | None:
        """Return a record's question, or None to leave it out. Raises DataError naming the record's location."""

    @abstractmethod
    def describe(self, data: SplitData, selected: Sequence[Question]) -> Provenance:
        """Return the provenance of the problems drawn from a split."""

    # --- loading ---

    def load(self) -> LoadedTask:
        """Read and draw the problems of the chosen split.

        Raises DataError for missing or malformed files and splits that are too small, ConfigError for prompt files.
        """
        data = self.find("test")
        tested = self.draw(data, data.questions)
        if self.split == "train":
            data, trained = self._train(tested)
            return self._loaded(data, trained[: self.limit])
        held_out = self._train(tested)[1] if self.validation_problems else []
        # Only problems with a right answer can be demonstrations, where there are any.
        labelled = [question for question in held_out if question.answers] or held_out
        return self._loaded(data, tested[: self.limit], labelled[: self.validation_problems])

    def training(self) -> LoadedTask:
        """Return the train split. Raises ConfigError with task.split=train, and DataError as `load` does."""
        refuse_training_on(self.split)
        data = self.find("test")
        return self._loaded(*self._train(self.draw(data, data.questions)))

    def _loaded(self, data: SplitData, selected: Sequence[Question], held_out: Sequence[Question] = ()) -> LoadedTask:
        return self.assemble(self.make_task(), selected, held_out, self.describe(data, selected))

    def _train(self, tested: Sequence[Question]) -> tuple[SplitData, list[Question]]:
        data = self.find("train")
        apart = self.apart(data.questions, tested)
        if not apart:
            raise DataError(
                f"task={self.name}: expected problems of the train split ({data.place}) that are not in the test "
                f"split; give other files, lower {self.size('test')[0]}, or set task.validation_problems=0 to do "
                "without"
            )
        return data, self.draw(data, apart)

    def find(self, split: str) -> SplitData:
        """Read all problems of a split, without repeats of earlier ones."""
        sources, place = self.locate(split)
        count = 0

        def questions() -> Iterator[Question]:
            nonlocal count
            for count, record in enumerate(read_sources(sources), 1):  # noqa: B007 - the outer function reads it
                if (question := self.read(record, split)) is not None:
                    yield question

        distinct_questions = self.unrepeated(questions())
        if not distinct_questions:
            raise NotFoundError(
                f"task={self.name}: expected problems of the {split} split, the files ({place}) hold none"
            )
        return SplitData(split, distinct_questions, count, place)

    def unrepeated(self, questions: Iterable[Question]) -> list[Question]:
        """Return the questions without repeats of earlier ones."""
        return drop_repeats(questions, self.content)

    def apart(self, questions: Sequence[Question], taken: Sequence[Question]) -> list[Question]:
        """Return the questions that share neither content nor id with those in `taken`."""
        problems = [question.problem for question in taken]
        known = {problem.id for problem in problems} | {self.content(problem) for problem in problems}
        return [
            question
            for question in questions
            if known.isdisjoint((question.problem.id, self.content(question.problem)))
        ]

    def shuffled(self, split: str, questions: Sequence[Question]) -> list[Question]:
        """Return the questions in a random order, given by `draw_seed`."""
        order = stream(self.draw_seed, "draw", self.name, split).permutation(len(questions))
        return [questions[index] for index in order]

    def draw(self, data: SplitData, questions: Sequence[Question]) -> list[Question]:
        """Draw as many problems as the split's size says; the sample set has its own size."""
        key, size = self.size(data.split)
        size = None if self.source == "sample" else size
        if size is not None and size > len(questions):
            raise DataError(
                f"task={self.name}: the {data.split} split holds {len(questions)} problems; expected at least {size} "
                f"to draw from. Lower {key}, or set it to null to use all"
            )
        # Shuffled before the cut, so that a smaller draw is the beginning of a larger one.
        return self.shuffled(data.split, questions)[:size]

    def locate(self, split: str) -> tuple[list[Source], str]:
        """Return a split's files and the name of their location in results."""
        return (self.sample_sources(split), "sample") if self.source == "sample" else self.search(self.part(split))

    def search(self, part: Part) -> tuple[list[Source], str]:
        """Return a part's files, from the hub or the folder, and the name of their location in results."""
        if self.source == "hub":
            if not part.hub:
                raise ConfigError(
                    f"{part.hub_key}: expected hub data sets with task.source=hub, got none; give a folder with the "
                    f"files of {part.name}, as task.data=PATH"
                )
            sources = [source for place in part.hub for source in self.from_hub(place)]
            return sources, f"hub: {', '.join(part.hub)}"
        place = self.place()
        patterns = " or ".join(part.files)
        if place is None:
            raise self.missing(patterns, on_hub=bool(part.hub))
        if place.is_file():
            return [Source(place.stem, [place])], f"file {place.name}"
        if not place.is_dir():
            raise NotFoundError(f"task.data: expected a folder, or a file in {' or '.join(FORMATS)}, got '{place}'")
        paths = sorted({path for pattern in part.files for path in place.glob(pattern) if path.is_file()})
        if not paths:
            raise NotFoundError(f"{part.files_key}: expected {patterns} in '{place}', found none")
        return [Source(path.stem, [path]) for path in paths], f"folder {place.resolve().name}"

    def from_hub(self, place: str) -> list[Source]:
        """Fetch the files of a hub data set, which form one source."""
        paths = download_records(place)
        return [Source(place.split("/")[1], paths)]

    def missing(self, files: str, *, on_hub: bool = True) -> MissingFilesError:
        """Return the error for missing files. files: a description of the expected ones."""
        a_file = ", or a file," if self.given_as == "PATH" else ""
        how = f"give a folder with {files}{a_file} as task.data={self.given_as} or $EVORUN_DATA/{self.folder}"
        wanted = f"{files} in $EVORUN_DATA/{self.folder}"
        if on_hub:
            how += f", or fetch {'them' if self.wanted == 'problems' else self.wanted} with task.source=hub"
            wanted += "; or task.source=hub"
        return MissingFilesError(f"the {self.wanted} of task={self.name}", how, wanted)


def refuse_training_on(split: str) -> None:
    """Raise ConfigError where a run works on the train split already."""
    if split == "train":
        raise ConfigError("task.split: expected test for a run that trains, got train: training uses the train split")


# --- benchmarks that are drawn stratum by stratum ---


@dataclass(kw_only=True)
class StratifiedBenchmark(BenchmarkConfig):
    """A benchmark of several strata, with the same number of problems drawn from each.

    `source=benchmark` and `source=stand_in` read the same locations as `auto`, but the user states the kind of the
    files; `auto` falls back on `hub_id`.
    """

    sources = ("auto", "benchmark", "stand_in", "sample", "hub")
    all_strata: ClassVar[Sequence[str]]
    called: ClassVar[str]
    """The name of the strata in errors (subjects, levels)."""
    sample: ClassVar[Path]
    """The location of evorun's own small set."""
    hub_files: ClassVar[Sequence[str]]
    """Glob patterns of the files to fetch from the hub."""
    known_hub_id: ClassVar[str | None] = None
    missing: ClassVar[tuple[str, str, str]]
    """The arguments of `MissingFilesError`."""
    own_files: ClassVar[str]
    """A description of the benchmark's own files for the provenance; `other_files`: of other files in their layout."""
    other_files: ClassVar[str]

    hub_id: str | None
    """Hub data set that holds the benchmark's files."""
    strata: list[str]
    """Strata to draw from; results are broken down by them."""
    per_stratum: PositiveInt | None
    """Problems per stratum; null: all. A stratum with fewer problems is an error, except in the sample set."""
    reasoning_max_chars: PositiveInt
    """Maximum length of the reasoning in the JSON schema."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for stratum in self.strata:
            one_of("task.strata", stratum, self.all_strata)
        if not self.strata or len(set(self.strata)) < len(self.strata):
            raise ConfigError(f"task.strata: expected distinct {self.called}, at least one, got {list(self.strata)}")
        if self.source == "hub" and self.hub_id is None:
            known = f", such as {self.known_hub_id}" if self.known_hub_id else ""
            raise ConfigError(f"task.hub_id: expected a hub data set with task.source=hub{known}, got null")

    def locate(self) -> tuple[Path, str]:
        """Return the location to read, and its name in results."""
        if self.source == "sample":
            return self.sample, "sample"
        if self.source != "hub" and (place := self.place()) is not None:
            return place, f"{'folder' if place.is_dir() else 'file'} {place.resolve().name}"
        if self.hub_id is not None:
            return download(self.hub_id, self.hub_files, "task.hub_id"), f"hub data set {self.hub_id}"
        raise MissingFilesError(*self.missing)

    def draw(self, strata: Mapping[str, Sequence[T]], held_out: int) -> "Draw[T]":
        """Draw the problems, up to the limit, and the held-out ones."""
        drawn = stratified_draw(
            strata,
            per_stratum=self.per_stratum,
            held_out=held_out,
            seed=self.draw_seed,
            name=self.name,
            allow_fewer=self.source == "sample",
        )
        return Draw(drawn.selected[: self.limit], drawn.held_out)

    def describe(self, is_own: bool, place: str, digest: str) -> Provenance:
        """Return the provenance. is_own: the files look like the benchmark's own, unless `source` says otherwise."""
        source = ("benchmark" if is_own else "stand_in") if self.source in ("auto", "hub") else self.source
        description = self.own_files if source == "benchmark" else self.other_files
        return self.provenance(source, f"{description} ({place})", digest)


class Draw(NamedTuple, Generic[T]):
    """A stratified draw; both lists cycle through the strata, so that every prefix is as balanced as possible."""

    selected: list[T]
    held_out: list[T]


def stratified_draw(
    strata: Mapping[str, Sequence[T]],
    *,
    per_stratum: int | None,
    held_out: int,
    seed: int,
    name: str,
    allow_fewer: bool = False,
) -> Draw[T]:
    """Draw `per_stratum` items of each stratum (None: all) to work on and `held_out` others, disjoint from them.

    Each stratum is shuffled by its own random stream (`seed`, `name`, stratum). The selection comes from the front, the
    held-out items from the back. So a smaller `per_stratum` selects a subset of a larger one and keeps the held-out
    items, and one stratum's files do not affect another's draw.

    Raises DataError naming a stratum that is too small. With `allow_fewer`, the selection takes at least one of the
    items left after the held-out ones.
    """
    selected, reserved = [], []
    for stratum, items in strata.items():
        if not items:
            raise DataError(
                f"{name}: stratum '{stratum}' holds no problems: the files have none, or the task's filters leave "
                "none; check task.data and the filters, or remove it from task.strata"
            )
        size = len(items) - held_out
        min_size = 1 if allow_fewer or per_stratum is None else per_stratum
        if size < min_size:
            remedies = ["task.per_stratum"] * (min_size > 1) + ["task.validation_per_stratum"] * (held_out > 0)
            raise DataError(
                f"{name}: stratum '{stratum}' holds {len(items)} problems; expected at least {min_size} to work on and "
                f"{held_out} held out. Lower {' or '.join(remedies)}"
            )
        # A stream per stratum: more files in one stratum do not change the draw of the others.
        order = stream(seed, "draw", name, stratum).permutation(len(items))
        shuffled = [items[i] for i in order]
        selected.append(shuffled[: size if per_stratum is None else min(per_stratum, size)])
        reserved.append(shuffled[size:])
    return Draw(_round_robin(selected), _round_robin(reserved))


def _round_robin(groups: Sequence[Sequence[T]]) -> list[T]:
    absent = object()
    turns = zip_longest(*groups, fillvalue=absent)
    return [item for turn in turns for item in turn if item is not absent]  # type: ignore[misc]
