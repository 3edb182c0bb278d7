"""Contest problems: the fields of a record, their alternative names, and the two splits."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from evorun.errors import ConfigError, DataError
from evorun.fields import NonNegativeInt, OneOf, PositiveInt, require_stated_bounds
from evorun.tasks.base import Grader, LoadedTask, Problem, Provenance
from evorun.tasks.benchmark import Question, drop_repeats, hash_content
from evorun.tasks.benchmark_files import NotFoundError, Record, Source
from evorun.tasks.boxes import last_boxed
from evorun.tasks.math_contest.math_contest import ContestGrader, ContestSimulator, MathContest
from evorun.tasks.math_contest.reading import read_integer
from evorun.tasks.split_benchmark import SPLITS, Part, SplitBenchmark, SplitData, refuse_training_on

TEXTS = ("problem", "question", "prompt")
"""Fields that may hold the problem's text; the first present field counts (`prompt`: DAPO's processed set)."""
IDS = ("id", "unique_id")
"""Fields that may hold the record's own id (`unique_id`: MATH-500)."""
SAMPLE = Path(__file__).parent / "sample"

_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class SplitConfig:
    """A named set of problems, and where to find it."""

    name: str
    """As results show it."""
    files: list[str]
    """Patterns of the files that hold it in the folder `data`."""
    hub: list[str]
    """Hub data sets that hold only this split: OWNER/NAME, or OWNER/NAME/PATTERN for some of its files."""
    years: list[int] | None
    """Take records of these years only, from `data`; null: of any."""
    contests: list[str] | None
    """Take records of these contests only, from `data`; null: of any."""
    size: int | None
    """Problems in the full set; with any other number, results say that they are not on the set itself."""
    draw: PositiveInt | None
    """Draw this many of its problems by `draw_seed`; null: all."""


