"""Small tasks as a third party would write them: with right answers, with replies in JSON, and with scores alone."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from evorun.runs.candidates import Response
from evorun.runs.scores import Score
from evorun.tasks.base import Grade, LoadedTask, Problem, Row, TaskConfig
from evorun.tasks.json_text import read_object
from evorun.tasks.loading import load_rows
from evorun.tasks.text_task import TextTask


class Sums(TextTask):
    name = "sums"
    answer_format = "End with #### NUMBER."

    def question(self, problem: Problem) -> str:
        return str(problem.data["question"])

    def read(self, problem: Problem, text: str) -> str:
        found = re.findall(r"#### (-?\d+)", text)
        if not found:
            raise ValueError("no_number: expected #### NUMBER")
        return str(found[-1])

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return f"{reasoning}\n#### {answer}".lstrip()


class OwnSums(Sums):
    """Reads only answers that no other problem of `sums` has: those of the same last digit, from 0 to 99."""

    def read(self, problem: Problem, text: str) -> str:
        number = super().read(problem, text)
        if number not in self.own(problem):
            raise ValueError("foreign: expected a number of the problem's own")
        return number

    def own(self, problem: Problem) -> list[str]:
        first = int(re.findall(r"\d+", problem.data["question"])[0])
        return [str(number) for number in range((first + 5) % 10, 100, 10)]


class DrawnSums(OwnSums):
    """Also draws answers that it reads."""

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        return str(rng.choice(self.own(problem)))


class Shares(Sums):
    """Scores the share of the right sum, and forgets that a larger one is wrong."""

    scores = (Score("share", 0, 1),)

    def read(self, problem: Problem, text: str) -> str:
        answer = super().read(problem, text)
        if len(answer) > 9:
            raise ValueError(f"too_long: expected a small number, got {answer:.20}")
        return answer

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        return Grade(scores={"share": int(response.answer or 0) / int(reference)})

    def wrong_answers(self, problem: Problem, gold: str) -> Sequence[str]:
        return [*(str(number) for number in range(int(gold))), str(2 * int(gold))]


class JsonSums(Sums):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.reply_schema = {"type": "object"}

    def read(self, problem: Problem, text: str) -> str:
        reply = read_object(text, "solution")
        if reply is None or "solution" not in reply:
            raise ValueError("no_solution: expected a JSON object with a solution")
        return str(reply["solution"])

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return msgspec.json.encode({"reasoning": reasoning, "solution": answer}).decode()


class Essays(TextTask):
    """Scored by how many words are missing: there is no right or wrong."""

    name = "essays"
    scores = (Score("missing", 0, None, higher_is_better=False), Score("words", 0, None))
    answer_format = "Write it as plain text."

    def question(self, problem: Problem) -> str:
        return f"Write about {problem.data['topic']}."

    def read(self, problem: Problem, text: str) -> str:
        return text.strip()

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return answer

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        words = len((response.answer or "").split())
        return Grade(scores={"missing": max(0.0, 100.0 - words), "words": float(words)})


class Haikus(Essays):
    """Scored from 0 to 10 by their form, a third of it for each line."""

    name = "haikus"
    scores = (Score("form", 0, 10),)
    answer_format = "Write three lines."

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        lines = (response.answer or "").splitlines()
        return Grade(scores={"form": 10 * min(len(lines), 3) / 3})


def sums(count: int, start: int = 0) -> list[Row]:
    return [
        Row(Problem(id=f"q{n}", stratum="all", data={"question": f"How much is {n} + 5?"}), str(n + 5))
        for n in range(start, start + count)
    ]


def essays(*references: str | None) -> list[Row]:
    return [
        Row(Problem(id=f"e{n}", stratum="all", data={"topic": f"subject {n}"}), text)
        for n, text in enumerate(references)
    ]


@dataclass
class HaikusConfig(TaskConfig):
    """Two problems to work on and one that is held out, with examples that are as good as can be and not."""

    task_class = Haikus

    name: str = "haikus"

    def load(self) -> LoadedTask:
        *rows, held_out = essays("Rain.\nWind.\nSun.", "Frogs.\nPonds.", "Snow.\nIce.\nCold.")
        return load_rows(Haikus(), rows, validation=[held_out])
