"""Prompts, parsing and grading of answers to rows: exact strings, numbers, options, expressions or texts."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from evorun.runs.candidates import Response
from evorun.tasks.base import DrawHelp, Grade, Problem
from evorun.tasks.billsum.billsum import BillSum, BillSumSimulator
from evorun.tasks.corrections import read_unless_withdrawn
from evorun.tasks.math_contest.math_contest import ContestSimulator, MathContest
from evorun.tasks.multiple_choice import format_options, letters, read_choice, read_letter
from evorun.tasks.numbers import read_number
from evorun.tasks.prose.prose import PROMPTS
from evorun.tasks.short_answers import read_answer
from evorun.tasks.simulator import TextSimulator
from evorun.tasks.text_task import TextTask

FOLDER = Path(__file__).parent / "prompts"
DRAW_HELP = DrawHelp(
    more_validation="name the column of the splits (task.split_by=COLUMN), or raise task.validation_share",
    grade_held_out="set task.split=train to grade the train split, or lower task.validation_share",
    keys="task.split, task.split_by, task.train_share, task.validation_share, task.draw_seed and task.limit",
)
_SUBJECT = {"persona": "a careful problem solver", "introduction": "", "subject": "problem"}


class Rows(TextTask):
    """Answers a question in free text that ends in `Answer: ...`; a right answer equals an accepted one."""

    name = "rows"
    draw_help = DRAW_HELP
    prompt_folders: ClassVar[Sequence[Path]] = (FOLDER,)
    form: ClassVar[str] = "your answer"
    """Description of the last line in prompts."""
    simulator: ClassVar[type[TextSimulator]] = TextSimulator
    """The class of the simulated model."""

    def __init__(self, *, prompts: str | None = None, shown_reasoning_chars: int | None = None) -> None:
        """Compile the prompts as `TextTask` does."""
        super().__init__(prompts=prompts, shown_reasoning_chars=shown_reasoning_chars)
        self.answer_format = self.prompts.render("answer_format", form=self.form)

    def shared_values(self) -> Mapping[str, Any]:
        return {**super().shared_values(), "form": self.form}

    def read(self, problem: Problem, text: str) -> str:
        """Return the text after the last `Answer:`. Kinds of errors: `withdrawn`, and those of `read_part`."""
        return read_unless_withdrawn(lambda part: self.read_part(part, problem), text, only_sure=True)

    def read_part(self, text: str, problem: Problem) -> str:
        """Return the answer of a reply, or of its part after a withdrawal; see `read_answer`."""
        return read_answer(text, self.question(problem))

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return f"{reasoning.strip()}\n\nAnswer: {answer}".strip()

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        """Compare the answer with an accepted one by `comparable`."""
        if response.answer is None:
            return Grade(correct=False, detail=response.error or "no answer")
        return Grade(correct=self.comparable(response.answer) == self.comparable(reference or ""))

    def signature(self, problem: Problem, response: Response) -> str:
        return self.comparable(response.answer or "")

    def comparable(self, answer: str) -> str:
        """Return a text that is equal for answers that differ only in white space."""
        return " ".join(answer.split())


class NumberRows(Rows):
    """Answers with a number, which is compared by its value."""

    form = "a number without its unit"

    def __init__(self, *, tolerance: float, **settings: Any) -> None:
        """tolerance: relative. settings: see `Rows`."""
        super().__init__(**settings)
        self._tolerance = Fraction(tolerance)

    def read_part(self, text: str, problem: Problem) -> str:
        """Return the number; kind of error beside those of `read_answer`: `not_a_number`."""
        answer = super().read_part(text, problem)
        read_number(answer)
        return answer

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        if response.answer is None:
            return super().score(problem, response, reference)
        right = read_number(reference or "")
        return Grade(correct=abs(read_number(response.answer) - right) <= self._tolerance * abs(right))

    def comparable(self, answer: str) -> str:
        return str(read_number(answer))


class ChoiceSimulator(TextSimulator):
    """Gives one of the other letters as a wrong answer."""

    def wrong_answers(self, problem: Problem, gold: str) -> Sequence[str]:
        return letters(len(problem.data["options"])).replace(gold, "")


class ChoiceRows(Rows):
    """Answers with the letter of an option."""

    form = "the letter of one option"
    simulator = ChoiceSimulator

    def question(self, problem: Problem) -> str:
        return f"{super().question(problem)}\n\n{format_options(problem.data['options'])}"

    def read_part(self, text: str, problem: Problem) -> str:
        """Return the letter; kinds of errors: see `read_letter`."""
        return read_letter(text, problem.data["options"])

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        options = problem.data["options"]
        return letters(len(options))[int(rng.integers(len(options)))]


class MathRows(MathContest):
    """Answers with an expression in a box, which is compared by its value."""

    name = "rows"
    draw_help = DRAW_HELP
    simulator: ClassVar = ContestSimulator
    setting = _SUBJECT

    def question(self, problem: Problem) -> str:
        return TextTask.question(self, problem)  # contests store the problem under another key


class TextRows(BillSum):
    """Answers with a text, which is compared with a reference by ROUGE."""

    name = "rows"
    draw_help = DRAW_HELP
    simulator: ClassVar = BillSumSimulator
    prompt_folders: ClassVar[Sequence[Path]] = (FOLDER / "rouge", PROMPTS)
    wording: Mapping[str, str] = {
        "persona": "a careful writer",
        "subject": "request",
        "source": "Request",
        "piece": "text",
        "correction": "The reference is:",
        "criteria": "A good text does what the request asks, in full and no more; it is right, plain and clear.",
    }


def read_option(value: object, options: Sequence[str]) -> str:
    """Return the letter of a row's right option, given as its letter or its text. Raises ValueError."""
    letter, _ = read_choice(str(value), options)
    if letter is None:
        raise ValueError(f"expected the letter or the text of one of its {len(options)} options, got {value!r:.60}")
    return letter
