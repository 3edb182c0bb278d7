"""Mathematics contests as methods see them: prompts (wording ours), answers in a box, and their grading by value."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from evorun.runs.candidates import Response
from evorun.runs.scores import ACCURACY, Score
from evorun.simulation.simulator import Filler
from evorun.tasks.base import Grade, Problem, Tools
from evorun.tasks.boxes import boxes, has_alternatives, is_in_form, without_placeholders
from evorun.tasks.corrections import cut_at_next_question, read_unless_withdrawn
from evorun.tasks.loading import GoldGrader
from evorun.tasks.math_contest.equations import asked_value
from evorun.tasks.math_contest.reading import (
    boxed,
    canonical,
    final_integer,
    has_percent,
    named_alike,
    option_letter,
    read_integer,
    stated,
)
from evorun.tasks.math_contest.verification import Verifier, shared
from evorun.tasks.simulator import TextSimulator
from evorun.tasks.split_benchmark import SPLIT_HELP
from evorun.tasks.text_task import TextTask

MAX_ANSWER_CHARS = 500
"""Longest answer that is read (ours; of MATH's, none has 100)."""

# Bounds random answers where the contest does not: the largest answer of AIME (ours)
_USUAL_LARGEST = 999
# Wrong answers per problem in simulated runs
_MISTAKES = 40


class MathContest(TextTask):
    """Answers a problem in free text that ends in a box."""

    name = "math_contest"
    scores = (ACCURACY, Score("format", 0, 1))
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts",)
    setting: ClassVar[Mapping[str, str]] = {
        "persona": "a careful solver of contest mathematics",
        "introduction": "You solve contest mathematics. ",
        "subject": "contest problem",
    }
    """The words that do not depend on the form of an answer."""
    draw_help = SPLIT_HELP._replace(keys="task.split, task.train, task.test, task.draw_seed and task.limit")

    def __init__(
        self,
        *,
        integers: bool = True,
        largest: int | None = None,
        prompts: str | None = None,
        shown_reasoning_chars: int | None = None,
    ) -> None:
        """Compile the prompts as `TextTask` does. integers: answers are integers, from 0 to `largest` where given."""
        self.integers = integers
        self.largest = largest
        bounded = "an integer" if largest is None else f"an integer from 0 to {largest}"
        self._form = bounded if integers else "the exact value in its simplest form"
        # Set before the prompts are compiled: they hold the form of an answer, which depends on the settings.
        self.wording = {**self.setting, "requirement": f"The answer has to be {self._form}. "}
        super().__init__(prompts=prompts, shown_reasoning_chars=shown_reasoning_chars)
        self.answer_format = self.prompts.render("answer_format", form=self._form)

    def question(self, problem: Problem) -> str:
        text: str = problem.data["problem"]
        return text

    def read(self, problem: Problem, text: str) -> str:
        r"""Return the last box's content: where answers are integers, its decimal digits.

        A text without any box may name its answer: "Final answer: 42". Of a text that withdraws its answer, the
        answer after the withdrawal counts. Kinds of errors: `no_box`, `ambiguous`, `too_long`, `not_an_integer`,
        `out_of_range` and `withdrawn`.
        """
        question = self.question(problem)

        def read(part: str) -> str:
            return self._read_last(part, question)

        return read_unless_withdrawn(read, cut_at_next_question(read, text), only_sure=True)

    def _read_last(self, text: str, question: str) -> str:
        text = without_placeholders(text)
        # Where a value has two forms (MATH: "15 39/40, or 639/40"), the last counts.
        if self.integers and has_alternatives(text):
            raise ValueError("ambiguous: expected one answer, got one box or another")
        # The last box counts: earlier boxes may hold intermediate results.
        answer = boxed(text, may_list=not self.integers)
        if answer is None and "\\boxed" not in text and not boxes(text):
            answer = stated(text, question)
        elif self.integers:
            answer = final_integer(text) or answer
        if answer:
            answer = asked_value(answer, question) or answer
        else:
            raise ValueError(
                "no_box: expected the text to end in \\boxed{ANSWER}, found no finished box with something in it"
            )
        if len(answer) > MAX_ANSWER_CHARS:
            raise ValueError(
                f"too_long: expected an answer of at most {MAX_ANSWER_CHARS} characters, got {len(answer)}"
            )
        if not self.integers:
            return option_letter(answer, question) or answer
        value = read_integer(answer)
        if value is None or (has_percent(answer) and not has_percent(question)):
            raise ValueError(f"not_an_integer: expected {self._form}, got {answer!r:.60}")
        if self.largest is not None and not 0 <= value <= self.largest:
            raise ValueError(f"out_of_range: expected {self._form}, got {value}")
        return str(value)

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        boxed = f"\\boxed{{{answer}}}"
        return f"{reasoning}\n\nSo the answer is {boxed}." if reasoning else boxed

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return an integer of the contest's range."""
        return str(rng.integers(0, _USUAL_LARGEST if self.largest is None else self.largest, endpoint=True))

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        """Compare answers as texts in canonical form; `ContestGrader` compares their values too."""
        answer, reference = response.answer, reference or ""
        right = answer is not None and canonical(answer) == canonical(reference) and named_alike(answer, reference)
        return Grade(correct=right, scores={"format": float(is_in_form(response.text))})

    def signature(self, problem: Problem, response: Response) -> str:
        """Return the answer in canonical form, so that votes are counted by value as far as texts tell."""
        return canonical(response.answer or "")


class ContestGrader(GoldGrader):
    """Grades as the task scores, and compares by value what its texts leave open."""

    def __init__(
        self, task: MathContest, answers: Mapping[str, Sequence[str]], *, verifier: Verifier | None = None
    ) -> None:
        """Hold the accepted answers by problem id, integers as `read_integer` returns them.

        verifier: compares answers that are not integers; None: the verifier that this process shares.
        """
        super().__init__(task, answers)
        self._contest = task
        self._verifier = verifier

    async def grade(self, problem: Problem, response: Response, tools: Tools) -> Grade:
        """Grade a response; without an answer it is wrong. Raises DataError for an unknown problem."""
        # The task's own comparison is of texts, and settles most answers in microseconds; math-verify takes
        # milliseconds.
        grade, answer = await super().grade(problem, response, tools), response.answer
        if answer is None:
            return msgspec.structs.replace(grade, detail=response.error or "no answer")
        if grade.correct or self._contest.integers:
            return grade
        equal, detail = False, ""
        for gold in self.references(problem):
            equal, detail = await (self._verifier or shared()).compare(gold, answer, self._contest.question(problem))
            if equal:
                break
        return msgspec.structs.replace(grade, correct=equal, detail="" if equal else detail)


class ContestSimulator(TextSimulator):
    """Errs by integers near the right one, or by small integers where the right answer is none."""

    _task: MathContest
    filler: ClassVar[Filler] = Filler(
        "Name the unknowns, write down what ties them together, try a small case, and see what carries over to the "
        "next."
    )
    malformed: ClassVar[Sequence[str]] = (
        "Name the unknowns, write down what ties them together, and then",
        "So the answer is \\boxed{",
        "The answer must be large, which leaves several cases open.",
        "Therefore it is \\boxed{}.",
        "",
    )

    def wrong_answers(self, problem: Problem, gold: str) -> Sequence[str]:
        value, largest = read_integer(gold), self._task.largest
        if value is None:
            return [str(number) for number in range(2, 2 + _MISTAKES)]
        near = range(value + 1, value + 1 + _MISTAKES)
        return [str(number if largest is None else number % (largest + 1)) for number in near]
