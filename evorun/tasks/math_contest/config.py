"""Configuration of the contests: which problems train, which test, where they come from, and how answers are read."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from evorun.errors import ConfigError, DataError, at_least, one_of
from evorun.runs.streams import stream
from evorun.tasks.base import LoadedTask, Provenance, TaskConfig
from evorun.tasks.benchmark_files import MissingFilesError, default_folder
from evorun.tasks.math_contest import files
from evorun.tasks.math_contest.files import NotFoundError, Source
from evorun.tasks.math_contest.loading import loaded
from evorun.tasks.math_contest.records import Expected, Question, digest_of
from evorun.tasks.math_contest.task import MathContest

SOURCES = ("auto", "hub", "sample")

_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class SplitConfig:
    """A named set of problems, and where it is to be found."""

    name: str
    """As results show it."""
    files: list[str]
    """Patterns of the files that hold it in the folder `data`."""
    hub: list[str]
    """Hub data sets that hold it and nothing else: OWNER/NAME, or OWNER/NAME/PATTERN for some of its files."""
    years: list[int] | None
    """Take records of these years only, from `data`; null: of any."""
    contests: list[str] | None
    """Take records of these contests only, from `data`; null: of any."""
    size: int | None
    """Problems that it has in full; with fewer or more of them, results say that they are not on the set itself."""
    draw: int | None
    """Draw this many of its problems by `draw_seed`; null: all."""


@dataclass(kw_only=True)
class MathContestConfig(TaskConfig):
    """Contest problems with answers in a box: a train split and a test split, as E-SPL pairs them (section 4.1)."""

    task_class: ClassVar[type[MathContest]] = MathContest
    training_split = "train"

    split: str
    """train | test: which problems the run works on."""
    source: str
    """auto: `data`, else $EVORUN_DATA/math. hub: the splits' hub data sets. sample: evorun's own small set."""
    data: str | None
    """Folder with the splits' files, or a single file (JSON lines or Parquet) with the problems to work on."""
    train: SplitConfig
    test: SplitConfig
    answer: str
    """integer: answers are compared as integers. expression: by their value, by math-verify."""
    largest_answer: int | None
    """Largest integer that is an answer, the smallest being 0 (AIME: 999); null: any integer."""
    validation_problems: int
    """Problems of the train split that serve as demonstrations, where the run does not work on them."""
    limit: int | None
    """Work on this many problems only: the first ones in the drawn order."""
    prompts: str | None
    """Folder of your own prompt files; each replaces the built-in one of its name (null: the built-in ones)."""
    shown_reasoning_chars: int | None
    """As much of a candidate's text as a later prompt shows, its beginning and its end; null: all. Demonstrations show
    all of theirs."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("task.split", self.split, ("train", "test"))
        one_of("task.source", self.source, SOURCES)
        one_of("task.answer", self.answer, ("integer", "expression"))
        for key in ("largest_answer", "validation_problems"):
            at_least(f"task.{key}", getattr(self, key), 0)
        for key in ("limit", "shown_reasoning_chars"):
            at_least(f"task.{key}", getattr(self, key), 1)
        for split in ("train", "test"):
            at_least(f"task.{split}.draw", getattr(self, split).draw, 1)
        if self.answer == "expression" and self.largest_answer is not None:
            raise ConfigError("task.largest_answer: has no effect with task.answer=expression; leave it null")
        if self.source != "auto" and self.data is not None:
            raise ConfigError(f"task.data: has no effect with task.source={self.source}; leave one of the two out")

    def load(self) -> LoadedTask:
        """Read, check and draw the problems of the chosen split.

        Raises DataError for missing or malformed files and splits that are too small, ConfigError for prompt files.
        """
        task = self._task()
        found, place = self._questions(self.split)
        # The limit cuts what was drawn: demonstrations are apart from the whole draw, so a limit does not change them.
        drawn = self._drawn(self.split, found)
        selected = drawn[: self.limit]
        held_out: list[Question] = []
        if self.validation_problems:
            try:
                known = found if self.split == "train" else self._questions("train")[0][: self.train.draw]
                held_out = _apart(known, drawn)[: self.validation_problems]
            except NotFoundError as error:
                _log.warning("task=%s: no validation split: %s", self.name, error)
        return loaded(task, selected, held_out, self._provenance(self.split, place, len(found), selected))

    def training(self) -> LoadedTask:
        """Give the train split, less the problems that the test split has too.

        Raises ConfigError with task.split=train, DataError as `load` does and where no problem is left.
        """
        if self.split == "train":
            raise ConfigError(
                "task.split: expected test where weights are trained, got train: the train split is what is trained on"
            )
        # Training sets are collected from many sources and may hold test problems, which must not be trained on.
        tested = self._drawn("test", self._questions("test")[0])
        found, place = self._questions("train")
        selected = _apart(self._drawn("train", found), tested)
        if not selected:
            raise DataError(f"task.train: all problems of its files ({place}) are in the test split too; give others")
        return loaded(self._task(), selected, (), self._provenance("train", place, len(found), selected))

    def _task(self, **settings: Any) -> MathContest:
        return self.task_class(
            integers=self.answer == "integer",
            largest=self.largest_answer,
            prompts=self.prompts,
            shown_reasoning_chars=self.shown_reasoning_chars,
            **settings,
        )

    def _split(self, split: str) -> SplitConfig:
        return self.train if split == "train" else self.test

    def _questions(self, split: str) -> tuple[list[Question], str]:
        """Return all problems of a split, in drawn order, and where they were found."""
        sources, place = self._locate(split)
        questions, chosen = files.read(sources, self._expected(split)), self._split(split)
        # A folder's files may hold other years and contests; the hub data sets and the sample hold the split alone.
        by_field = (("year", chosen.years), ("contest", chosen.contests)) if self.source == "auto" else ()
        for key, wanted in by_field:
            if wanted is None:
                continue
            without = [question for question in questions if getattr(question, key) is None]
            if without:
                raise DataError(
                    f"task.{split}.{key}s: expected the field {key} in every record, '{without[0].problem.id}' has "
                    f"none; task.{split}.{key}s=null takes all records"
                )
            questions = [question for question in questions if getattr(question, key) in wanted]
        if not questions:
            raise NotFoundError(
                f"task.{split}: the files ({place}) hold none of its problems; check years and contests"
            )
        # The whole split is shuffled, then cut: a smaller draw is a prefix of a larger one.
        order = stream(self.draw_seed, "draw", self.name, split).permutation(len(questions))
        return [questions[i] for i in order], place

    def _expected(self, split: str) -> Expected:
        stratum = self._split(split).name or split
        return Expected(integers=self.answer == "integer", largest=self.largest_answer, stratum=stratum)

    def _locate(self, split: str) -> tuple[list[Source], str]:
        """Return the files to read and how results name their place."""
        chosen = self._split(split)
        if self.source == "sample":
            kinds = ["integer"] if self.answer == "integer" else ["integer", "expression"]
            return [Source(f"sample_{kind}", [files.SAMPLE / f"{split}_{kind}.jsonl"]) for kind in kinds], "sample"
        if self.source == "hub":
            if not chosen.hub:
                raise ConfigError(f"task.{split}.hub: expected hub data sets with task.source=hub, got none")
            return [files.download(place) for place in chosen.hub], f"hub: {', '.join(chosen.hub)}"
        folder = Path(self.data).expanduser() if self.data is not None else default_folder(files.FOLDER)
        if folder is None:
            patterns = " or ".join(chosen.files)
            raise MissingFilesError(
                f"the problems of task={self.name}",
                f"give a folder with {patterns} as task.data=FOLDER or $EVORUN_DATA/math, or fetch them with "
                "task.source=hub",
                f"{patterns} in $EVORUN_DATA/math; or task.source=hub",
            )
        # A single file is whatever split the run works on: it says nothing of another.
        if folder.is_file():
            if split != self.split:
                raise NotFoundError(f"task.data: the file holds the {self.split} split only; for both, give a folder")
            return [Source(folder.stem, [folder])], f"file {folder.name}"
        return files.find(folder, chosen.files), f"folder {folder.resolve().name}"

    def _drawn(self, split: str, questions: list[Question]) -> list[Question]:
        size = None if self.source == "sample" else self._split(split).draw
        if size is not None and size > len(questions):
            raise DataError(
                f"{self.name}: the {split} split holds {len(questions)} problems; expected at least {size} to draw "
                f"from. Lower task.{split}.draw, or set it to null to take them all"
            )
        return questions[:size]

    def _provenance(self, split: str, place: str, found: int, selected: list[Question]) -> Provenance:
        chosen = self._split(split)
        digest = digest_of(selected)
        if self.source == "sample":
            description = "evorun's own sample set of generated contest problems, not a contest's own"
            return Provenance(source="sample", description=description, digest=digest)
        if found == chosen.size:
            description = f"{chosen.name}, all {found} problems ({place})"
            return Provenance(source="benchmark", description=description, digest=digest)
        description = f"{found} problems for {chosen.name}"
        description += f", which has {chosen.size} ({place})" if chosen.size else f" ({place})"
        return Provenance(source="stand_in", description=description, digest=digest)


def _apart(questions: Sequence[Question], taken: Sequence[Question]) -> list[Question]:
    """Return the questions that share neither text nor id with those that are taken."""
    known = {question.problem.data["problem"] for question in taken} | {question.problem.id for question in taken}
    return [q for q in questions if known.isdisjoint((q.problem.data["problem"], q.problem.id))]
