"""MathBench: four-option questions of three stages, with prompts (Duel-Evolve, B.1), parsing of answers, and files."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from evorun.errors import DataError
from evorun.fields import NonNegativeInt
from evorun.runs.candidates import Response
from evorun.simulation.simulator import Filler
from evorun.tasks.base import Demonstration, Grade, LoadedTask, Problem
from evorun.tasks.benchmark import Question, drop_repeats, hash_content
from evorun.tasks.benchmark_files import Record, Source, read_sources
from evorun.tasks.corrections import cut_at_next_question, read_unless_withdrawn
from evorun.tasks.json_text import end_of_object
from evorun.tasks.multiple_choice import answer_schema, format_options, letters, option_text, read_letter
from evorun.tasks.simulator import TextSimulator
from evorun.tasks.stratified_benchmark import DRAW_HELP, StratifiedBenchmark
from evorun.tasks.text_task import TextTask

OPTIONS = 4
"""Options of every MathBench question."""
FILE = "single_choice_en.jsonl"
"""The English single-choice application questions of a stage; `<stage>_knowledge` folders are never read (§4.1)."""
ARCHIVE = "mathbench_v1"
"""Folder into which the benchmark's archive unpacks."""
RELEASE = "https://github.com/open-compass/MathBench/releases/tag/v0.1.0"
SAMPLE = Path(__file__).parent / "sample"

_ANSWER = re.compile(r"\s*\(?([A-Za-z])\)?\.?\s*")
_log = logging.getLogger(__name__)


class MathBench(TextTask):
    """Answers a question by option letter."""

    name = "mathbench"
    draw_help = DRAW_HELP
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts",)
    wording: Mapping[str, str] = {
        "persona": "a helpful assistant",
        "reasoning_label": "Reasoning",
        "correction": "The answer is wrong: the right one is",
    }

    def __init__(
        self, *, prompts: str | None = None, reasoning_max_chars: int = 3000, shown_reasoning_chars: int | None = None
    ) -> None:
        """Compile the prompts; see `TextTask`. reasoning_max_chars: maximum reasoning in the schema."""
        super().__init__(prompts=prompts, shown_reasoning_chars=shown_reasoning_chars)
        self.reply_schema = answer_schema(OPTIONS, reasoning_max_chars)
        self.answer_format = self.prompts.render("answer_format", letters=letters(OPTIONS))

    def problem_values(self, problem: Problem) -> Mapping[str, Any]:
        return {**super().problem_values(problem), "options": format_options(problem.data["options"])}

    def response_values(self, problem: Problem, response: Response) -> Mapping[str, Any]:
        # An unparsed response is shown as its text, without an answer.
        answer = response.answer
        reasoning = response.reasoning if answer else response.reasoning or response.text
        return {
            "answer": _format_option(answer, problem) if answer else "none",
            "reasoning": self.excerpt(reasoning),
        }

    def truth_values(
        self, problem: Problem, response: Response, demonstration: Demonstration | None, grade: Grade | None
    ) -> Mapping[str, Any]:
        truth = super().truth_values(problem, response, demonstration, grade)
        right = truth["right_answer"]
        return {**truth, "right_answer": _format_option(right, problem) if right else ""}

    def read(self, problem: Problem, text: str) -> str:
        def read(part: str) -> str:
            return read_letter(part, problem.data["options"])

        text = cut_at_next_question(read, text)
        return read_unless_withdrawn(read, text, begin=end_of_object(text, "solution"), only_sure=True)

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        return letters(OPTIONS)[int(rng.integers(OPTIONS))]

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return msgspec.json.encode({"reasoning": reasoning, "solution": answer}).decode()


def _format_option(letter: str, problem: Problem) -> str:
    return f"{letter} ({option_text(letter, problem.data['options'])})"


class MathBenchSimulator(TextSimulator):
    """Gives one of the other letters as a wrong answer."""

    filler: ClassVar[Filler] = Filler(
        "Write down what is given, set up the relation it asks for, compute one step and check it against the options."
    )
    malformed: ClassVar[Sequence[str]] = (
        '{"reasoning": "Write down what is given, set up',
        "I would compare the options one by one and see which of them fits.",
        '{"reasoning": "None of them fits.", "solution": "E"}',
        '{"reasoning": "Two of them fit.", "solution": "A or B"}',
        "",
    )

    def wrong_answers(self, problem: Problem, gold: str) -> Sequence[str]:
        return letters(OPTIONS).replace(gold, "")

    def reply(self, problem: Problem, answer: str, steps: str) -> str:
        return self._task.write(problem, answer, f"{steps}So the answer is {answer}.")