@dataclass(kw_only=True)
class MathContestConfig(SplitBenchmark):
    """Contest problems with answers in a box: a train split and a test split, as E-SPL pairs them (section 4.1)."""

    task_class: ClassVar[type[MathContest]] = MathContest
    simulator = ContestSimulator
    folder = "math"
    given_as = "FOLDER"
    sample_set = "evorun's own sample set of generated contest problems, not a contest's own"

    train: SplitConfig
    test: SplitConfig
    answer: Annotated[str, OneOf(("integer", "expression"))]
    """integer: answers are compared as integers. expression: by their value, by math-verify."""
    largest_answer: NonNegativeInt | None
    """Largest integer that can be an answer; the smallest is 0 (AIME: 999). null: any integer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for split in SPLITS:
            require_stated_bounds(self._split(split), f"task.{split}")
        if self.answer == "expression" and self.largest_answer is not None:
            raise ConfigError("task.largest_answer: has no effect with task.answer=expression; leave it null")

    # --- for the loader ---

    def make_task(self, **settings: Any) -> MathContest:
        return self.task_class(
            integers=self.answer == "integer",
            largest=self.largest_answer,
            prompts=self.prompts,
            shown_reasoning_chars=self.shown_reasoning_chars,
            **settings,
        )

    def make_grader(self, task: Any, answers: Mapping[str, Sequence[str]]) -> Grader:
        return ContestGrader(task, answers)

    def content(self, problem: Problem) -> str:
        text: str = problem.data["problem"]
        return text

    def part(self, name: str) -> Part:
        chosen = self._split(name)
        return Part(chosen.name, chosen.files, chosen.hub, f"task.{name}.files", f"task.{name}.hub")

    def sample_sources(self, split: str) -> list[Source]:
        kinds = ["integer"] if self.answer == "integer" else ["integer", "expression"]
        return [Source(f"sample_{kind}", [SAMPLE / f"{split}_{kind}.jsonl"]) for kind in kinds]

    def size(self, split: str) -> tuple[str, int | None]:
        return f"task.{split}.draw", self._split(split).draw

    def _split(self, name: str) -> SplitConfig:
        return self.train if name == "train" else self.test

    def describe(self, found: SplitData, selected: Sequence[Question]) -> Provenance:
        chosen, available = self._split(found.split), len(found.questions)
        digest = hash_content([question.identifying_fields for question in selected])
        if available == chosen.size:
            return self.provenance("benchmark", f"{chosen.name}, all {available} problems ({found.place})", digest)
        description = f"{available} problems for {chosen.name}" + (f", which has {chosen.size}" if chosen.size else "")
        return self.provenance("stand_in", f"{description} ({found.place})", digest)

    # --- loading ---

    def load(self) -> LoadedTask:
        found = self.find(self.split)
        # The limit cuts the draw: demonstrations are apart from the whole draw, so a limit does not change them.
        drawn = self.draw(found, found.questions)
        held_out: list[Question] = []
        if self.validation_problems:
            try:
                known = self.shuffled("train", (found if self.split == "train" else self.find("train")).questions)
                known = known if self.split == "train" else known[: self.train.draw]
                held_out = self.apart(known, drawn)[: self.validation_problems]
            except NotFoundError as error:
                _log.warning("task=%s: no validation split: %s", self.name, error)
        selected = drawn[: self.limit]
        return self.assemble(self.make_task(), selected, held_out, self.describe(found, selected))

    def load_training(self) -> LoadedTask:
        """Give the train split, less the problems that the test split has too.

        Raises ConfigError with task.split=train, DataError as `load` does and where no problem is left.
        """
        refuse_training_on(self.split)
        # Training sets are collected from many sources and may hold test problems, which must not be trained on.
        tested, found = self.find("test"), self.find("train")
        selected = self.apart(self.draw(found, found.questions), self.draw(tested, tested.questions))
        if not selected:
            raise DataError(
                f"task.train: all problems of its files ({found.place}) are in the test split too; give others"
            )
        return self.assemble(self.make_task(), selected, (), self.describe(found, selected))

    def search(self, part: Part) -> tuple[list[Source], str]:
        # A single file holds the split that the run works on, and no other.
        place = self.place() if self.source == "auto" else None
        if place is not None and place.is_file() and part != self.part(self.split):
            raise NotFoundError(f"task.data: the file holds the {self.split} split only; for both, give a folder")
        return super().search(part)

    def find(self, split: str) -> SplitData:
        """Read the problems of a split; a folder's files may also hold other years and contests."""
        found, chosen = super().find(split), self._split(split)
        questions = found.questions
        # The hub data sets and the sample hold only the split.
        by_field = (("year", chosen.years), ("contest", chosen.contests)) if self.source == "auto" else ()
        for key, wanted in by_field:
            if wanted is None:
                continue
            lacking = [question for question in questions if question.details[key] is None]
            if lacking:
                raise DataError(
                    f"task.{split}.{key}s: expected the field {key} in every record, '{lacking[0].problem.id}' has "
                    f"none; task.{split}.{key}s=null takes all records"
                )
            questions = [question for question in questions if question.details[key] in wanted]
        if not questions:
            raise NotFoundError(
                f"task.{split}: the files ({found.place}) hold none of its problems; check years and contests"
            )
        return found._replace(questions=questions)

    def unrepeated(self, questions: Iterable[Question]) -> list[Question]:
        """Drop repeated questions, and all copies of those whose answers differ; warn of each."""
        disputed = set()

        def warn_of_repeat(earlier: Question, later: Question) -> None:
            _log.warning("%s: left out, the same problem as %s", later.where, earlier.where)
            # Public collections disagree on some answers, and nothing here could tell which one is right.
            if set(earlier.answers).isdisjoint(later.answers):
                disputed.add(earlier.problem.id)
                _log.warning("%s: its answer differs from the one in %s; left out both", later.where, earlier.where)

        kept = drop_repeats(questions, self.content, warn_of_repeat)
        return [question for question in kept if question.problem.id not in disputed]

    # --- records ---

    def read(self, record: Record, split: str) -> Question:
        """Check one record and return its question. Raises DataError for an unusable record."""
        where, values = record.where, record.values
        field = next((name for name in TEXTS if name in values), None)
        if field is None:
            raise DataError(f"{where}: expected the fields problem and answer; 'problem' is missing")
        text = record.text(field)
        fallback_id = f"{record.source}/{record.number}"
        own = next((values[name] for name in IDS if values.get(name) is not None), fallback_id)
        if isinstance(own, bool) or not isinstance(own, str | int) or not str(own).strip():
            raise DataError(f"{where}: id: expected a non-empty string or an integer, got {own!r:.60}")
        # A bare number identifies a record within its file only, and a split may have several files.
        identity = fallback_id if str(own).strip().isdecimal() else str(own).strip()
        solution = values.get("solution")
        stratum, data = self.read_group(record, split)
        return Question(
            problem=Problem(id=identity, stratum=stratum, data={"problem": text, **data}),
            answers=self._answers(record),
            details={key: _optional(record, key, kind) for key, kind in (("contest", str), ("year", int))},
            solution=solution if isinstance(solution, str) and last_boxed(solution) else "",
            where=where,
        )

    def read_group(self, record: Record, split: str) -> tuple[str, dict[str, Any]]:
        """Return a record's stratum and further data of its problem.

        The stratum is its level, else the contest with its year, else the split's name.
        """
        level = read_level(record.values)
        if level is not None:
            return f"level {level}", {}
        contest, year = record.values.get("contest"), record.values.get("year")
        if not contest:
            return self._split(split).name or split, {}
        return f"{contest} {year}" if year is not None and str(year) not in str(contest) else str(contest), {}

    def _answers(self, record: Record) -> tuple[str, ...]:
        """Return the accepted answers, the main one first.

        Without `answer`, the main one is the box that ends the solution, or a solution that is only an integer.
        """
        main, solution = record.values.get("answer"), record.values.get("solution")
        if "answer" not in record.values:
            main = last_boxed(solution) if isinstance(solution, str) else None
            if not main and isinstance(solution, str) and read_integer(solution) is not None:
                main = solution
            if not main:
                raise DataError(
                    f"{record.where}: expected the field answer, or a solution that ends in \\boxed{{ANSWER}}; found "
                    "neither"
                )
        others = record.values.get("accepted_answers")
        if others is None:
            others = []
        if not isinstance(others, list):
            raise DataError(f"{record.where}: accepted_answers: expected a list of answers, got {others!r:.60}")
        return tuple(dict.fromkeys(self._check_answer(answer, record.where) for answer in (main, *others)))

    def _check_answer(self, answer: object, where: str) -> str:
        if isinstance(answer, bool) or not isinstance(answer, str | int) or not str(answer).strip():
            raise DataError(f"{where}: answer: expected a non-empty string or an integer, got {answer!r:.60}")
        # Expressions stay as they are written: the verifier compares their values.
        if self.answer == "expression":
            return str(answer).strip()
        value, largest = read_integer(str(answer)), self.largest_answer
        if value is None or not (largest is None or 0 <= value <= largest):
            bounds = "" if largest is None else f" from 0 to {largest}"
            raise DataError(f"{where}: answer: expected an integer{bounds}, got {answer!r:.60}")
        return str(value)


def read_level(values: Mapping[str, Any]) -> int | None:
    """Return a record's level: MATH gives 1 to 5, or "Level 5"."""
    level = re.fullmatch(r"(?:level\s*)?(\d)", str(values.get("level", "")).lower())
    return int(level[1]) if level else None


def _optional(record: Record, field: str, kind: type) -> Any:
    value = record.values.get(field)
    if kind is int and isinstance(value, str) and value.isdecimal():
        value = int(value)
    if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
        expected = "an integer" if kind is int else "a string"
        raise DataError(f"{record.where}: {field}: expected {expected}, got {value!r:.60}")
    return value
