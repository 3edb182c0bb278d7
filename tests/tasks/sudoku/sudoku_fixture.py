"""Puzzles for the tests, and what the paper's formulas say, written from them and for no speed."""

from functools import cache
from typing import Any

import numpy as np

from building import load_task
from evorun.runs.candidates import Response
from evorun.tasks.base import LoadedTask, Problem
from evorun.tasks.capabilities import Diagnosis, Individual
from evorun.tasks.sudoku.sudoku import Sudoku

TASK = Sudoku(name_givens=True)
"""With the error kind that the paper does not have: all of them are tested."""
NO_TOOLS: Any = None  # the symbolic system is pure
EMPTY_CELLS = {2: 8, 3: 40, 4: 90}


@cache
def loaded(box: int) -> LoadedTask:
    return load_task("sudoku", box=box, empty_cells=EMPTY_CELLS[box], instances=4, validation_instances=2)


def problems(box: int) -> list[Problem]:
    return [shot.problem for shot in loaded(box).validation]


def solution(box: int, number: int) -> list[list[int]]:
    return rows_of(loaded(box).validation[number].answer)


def rows_of(text: str) -> list[list[int]]:
    return [[0 if word == "." else int(word) for word in line.split(" ")] for line in text.split("\n")]


def text_of(rows: Any) -> str:
    return "\n".join(" ".join(str(number) for number in row) for row in rows)


def individual(answer: str | None, fitness: float, found: tuple[Any, ...] = ()) -> Individual:
    response = Response(text="?", answer=None) if answer is None else TASK.response(answer)
    return Individual(response=response, fitness=fitness, errors=Diagnosis(findings=found))


def judged(problem: Problem, rows: list[list[int]], max_errors: int = 1000) -> Individual:
    """An individual as Lyria's oracle and verifier see it."""
    response = TASK.response(text_of(rows))
    verified = TASK.verified(problem, response, max_errors)
    return Individual(response=response, fitness=verified.fitness, errors=verified.errors)


def noisy(problem: Problem, rows: list[list[int]], rng: np.random.Generator) -> list[list[int]]:
    """A grid with some cells changed: mostly removed ones, at times a given one, at times out of range."""
    n = len(rows)
    changed = [list(row) for row in rows]
    puzzle = rows_of(problem.data["grid"])
    for _ in range(int(rng.integers(0, 2 * n))):
        i, j = (int(x) for x in rng.integers(0, n, size=2))
        if puzzle[i][j] and rng.random() < 0.9:
            continue
        changed[i][j] = int(rng.integers(-1, n + 3)) if rng.random() < 0.1 else int(rng.integers(1, n + 1))
    return changed


# --- section 3.1 and 4.1.1, literally ---


def unit_cells(n: int, box: int) -> dict[str, list[list[tuple[int, int]]]]:
    return {
        "row": [[(i, j) for j in range(n)] for i in range(n)],
        "col": [[(i, j) for i in range(n)] for j in range(n)],
        "box": [
            [(i, j) for i in range(n) for j in range(n) if (i // box, j // box) == (a, b)]
            for a in range(box)
            for b in range(box)
        ],
    }


def paper_metrics(problem: Problem, s: list[list[int]], to_the_letter: bool = False) -> tuple[bool, float, float]:
    """CR, SC and PS, with a unit that holds a changed given counted as unsatisfied unless `to_the_letter`."""
    box, puzzle = problem.data["box"], rows_of(problem.data["grid"])
    n = box * box
    wanted = set(range(1, n + 1))
    share = {
        kind: sum(
            {s[i][j] for i, j in cells} == wanted
            and (to_the_letter or all(puzzle[i][j] in (0, s[i][j]) for i, j in cells))
            for cells in units
        )
        for kind, units in unit_cells(n, box).items()
    }
    score = 100 / (3 * n) * sum(share.values())
    penalised = 100.0
    for satisfied in share.values():
        penalised *= (satisfied / n) ** (1 / 3)
    return sum(share.values()) == 3 * n, score, penalised


def paper_errors(problem: Problem, s: list[list[int]]) -> list[list[Any]]:
    box, puzzle = problem.data["box"], rows_of(problem.data["grid"])
    n = box * box
    units = unit_cells(n, box)
    found: list[list[Any]] = []
    for i in range(n):
        for j in range(n):
            if puzzle[i][j]:
                if s[i][j] != puzzle[i][j]:
                    found.append([i, j, "given"])
                continue
            for kind, all_units in units.items():
                (own,) = (cells for cells in all_units if (i, j) in cells)
                twice = any(s[a][b] == s[i][j] for a, b in own if (a, b) != (i, j))
                if twice or not 1 <= s[i][j] <= n:
                    found.append([i, j, kind])
    return found
