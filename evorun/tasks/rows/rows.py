"""A user's own benchmark: the rows of a JSON lines, CSV or Parquet file, with columns mapped by config keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec

from evorun.errors import ConfigError, DataError
from evorun.fields import Fraction, NonNegativeFloat, OneOf, PositiveInt
from evorun.runs.streams import stream
from evorun.tasks.base import Grader, LoadedTask, Problem
from evorun.tasks.benchmark import BenchmarkConfig, Question, drop_repeats, hash_content
from evorun.tasks.benchmark_files import MissingFilesError, Record, Source, download_records, read_sources
from evorun.tasks.billsum.rouge import RougeGrader
from evorun.tasks.math_contest.math_contest import ContestGrader
from evorun.tasks.numbers import read_number
from evorun.tasks.rows.answers import MathRows, NumberRows, Rows, TextRows, read_option
from evorun.tasks.rows.graders import find_grader
from evorun.tasks.rubric_items import read_items
from evorun.tasks.split_benchmark import refuse_training_on
from evorun.tasks.text_task import TextTask

SAMPLE = Path(__file__).parent / "sample.jsonl"
SUFFIXES = (".jsonl", ".csv", ".parquet")
SPLITS = ("test", "validation", "train")
_MAX_OPTIONS = 26


@dataclass(kw_only=True)
class RowsConfig(BenchmarkConfig):
    """Rows of a file as questions with answers, split by a column of the file or by shares."""

    task_class: ClassVar[type[TextTask]] = Rows
    training_split = "train"
    sources = ("auto", "hub", "sample")
    sample_set = "evorun's own sample set of sums in words"

    hub_id: str | None
    """Hub data set with the rows: OWNER/NAME, or OWNER/NAME/PATTERN for some of its files."""
    question: str
    """Column of the questions."""
    answer: str
    """Column of the right answers; except for choice and rouge, a row may have a list of accepted answers."""
    grader: str
    """exact: as strings. number: by value. math: expressions by value, by math-verify. choice: as one of the options.
    rouge: texts by their overlap with a reference. Or the name of a plug-in's grader."""
    id: str | None
    """Column of the rows' ids; null: the file's name and the row's number."""
    rubric: str | None
    """Column of the rows' own criteria, for method=rler and method.choose=rubric: a list of objects with
    `description`, and perhaps `title` and `weight`; null: none."""
    stratum: str | None
    """Column of the groups by which results are broken down."""
    options: list[str] | None
    """With `choice`: the column with a list of each row's options, or several columns with one option each."""
    split: Annotated[str, OneOf(SPLITS)]
    """train | validation | test: which rows the run works on."""
    split_by: str | None
    """Column with train, validation or test; null: shares, or the sample set's column."""
    train_share: Fraction
    """Share of the rows to train on, drawn by `draw_seed`; rows in neither share are the test split."""
    validation_share: Fraction
    """Share of the rows for demonstrations and for the choice of prompts."""
    tolerance: NonNegativeFloat
    """With `number`: maximum relative error of an answer."""
    max_words: PositiveInt
    """With `rouge`: maximum words of a text, as stated in prompts."""
    stemmer: bool
    """With `rouge`: compare words without their suffixes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # The grader decides which methods are refused before anything is loaded, such as votes on texts.
        grader: Any = find_grader(self.grader)
        self.task_class, self.simulator = grader, grader.simulator  # type: ignore[misc]
        if self.train_share + self.validation_share >= 1:
            raise ConfigError(
                "task.train_share: expected less than 1 together with task.validation_share: the rest is the test split"
            )
        if self.split_by is not None and self.train_share + self.validation_share:
            raise ConfigError(
                "task.split_by: expected without shares; leave it null, or task.train_share and task.validation_share 0"
            )
        if (self.grader == "choice") != bool(self.options):
            given = "the column (or columns) with the options" if self.grader == "choice" else "null"
            raise ConfigError(f"task.options: expected {given} with task.grader={self.grader}, got {self.options}")
        if (self.source == "hub") != (self.hub_id is not None):
            raise ConfigError(f"task.hub_id: expected exactly with task.source=hub, got {self.hub_id}")

    # --- the task ---

    def make_task(self) -> TextTask:
        settings: dict[str, Any] = {"prompts": self.prompts, "shown_reasoning_chars": self.shown_reasoning_chars}
        if issubclass(self.task_class, NumberRows):
            return self.task_class(tolerance=self.tolerance, **settings)
        if self.grader == "rouge":
            return TextRows(max_words=self.max_words, **settings)
        if self.grader == "math":
            return MathRows(integers=False, **settings)
        return self.task_class(**settings)

    def make_grader(self, task: Any, answers: Mapping[str, Sequence[str]]) -> Grader:
        if self.grader == "math":
            return ContestGrader(task, answers)
        if self.grader == "rouge":
            return RougeGrader(task, answers, stemmer=self.stemmer)
        return super().make_grader(task, answers)

    # --- loading ---

    def load(self) -> LoadedTask:
        """Read the rows and return those of the chosen split.

        Raises DataError for an unusable file or row and for an empty split, ConfigError for prompt files.
        """
        return self._loaded(self.split)

    def load_training(self) -> LoadedTask:
        """Return the train split. Raises ConfigError with task.split=train, and DataError as `load` does."""
        refuse_training_on(self.split)
        return self._loaded("train")

    def _loaded(self, split: str) -> LoadedTask:
        sources, place = self._locate()
        read = [self.read(record) for record in read_sources(sources)]
        if not read:
            raise DataError(f"task.data: expected rows, {place} has none")
        questions = drop_repeats(read, repeated=_same_answers)
        splits = self._splits(questions)
        drawn = splits[split]
        if not drawn:
            raise DataError(
                f"task={self.name}: expected rows of the {split} split, {place} has none; name the column of the "
                "splits (task.split_by=COLUMN), set task.train_share or task.validation_share, or choose another "
                "task.split"
            )
        is_training = split == "train" and self.split != "train"
        selected = drawn if is_training else drawn[: self.limit]
        held_out = [] if is_training or split == "validation" else splits["validation"]
        repeated = len(read) - len(questions)
        left_out = f", {repeated} repeated ones left out" if repeated else ""
        description = (
            f"{len(selected)} of {len(questions)} rows of {place} ({split} split{left_out}), graded by {self.grader}"
        )
        task = self.make_task()
        self._read_back(task, [*selected, *held_out])
        digest = hash_content([[question.identifying_fields for question in selected], self.grader])
        return self.assemble(task, selected, held_out, self.provenance("benchmark", description, digest))

    def _locate(self) -> tuple[list[Source], str]:
        if self.source == "sample":
            return [Source("sample", [SAMPLE])], "the sample set"
        if self.hub_id is not None:
            paths = download_records(self.hub_id)
            return [Source(self.hub_id.split("/")[1], paths)], f"hub data set {self.hub_id}"
        if self.data is None:
            suffixes = ", ".join(SUFFIXES)
            raise MissingFilesError(
                f"the rows of task={self.name}",
                f"give a file ({suffixes}) as task.data=FILE",
                "a file as task.data=FILE",
            )
        path = Path(self.data).expanduser()
        if not path.is_file() or path.suffix not in SUFFIXES:
            raise DataError(f"task.data: expected a file in {', '.join(SUFFIXES)}, got '{self.data}'")
        return [Source(path.stem, [path])], path.name

    def _splits(self, questions: Sequence[Question]) -> dict[str, list[Question]]:
        """Return the rows of each split in random order."""
        order = stream(self.draw_seed, "draw", self.name).permutation(len(questions))
        shuffled = [questions[index] for index in order]
        if self._split_column is not None:
            return {
                split: [question for question in shuffled if question.details["split"] == split] for split in SPLITS
            }
        # Test from the front, train from the back, so that one share does not change the order of the others.
        train, validation = (round(share * len(shuffled)) for share in (self.train_share, self.validation_share))
        end = len(shuffled) - train
        return {
            "test": shuffled[: end - validation],
            "validation": shuffled[end - validation : end],
            "train": shuffled[end:],
        }

    @property
    def _split_column(self) -> str | None:
        shares = self.train_share + self.validation_share
        return "split" if self.source == "sample" and not shares and self.split_by is None else self.split_by

    def _read_back(self, task: TextTask, questions: Sequence[Question]) -> None:
        """Raise DataError for a right answer that no reply could give, since the task would not grade it as right."""
        for question in questions:
            for answer in question.answers:
                response = task.parse(question.problem, task.write(question.problem, answer))
                grade = task.score(question.problem, response, answer)
                if response.answer is None or grade.correct is False:
                    reason = response.error or f"a reply with it is read as {response.answer!r:.60}"
                    raise DataError(
                        f"{question.where}: task.answer={self.answer}: {answer!r:.60} cannot be an answer with "
                        f"task.grader={self.grader}: {reason}"
                    )

    # --- rows ---

    def read(self, record: Record) -> Question:
        """Check a row and return its question. Raises DataError naming file, line and key."""
        text = self._column(record, "question", self.question)
        if not isinstance(text, str) or not text.strip():
            raise self._wrong(record, "question", self.question, f"expected a non-empty text, got {text!r:.60}")
        data: dict[str, Any] = {"question": text.strip()}
        if self.options:
            data["options"] = self._options(record, self.options)
        if self.rubric is not None:
            data["rubric"] = self._rubric(record, self.rubric)
        stratum = "all" if self.stratum is None else str(self._column(record, "stratum", self.stratum) or "").strip()
        problem = Problem(id=self._identity(record), stratum=stratum or "none", data=data)
        split = {} if self._split_column is None else {"split": self._split(record, self._split_column)}
        return Question(
            problem=problem, answers=self._answers(record, data.get("options", ())), details=split, where=record.where
        )

    def _identity(self, record: Record) -> str:
        if self.id is None:
            return f"{record.source}/{record.number}".replace("|", "/")
        given = self._column(record, "id", self.id)
        if isinstance(given, bool) or not isinstance(given, str | int) or not str(given).strip() or "|" in str(given):
            raise self._wrong(
                record, "id", self.id, f"expected a non-empty text without '|' or an integer, got {given!r:.60}"
            )
        return str(given).strip()

    def _split(self, record: Record, column: str) -> str:
        given = str(self._column(record, "split_by", column)).strip().lower()
        if given not in SPLITS:
            raise self._wrong(record, "split_by", column, f"expected one of {', '.join(SPLITS)}, got {given!r:.60}")
        return given

    def _options(self, record: Record, columns: Sequence[str]) -> tuple[str, ...]:
        given: Any = [self._column(record, "options", column) for column in columns]
        if len(columns) == 1:
            given = _decode_list(given[0])
        fits = isinstance(given, list) and 2 <= len(given) <= _MAX_OPTIONS
        texts = [str(option).strip() for option in given if _is_plain(option)] if fits else []
        if not texts or len(texts) < len(given) or not all(texts) or len(set(texts)) < len(texts):
            raise self._wrong(
                record,
                "options",
                ",".join(columns),
                f"expected 2 to {_MAX_OPTIONS} different options, got {given!r:.60}",
            )
        return tuple(texts)

    def _rubric(self, record: Record, column: str) -> list[dict[str, Any]]:
        try:
            items = read_items(_decode_list(self._column(record, "rubric", column)))
        except ValueError as error:
            raise self._wrong(record, "rubric", column, str(error)) from error
        return [msgspec.structs.asdict(item) for item in items]

    def _answers(self, record: Record, options: Sequence[str]) -> tuple[str, ...]:
        given = self._column(record, "answer", self.answer)
        answers = given if isinstance(given, list) and self.grader not in ("choice", "rouge") else [given]
        try:
            if not answers or not all(_is_plain(answer) and str(answer).strip() for answer in answers):
                raise ValueError(f"expected a non-empty text or a number, got {given!r:.60}")
            if self.grader == "choice":
                return (read_option(given, options),)
            if self.grader == "number":
                for answer in answers:
                    read_number(str(answer))
        except ValueError as error:
            reason = str(error).removeprefix("not_a_number: ")
            raise self._wrong(record, "answer", self.answer, f"{reason}, with task.grader={self.grader}") from error
        return tuple(dict.fromkeys(str(answer).strip() for answer in answers))

    def _column(self, record: Record, key: str, column: str) -> Any:
        if column not in record.values:
            present = " ".join(", ".join(record.values).split())[:300]
            raise self._wrong(record, key, column, f"there is no such column; there are {present or 'none'}")
        return record.values[column]

    def _wrong(self, record: Record, key: str, column: str, reason: str) -> DataError:
        return DataError(f"{record.where}: task.{key}={column}: {reason}")


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _decode_list(value: object) -> object:
    """Decode a CSV field that holds a list as JSON; return anything else unchanged."""
    if isinstance(value, str):
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return value
    return value


def _same_answers(earlier: Question, later: Question) -> None:
    if earlier.answers != later.answers:
        raise DataError(f"{later.where}: the same question as {earlier.where}, with another answer")
