"""MathBench as methods see it: its prompts (Duel-Evolve, B.1) and the reading of its answers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np

from evorun.runs.candidates import Response
from evorun.tasks.base import Demonstration, Problem
from evorun.tasks.corrections import before_next_question, read_unless_withdrawn
from evorun.tasks.json_text import end_of_object
from evorun.tasks.mathbench.records import OPTIONS
from evorun.tasks.multiple_choice import answer_schema, lettered, letters, option_text, read_letter
from evorun.tasks.text_task import TextTask


class MathBench(TextTask):
    """Answers a question by option letter."""

    name = "mathbench"
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts",)
    placeholder_synonyms: ClassVar[Mapping[str, str]] = {
        "letters": "answer_format",
        "answer_letter": "answer",
        "right_letter": "right_answer",
        "right_text": "right",
    }
    words: Mapping[str, str] = {
        "persona": "a helpful assistant",
        "reasoning_label": "Reasoning",
        "correction": "The answer is wrong: the right one is",
    }

    def __init__(
        self, *, prompts: str | None = None, reasoning_max_chars: int = 3000, shown_reasoning_chars: int | None = None
    ) -> None:
        """Compile the prompts; see `TextTask`. reasoning_max_chars: longest reasoning that the schema allows."""
        super().__init__(prompts=prompts, shown_reasoning_chars=shown_reasoning_chars)
        self.reply_schema = answer_schema(OPTIONS, reasoning_max_chars)
        self.answer_format = self.prompts.render("answer_format", letters=letters(OPTIONS))

    def question(self, problem: Problem) -> str:
        text: str = problem.data["question"]
        return text

    def shared_values(self) -> Mapping[str, Any]:
        return {**super().shared_values(), "letters": letters(OPTIONS)}

    def problem_values(self, problem: Problem) -> Mapping[str, Any]:
        return {**super().problem_values(problem), "options": lettered(problem.data["options"])}

    def response_values(self, problem: Problem, response: Response) -> Mapping[str, Any]:
        # A response that could not be parsed is still shown: as its text, without an answer.
        answer = response.answer
        reasoning = response.reasoning if answer else response.reasoning or response.text
        return {
            "answer": _shown(answer, problem) if answer else "none",
            "answer_letter": answer or "none",
            "option_text": option_text(answer, problem.data["options"]) if answer else "",
            "reasoning": self.excerpt(reasoning),
        }

    def truth_values(
        self, problem: Problem, response: Response, demonstration: Demonstration | None
    ) -> Mapping[str, Any]:
        truth = super().truth_values(problem, response, demonstration)
        # `right_letter` and `right_text` are for users' files; the default file has `right_answer`.
        right = demonstration.answer if demonstration else ""
        return {
            **truth,
            "right_answer": _shown(right, problem) if right else "",
            "right_letter": right,
            "right_text": option_text(right, problem.data["options"]) if right else "",
        }

    def read(self, problem: Problem, text: str) -> str:
        def read(part: str) -> str:
            return read_letter(part, problem.data["options"])

        text = before_next_question(read, text)
        return read_unless_withdrawn(read, text, begin=end_of_object(text, "solution"), only_sure=True)

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        return letters(OPTIONS)[int(rng.integers(OPTIONS))]

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return msgspec.json.encode({"reasoning": reasoning, "solution": answer}).decode()


def _shown(letter: str, problem: Problem) -> str:
    return f"{letter} ({option_text(letter, problem.data['options'])})"
