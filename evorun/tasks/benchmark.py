"""The loader of benchmarks: where their files are, which problems are in which split or stratum, and the draw.

A benchmark states its files and hub data sets, how a record is read, and the task that its problems belong to. One with
a train and a test split is a `SplitBenchmark`; one that is drawn stratum by stratum is a `StratifiedBenchmark`.
"""

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from evorun.errors import ConfigError, DataError, at_least, one_of
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
    """A problem together with its accepted answers; split before a method sees the problem."""

    problem: Problem
    answers: tuple[str, ...] = ()
    """The first is the one to name; none where nobody knows a right answer."""
    details: Mapping[str, Any] = {}
    """What else identifies it or selects it, by the record's fields."""
    solution: str = ""
    """The worked solution, the answer in it."""
    where: str = ""
    """`FILE:LINE` of its record, for errors."""

    @property
    def row(self) -> Row:
        """The problem and the answer to name."""
        return self.problem, self.answers[0] if self.answers else None

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that tells it from others, by name; with and without solutions, a run works on the same problems."""
        return {"problem": self.problem, "answers": self.answers, **self.details}


class Located(Protocol):
    """A problem, with or without its answers, and the place of its record."""

    @property
    def problem(self) -> Problem: ...

    @property
    def where(self) -> str: ...


T = TypeVar("T")
L = TypeVar("L", bound=Located)


def content_of(problem: Problem) -> Hashable:
    """Return what two problems have in common that ask the same."""
    return msgspec.json.encode(problem.data, order="deterministic")


def distinct(
    questions: Iterable[L],
    content: Callable[[Problem], Hashable] = content_of,
    repeated: Callable[[L, L], None] = lambda earlier, later: None,
) -> list[L]:
    """Return the questions without those that ask what an earlier one does. Raises DataError for an id used twice.

    repeated: called with the earlier question and each that is left out for it.
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


def digest_of(content: object) -> str:
    """Return the SHA-256 over what a run works on, for its provenance."""
    return sha256(msgspec.json.encode(content)).hexdigest()


@dataclass(kw_only=True)
class BenchmarkConfig(TaskConfig):
    """The settings that all benchmarks have."""

    folder: ClassVar[str]
    """Name of the folder in $EVORUN_DATA that holds its files."""
    sources: ClassVar[Sequence[str]]
    simulator: ClassVar[type[TextSimulator]] = TextSimulator
    """The model of simulated runs."""
    sample_set: ClassVar[str]
    """The provenance of evorun's own small set, in words."""

    source: str
    """auto: `data`, else the benchmark's folder in $EVORUN_DATA. hub: the hub data sets. sample: evorun's own small
    set."""
    data: str | None
    """Folder with the files, or a single file where one is enough (JSON lines or Parquet)."""
    limit: int | None
    """Work on this many problems only: the first ones in the drawn order."""
    prompts: str | None
    """Folder of your own prompt files; each replaces the built-in one of its name (null: the built-in ones)."""
    shown_reasoning_chars: int | None
    """As much of a candidate's text as a later prompt shows, its beginning and its end; null: all. Demonstrations show
    all of theirs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("task.source", self.source, self.sources)
        self.check_at_least(1, "limit", "shown_reasoning_chars")
        if self.source in ("hub", "sample") and self.data is not None:
            raise ConfigError(f"task.data: has no effect with task.source={self.source}; leave one of the two out")

    def check_at_least(self, minimum: float, *keys: str) -> None:
        """Refuse values of these keys below `minimum`; null passes."""
        for key in keys:
            at_least(f"task.{key}", getattr(self, key), minimum)

    # --- what a benchmark states ---

    @abstractmethod
    def make_task(self) -> TextTask:
        """Return the task. Raises ConfigError for prompt files that cannot be used."""

    def make_grader(self, task: Any, answers: Mapping[str, Sequence[str]]) -> Grader:
        """Return the holder of the accepted answers, by problem id. The default grades as the task scores."""
        return GoldGrader(task, answers)

    def content(self, problem: Problem) -> Hashable:
        """Return what two problems have in common that ask the same."""
        return content_of(problem)

    # --- what all have in common ---

    def place(self) -> Path | None:
        """Return where the files are to be read, or looked for; None: nowhere."""
        return default_folder(self.folder) if self.data is None else Path(self.data).expanduser()

    def provenance(self, source: str, description: str, digest: str) -> Provenance:
        """Return the provenance of problems from files, or that of the sample set."""
        if self.source == "sample":
            source, description = "sample", self.sample_set
        return Provenance(source=source, description=description, digest=digest)

    def loaded(
        self, task: TextTask, selected: Sequence[Question], held_out: Sequence[Question], provenance: Provenance
    ) -> LoadedTask:
        """Return the task with the selected questions to work on and the held-out ones as demonstrations."""
        loaded = load_rows(
            task,
            [question.row for question in selected],
            validation=[question.row for question in held_out],
            provenance=provenance,
            grader=self.make_grader(task, {one.problem.id: one.answers for one in (*selected, *held_out)}),
            simulator=self.simulator,
        )
        return replace(loaded, solutions={one.problem.id: one.solution for one in selected if one.solution})


# --- benchmarks with a train and a test split ---


class Part(NamedTuple):
    """A split or a stratum, and where its problems are to be found."""

    name: str
    """As errors show it."""
    files: Sequence[str]
    """Patterns of its files in the folder."""
    hub: Sequence[str]
    """Hub data sets: OWNER/NAME, or OWNER/NAME/PATTERN for some of their files."""
    files_key: str
    """The setting of `files`."""
    hub_key: str


class Found(NamedTuple):
    """The problems of a split's files, before any is drawn."""

    split: str
    questions: list[Question]
    records: int
    """In the files, those too that were left out."""
    place: str
    """As results name it."""


