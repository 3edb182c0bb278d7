"""N-Queens: some queens stand on the board already, and any placement of the others that works is right."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

from evorun.fields import require_within
from evorun.runs.candidates import Response
from evorun.runs.scores import ACCURACY, Score
from evorun.runs.streams import stream
from evorun.tasks.base import DrawHelp, Grade, LoadedTask, Problem, TaskConfig
from evorun.tasks.loading import load_rows
from evorun.tasks.text_task import TextTask


class NQueens(TextTask):
    """Asks for the columns of the queens, row by row, as digits; a board has those that are given: `4..6....`."""

    name = "nqueens"
    scores = (ACCURACY, Score("queens_in_place", 0, 1))
    draw_help = DrawHelp(more_validation="raise task.held_out", keys="task.problems and task.draw_seed")
    answer_format = 'Reply with JSON: {"reasoning": "...", "queens": "..."}, with a digit for every row under `queens`.'

    def question(self, problem: Problem) -> str:
        board = problem.data["board"]
        return f"{len(board)}-Queens: replace the dots so that no queen attacks another. Columns by row: {board}"

    def read(self, problem: Problem, text: str) -> str:
        size = len(problem.data["board"])
        if not (found := re.search(rf'"queens":\s*"([1-{size}]{{{size}}})"', text)):
            raise ValueError(f"no_placement: expected {size} digits from 1 to {size} under `queens`")
        return found[1]

    def write(self, problem: Problem, answer: str, reasoning: str = "") -> str:
        return json.dumps({"reasoning": reasoning, "queens": answer})

    def score(self, problem: Problem, response: Response, reference: object) -> Grade:
        board, answer = problem.data["board"], response.answer or ""
        queens = zip(board, answer, unattacked(answer), strict=False)  # none without an answer
        share = sum(free and given in (".", column) for given, column, free in queens) / len(board)
        return Grade(correct=share == 1, scores={"queens_in_place": share})


def unattacked(columns: str) -> Iterator[bool]:
    """Say of each row's queen whether no other one attacks it."""
    queens = list(enumerate(map(int, columns)))
    return (all(r == s or (c != d and abs(c - d) != abs(r - s)) for s, d in queens) for r, c in queens)


@dataclass
class NQueensConfig(TaskConfig):
    """Boards drawn from all that have a solution, each with so many queens given."""

    task_class = NQueens
    name: str = "nqueens"
    description: str = "N-Queens, with some queens given"
    size: int = 8
    given: int = 2
    problems: int = 20
    held_out: int = 8
    reasoning_chars: int = 1000
    prompts: str | None = None

    def load(self) -> LoadedTask:
        require_within("task.size", self.size, 4, 8)
        require_within("task.given", self.given, 1, self.size - 1)
        boards: dict[str, str] = {}
        placed = [""]
        for _ in range(self.size):
            placed = [c + d for c in placed for d in "12345678"[: self.size] if d not in c and all(unattacked(c + d))]
        for columns, rows in product(placed, combinations(range(self.size), self.given)):
            boards["".join(column if row in rows else "." for row, column in enumerate(columns))] = columns
        require_within("task.problems", self.problems, 1, len(boards) - self.held_out)
        order = stream(self.draw_seed, self.name).permutation(sorted(boards)).tolist()[: self.held_out + self.problems]
        drawn = [(Problem(id=board, stratum="all", data={"board": board}), boards[board]) for board in order]
        task = NQueens(prompts=self.prompts)
        digits = {"type": "string", "pattern": f"^[1-{self.size}]{{{self.size}}}$"}
        keys = {"reasoning": {"type": "string", "maxLength": self.reasoning_chars}, "queens": digits}
        task.reply_schema = {"type": "object", "properties": keys, "required": [*keys], "additionalProperties": False}
        return load_rows(task, drawn[self.held_out :], validation=drawn[: self.held_out], source="generated")
