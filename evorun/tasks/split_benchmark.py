"""Benchmarks with a train and a test split."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

from evorun.errors import ConfigError, DataError
from evorun.fields import NonNegativeInt, OneOf
from evorun.runs.streams import stream
from evorun.tasks.base import DrawHelp, LoadedTask, Provenance
from evorun.tasks.benchmark import BenchmarkConfig, Question, drop_repeats
from evorun.tasks.benchmark_files import (
    FORMATS,
    MissingFilesError,
    NotFoundError,
    Record,
    Source,
    download_records,
    read_sources,
)

SPLITS = ("train", "test")
SPLIT_HELP = DrawHelp(
    more_validation="raise task.validation_problems (they come from the train split, less what the run works on)",
    grade_held_out="set task.split=train to grade it",
    keys="task.split, task.train_problems, task.test_problems, task.draw_seed and task.limit",
)
"""Advice on the draw of a benchmark with two splits."""


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

    def load_training(self) -> LoadedTask:
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
            sources = [source for place in part.hub for source in self.download_sources(place)]
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

    def download_sources(self, place: str) -> list[Source]:
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