@dataclass(kw_only=True)
class SplitBenchmark(BenchmarkConfig):
    """A benchmark with a train and a test split, which may be drawn from the same files.

    The train split never holds a problem of the test split.
    """

    training_split = "train"
    sources = ("auto", "hub", "sample")
    wanted: ClassVar[str] = "problems"
    given_as: ClassVar[str] = "PATH"
    """FOLDER where a single file is not enough."""

    split: str
    """train | test: which problems the run works on."""
    validation_problems: int
    """Problems of the train split that serve as demonstrations, where the run does not work on them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("task.split", self.split, SPLITS)
        self.check_at_least(0, "validation_problems")

    # --- what a benchmark states ---

    @abstractmethod
    def part(self, name: str) -> Part:
        """Return where a split is to be found."""

    @abstractmethod
    def sample_sources(self, split: str) -> list[Source]:
        """Return the files of a split of evorun's own small set."""

    @abstractmethod
    def size(self, split: str) -> tuple[str, int | None]:
        """Return the setting of a split's size, and the problems to draw; None: all."""

    @abstractmethod
    def read(self, record: Record, split: str) -> Question | None:
        """Return a record's question; None: it is left out. Raises DataError, beginning with the record's place."""

    @abstractmethod
    def describe(self, found: Found, selected: Sequence[Question]) -> Provenance:
        """Return the provenance of the problems that were drawn from a split."""

    # --- loading ---

    def load(self) -> LoadedTask:
        """Read and draw the problems of the chosen split.

        Raises DataError for missing or malformed files and splits that are too small, ConfigError for prompt files.
        """
        found = self.find("test")
        tested = self.draw(found, found.questions)
        if self.split == "train":
            found, trained = self._train(tested)
            return self._loaded(found, trained[: self.limit])
        held_out = self._train(tested)[1] if self.validation_problems else []
        # Where some have a right answer, only those can be demonstrations.
        labelled = [question for question in held_out if question.answers] or held_out
        return self._loaded(found, tested[: self.limit], labelled[: self.validation_problems])

    def training(self) -> LoadedTask:
        """Give the train split. Raises ConfigError with task.split=train, and DataError as `load` does."""
        refuse_training_on(self.split)
        found = self.find("test")
        return self._loaded(*self._train(self.draw(found, found.questions)))

    def _loaded(self, found: Found, selected: Sequence[Question], held_out: Sequence[Question] = ()) -> LoadedTask:
        return self.loaded(self.make_task(), selected, held_out, self.describe(found, selected))

    def _train(self, tested: Sequence[Question]) -> tuple[Found, list[Question]]:
        found = self.find("train")
        apart = self.apart(found.questions, tested)
        if not apart:
            raise DataError(
                f"task={self.name}: expected problems of the train split ({found.place}) that are not in the test "
                f"split; give other files, lower {self.size('test')[0]}, or set task.validation_problems=0 to do "
                "without"
            )
        return found, self.draw(found, apart)

    def find(self, split: str) -> Found:
        """Read all problems of a split; one that is repeated is kept where it comes first."""
        sources, place = self.locate(split)
        count = 0

        def questions() -> Iterator[Question]:
            nonlocal count
            for count, record in enumerate(read_sources(sources), 1):  # noqa: B007 - it counts for the outer function
                if (question := self.read(record, split)) is not None:
                    yield question

        found = self.unrepeated(questions())
        if not found:
            raise NotFoundError(
                f"task={self.name}: expected problems of the {split} split, the files ({place}) hold none"
            )
        return Found(split, found, count, place)

    def unrepeated(self, questions: Iterable[Question]) -> list[Question]:
        """Return the questions without those that ask what an earlier one does."""
        return distinct(questions, self.content)

    def apart(self, questions: Sequence[Question], taken: Sequence[Question]) -> list[Question]:
        """Return the questions that share neither content nor id with those that are taken."""
        known = {one.problem.id for one in taken} | {self.content(one.problem) for one in taken}
        return [one for one in questions if known.isdisjoint((one.problem.id, self.content(one.problem)))]

    def shuffled(self, split: str, questions: Sequence[Question]) -> list[Question]:
        """Return the questions in drawn order."""
        order = stream(self.draw_seed, "draw", self.name, split).permutation(len(questions))
        return [questions[index] for index in order]

    def draw(self, found: Found, questions: Sequence[Question]) -> list[Question]:
        """Draw as many problems as the split's size says; the sample set has its own size."""
        key, size = self.size(found.split)
        size = None if self.source == "sample" else size
        if size is not None and size > len(questions):
            raise DataError(
                f"task={self.name}: the {found.split} split holds {len(questions)} problems; expected at least {size} "
                f"to draw from. Lower {key}, or set it to null to take them all"
            )
        # Shuffled whole, then cut: a smaller draw is the beginning of a larger one.
        return self.shuffled(found.split, questions)[:size]

    def locate(self, split: str) -> tuple[list[Source], str]:
        """Return a split's files and how results name their place."""
        return (self.sample_sources(split), "sample") if self.source == "sample" else self.search(self.part(split))

    def search(self, part: Part) -> tuple[list[Source], str]:
        """Return the files of a part, from the hub or the folder, and how results name their place."""
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
        """Fetch the files of a hub data set, which are one source."""
        paths = download_records(place)
        return [Source(place.split("/")[1], paths)]

    def missing(self, files: str, *, on_hub: bool = True) -> MissingFilesError:
        """Return the error for files that are nowhere. files: the expected ones, in words."""
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
        raise ConfigError(
            "task.split: expected test where weights are trained, got train: the train split is what is trained on"
        )