@dataclass(kw_only=True)
class MathBenchConfig(StratifiedBenchmark):
    """MathBench as Duel-Evolve uses it: English four-option application questions of three stages (§4.1).

    `data` is the archive's root, or the folder that it was unpacked in. With `source=auto` the files count as the
    benchmark's own when the folder also holds the archive's other parts (Chinese and theory questions).
    """

    task_class = MathBench
    simulator = MathBenchSimulator
    folder = "mathbench"
    sample = SAMPLE
    sample_set = "evorun's own sample set of generated word problems, not MathBench"
    own_files = "MathBench's own files"
    other_files = "questions in MathBench's layout, not MathBench itself"
    hub_files = ("*single_choice_*.jsonl",)
    all_strata = ("middle", "high", "college")
    called = "stages"
    missing = (
        "MathBench's files",
        f"download and unpack {RELEASE}, then give their folder as task.data=FOLDER or $EVORUN_DATA/mathbench",
        f"{RELEASE}, unpacked in $EVORUN_DATA/mathbench",
    )

    validation_per_stratum: NonNegativeInt | None
    """Further problems per stage, held out for demonstrations and prompt search; null: those of the smallest stage
    beyond 100, at least 6 and at most 50."""

    def make_task(self) -> MathBench:
        return MathBench(
            prompts=self.prompts,
            reasoning_max_chars=self.reasoning_max_chars,
            shown_reasoning_chars=self.shown_reasoning_chars,
        )

    def load(self) -> LoadedTask:
        """Read, check and draw the problems.

        Raises DataError for missing or malformed files and stages that are too small, ConfigError for prompt files.
        """
        task = self.make_task()
        folder, place = self.locate()
        root = archive_root(folder, self.strata)
        stages = read_stages(root, self.strata)
        held_out = self.validation_per_stratum
        if held_out is None:
            held_out = min(50, max(6, min(map(len, stages.values())) - 100))
        draw = self.draw(stages, held_out)
        # A folder with the right names may hold other questions; the archive's other parts are the best evidence.
        is_own = all(
            (root / stage / "single_choice_cn.jsonl").is_file() and (root / f"{stage}_knowledge").is_dir()
            for stage in self.strata
        )
        digest = hash_content(
            [{"problem": question.problem, "answer": question.answers[0]} for question in draw.selected]
        )
        return self.assemble(task, *draw, self.describe(is_own, place, digest))


def archive_root(folder: Path, stages: Sequence[str]) -> Path:
    """Return the folder that holds the stages: `folder` itself or the archive's folder inside it.

    Raises DataError naming what was expected when a stage's file is in neither.
    """
    if not folder.is_dir():
        hint = "; unpack the archive first" if folder.is_file() else ""
        raise DataError(f"task.data: expected a folder with MathBench's files, got '{folder}'{hint}")
    # The archive unpacks into a subfolder; either level may be given.
    root = folder / ARCHIVE if (folder / ARCHIVE).is_dir() else folder
    missing = [stage for stage in stages if not (root / stage / FILE).is_file()]
    if missing:
        raise DataError(
            f"task.data: expected the file {root / missing[0] / FILE}; the folder must have the layout of MathBench's "
            f"archive ({ARCHIVE}/<stage>/{FILE}), which {RELEASE} offers"
        )
    return root


def read_stages(root: Path, stages: Sequence[str]) -> dict[str, list[Question]]:
    """Read every stage's file, in file order.

    Repeats of an earlier question with the same options and answer, in any stage, are left out with a warning. Raises
    DataError naming file and line for a malformed record, an id used twice, or a repeat with another answer.
    """

    def repeated(earlier: Question, later: Question) -> None:
        if earlier.answers != later.answers:
            raise DataError(f"{later.where}: the same question as {earlier.where}, with another answer")
        _log.warning("%s: left out, the same question as %s", later.where, earlier.where)

    records = read_sources(Source(stage, [root / stage / FILE]) for stage in stages)
    questions = drop_repeats(map(read_question, records), repeated=repeated)
    return {stage: [question for question in questions if question.problem.stratum == stage] for stage in stages}


def read_question(record: Record) -> Question:
    """Check a record, whose source is its stage, and return its question.

    It accepts numbers as options, options that all begin with their letter ("A. 12"), and a padded, lower-case or
    bracketed answer letter. Raises DataError for anything else.
    """
    where, stage = record.where, record.source
    for key in ("options", "question", "answer"):
        if key not in record.values:
            raise DataError(f"{where}: expected the fields question, options and answer; '{key}' is missing")
    options, question, given = _options(record), record.text("question"), record.values["answer"]
    match = _ANSWER.fullmatch(given) if isinstance(given, str) else None
    answer = match[1].upper() if match else ""
    if not answer or answer not in letters(OPTIONS):
        raise DataError(f"{where}: answer: expected one of {', '.join(letters(OPTIONS))}, got {given!r:.60}")
    given_id = record.values.get("id", where.rpartition(":")[2])
    if isinstance(given_id, bool) or not isinstance(given_id, str | int) or not str(given_id).strip():
        raise DataError(f"{where}: id: expected a non-empty string or an integer, got {given_id!r:.60}")
    # A bare number, and the line number without an id, are unique only within the stage.
    identity = f"{stage}/{str(given_id).strip()}" if str(given_id).strip().isdecimal() else str(given_id).strip()
    problem = Problem(id=identity, stratum=stage, data={"question": question, "options": options})
    return Question(problem=problem, answers=(answer,), where=where)


def _options(record: Record) -> tuple[str, ...]:
    options = record.values["options"]
    fits = isinstance(options, list) and len(options) == OPTIONS
    plain = fits and all(isinstance(option, str | int | float) and not isinstance(option, bool) for option in options)
    texts = tuple(str(option).strip() for option in options) if plain else ()
    if not texts or not all(texts):
        raise DataError(f"{record.where}: options: expected a list of {OPTIONS} strings, got {options!r:.60}")
    # Letters are removed only if every option has its own, since "A. 12" may be a name.
    patterns = (rf"\(?{letter}[.):]+\s*(\S.*)" for letter in letters(OPTIONS))
    matches = [re.fullmatch(pattern, text, re.DOTALL) for pattern, text in zip(patterns, texts, strict=True)]
    return tuple(match[1] for match in matches if match) if all(matches) else texts