# --- benchmarks that are drawn stratum by stratum ---


@dataclass(kw_only=True)
class StratifiedBenchmark(BenchmarkConfig):
    """A benchmark of several strata, of each of which as many problems are drawn.

    `source=benchmark` and `source=stand_in` read the same places as `auto`, and you say what the files are; `auto`
    falls back on `hub_id`.
    """

    sources = ("auto", "benchmark", "stand_in", "sample", "hub")
    all_strata: ClassVar[Sequence[str]]
    called: ClassVar[str]
    """What the strata are."""
    sample: ClassVar[Path]
    """The small set's place."""
    hub_files: ClassVar[Sequence[str]]
    """Patterns of the files that are fetched from the hub."""
    known_hub_id: ClassVar[str | None] = None
    missing: ClassVar[tuple[str, str, str]]
    """The arguments of `MissingFilesError`."""
    own_files: ClassVar[str]
    """The provenance of the benchmark's own files, and of others in their layout, in words."""
    other_files: ClassVar[str]

    hub_id: str | None
    """Hub data set that holds the benchmark's files."""
    strata: list[str]
    """Strata to draw from; results are broken down by them."""
    per_stratum: int | None
    """Problems of each stratum; null: all that there are. A smaller stratum is an error, except that the sample set
    gives what it has."""
    reasoning_max_chars: int
    """Longest reasoning that the JSON schema allows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_at_least(1, "per_stratum", "reasoning_max_chars")
        for stratum in self.strata:
            one_of("task.strata", stratum, self.all_strata)
        if not self.strata or len(set(self.strata)) < len(self.strata):
            raise ConfigError(f"task.strata: expected distinct {self.called}, at least one, got {list(self.strata)}")
        if self.source == "hub" and self.hub_id is None:
            known = f", such as {self.known_hub_id}" if self.known_hub_id else ""
            raise ConfigError(f"task.hub_id: expected a hub data set with task.source=hub{known}, got null")

    def locate(self) -> tuple[Path, str]:
        """Return the place to read and how results name it."""
        if self.source == "sample":
            return self.sample, "sample"
        if self.source != "hub" and (place := self.place()) is not None:
            return place, f"{'folder' if place.is_dir() else 'file'} {place.resolve().name}"
        if self.hub_id is not None:
            return download(self.hub_id, self.hub_files, "task.hub_id"), f"hub data set {self.hub_id}"
        raise MissingFilesError(*self.missing)

    def draw(self, strata: Mapping[str, Sequence[T]], held_out: int) -> "Draw[T]":
        """Draw the problems to work on, up to the limit, and the held-out ones."""
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
        """Return the provenance. is_own: the files look like the benchmark's own; the user may have said otherwise."""
        source = ("benchmark" if is_own else "stand_in") if self.source in ("auto", "hub") else self.source
        description = self.own_files if source == "benchmark" else self.other_files
        return self.provenance(source, f"{description} ({place})", digest)


class Draw(NamedTuple, Generic[T]):
    """A stratified draw; both parts go round the strata in turn, so that every prefix is as balanced as it can be."""

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

    Each stratum is shuffled by its own random stream (`seed`, `name`, stratum): the selection comes from the front
    and the held-out items from the back. So a smaller `per_stratum` selects a subset of what a larger one does and
    leaves the held-out items alone, and one stratum's files do not disturb another's draw.

    Raises DataError when a stratum is too small, naming it; with `allow_fewer` the selection takes what is there once
    the held-out items are set aside (at least one).
    """
    selected, reserved = [], []
    for stratum, items in strata.items():
        if not items:
            raise DataError(
                f"{name}: stratum '{stratum}' holds no problems: the files have none of it, or the task's filters "
                "leave none; check task.data and the filters, or take it out of task.strata"
            )
        size = len(items) - held_out
        least = 1 if allow_fewer or per_stratum is None else per_stratum
        if size < least:
            remedies = ["task.per_stratum"] * (least > 1) + ["task.validation_per_stratum"] * (held_out > 0)
            raise DataError(
                f"{name}: stratum '{stratum}' holds {len(items)} problems; expected at least {least} to work on and "
                f"{held_out} held out. Lower {' or '.join(remedies)}"
            )
        # A stream for each stratum: more files in one stratum leave the draw of the others as it is.
        order = stream(seed, "draw", name, stratum).permutation(len(items))
        shuffled = [items[i] for i in order]
        selected.append(shuffled[: size if per_stratum is None else min(per_stratum, size)])
        reserved.append(shuffled[size:])
    return Draw(_round_robin(selected), _round_robin(reserved))


def _round_robin(groups: Sequence[Sequence[T]]) -> list[T]:
    absent = object()
    turns = zip_longest(*groups, fillvalue=absent)
    return [item for turn in turns for item in turn if item is not absent]  # type: ignore[misc]
