"""The symbolic operators against their formulas: which cells may change, and from whom the numbers come."""

from typing import Any

import numpy as np
import pytest
from sudoku_fixture import TASK, individual, judged, noisy, problems, rows_of, solution, text_of

from evorun.tasks.base import Problem
from evorun.tasks.capabilities import Individual

CASES = [(3, 3), (4, 1000)]


def cells(found: tuple[Any, ...]) -> set[tuple[int, int]]:
    return {(i, j) for i, j, _ in found}


def pairs(box: int, limit: int, count: int) -> list[tuple[Problem, Individual, Individual]]:
    rng = np.random.default_rng(box * 100 + limit)
    drawn = []
    for index in range(count):
        problem, right = problems(box)[index % 2], solution(box, index % 2)
        first, second = (judged(problem, noisy(problem, right, rng), limit) for _ in range(2))
        drawn.append((problem, first, second))
    return drawn


def phi(problem: Problem, first: Individual, second: Individual) -> str:
    """Section 4.1.6: the second parent, with the first's numbers at its errors that are the first's corrected cells."""
    puzzle = rows_of(problem.data["grid"])
    n = len(puzzle)
    removed = {(i, j) for i in range(n) for j in range(n) if not puzzle[i][j]}
    corrected = removed - cells(first.errors.findings)
    source, child = rows_of(first.response.answer or ""), rows_of(second.response.answer or "")
    for i, j in cells(second.errors.findings):
        if (i, j) in corrected:
            child[i][j] = source[i][j]
        elif (i, j) not in removed:
            child[i][j] = puzzle[i][j]
    return text_of(child)


@pytest.mark.parametrize(("box", "limit"), CASES)
def test_crossover_follows_the_formula(box: int, limit: int) -> None:
    changed = 0
    for problem, first, second in pairs(box, limit, 60):
        child = TASK.crossover(problem, first, second, np.random.default_rng(0))
        if first.fitness >= 100:
            assert child is first.response
        elif second.fitness >= 100:
            assert child is second.response
        else:
            assert child.answer == phi(problem, first, second)
            if child.answer == second.response.answer:
                assert child is second.response
            else:
                changed += 1
                assert TASK.parse(problem, child.text).answer == child.answer
    assert changed > 20


@pytest.mark.parametrize(("box", "limit"), CASES)
def test_mutation_changes_one_reported_cell_or_restores_a_given(box: int, limit: int) -> None:
    rng = np.random.default_rng(box)
    changed = restored = 0
    for problem, parent, _ in pairs(box, limit, 80):
        puzzle = rows_of(problem.data["grid"])
        child = TASK.mutate(problem, parent, rng)
        if child.answer == parent.response.answer:
            assert child is parent.response
            continue
        old, new = rows_of(parent.response.answer or ""), rows_of(child.answer or "")
        n = len(old)
        ((i, j),) = [(i, j) for i in range(n) for j in range(n) if old[i][j] != new[i][j]]
        assert (i, j) in cells(parent.errors.findings)
        assert 1 <= new[i][j] <= n
        if puzzle[i][j]:
            restored += 1
            assert new[i][j] == puzzle[i][j]
        changed += 1
    assert changed > 20
    assert restored > 0


def test_mutation_is_uniform_over_reported_cells_and_numbers() -> None:
    problem, rows = problems(3)[0], [[1] * 9 for _ in range(9)]
    puzzle = rows_of(problem.data["grid"])
    (a, b), (c, d) = [(i, j) for i in range(9) for j in range(9) if not puzzle[i][j]][:2]
    found = ([a, b, "row"], [a, b, "col"], [a, b, "box"], [c, d, "row"])  # a cell counts once, however often named
    parent = individual(text_of(rows), 0.0, found)
    rng = np.random.default_rng(5)
    counts = dict.fromkeys([(a, b), (c, d)], 0)
    numbers = dict.fromkeys(range(1, 10), 0)
    draws = 2000
    for _ in range(draws):
        new = rows_of(TASK.mutate(problem, parent, rng).answer or "")
        for i, j in counts:
            if new[i][j] != 1:
                counts[i, j] += 1
                numbers[new[i][j]] += 1
    assert all(abs(count - draws * 8 / 18) < 5 * (draws * 0.25) ** 0.5 for count in counts.values())
    assert all(abs(numbers[v] - draws / 9) < 5 * (draws * 8 / 81) ** 0.5 for v in range(2, 10))


def test_a_right_individual_is_left_alone_whatever_the_detector_says() -> None:
    problem, right = problems(3)[0], text_of(solution(3, 0))
    rng = np.random.default_rng(0)
    puzzle = rows_of(problem.data["grid"])
    every = tuple([i, j, "row"] for i in range(9) for j in range(9) if not puzzle[i][j])
    best = individual(right, 100.0, every)
    other = individual(text_of([[1] * 9] * 9), 20.0)
    assert TASK.crossover(problem, best, other, rng) is best.response
    assert TASK.crossover(problem, other, best, rng) is best.response
    assert TASK.mutate(problem, best, rng) is best.response


def test_a_wrong_individual_without_reported_errors_is_no_right_one() -> None:
    problem = problems(3)[0]
    rng = np.random.default_rng(0)
    blind = individual(text_of([[1] * 9] * 9), 20.0)
    errors = ([0, 0, "row"], [1, 1, "col"])
    puzzle = rows_of(problem.data["grid"])
    seen = individual(text_of([[2] * 9] * 9), 20.0, errors)
    child = rows_of(TASK.crossover(problem, blind, seen, rng).answer or "")
    assert child[0][0] == (puzzle[0][0] or 1)
    assert child[1][1] == (puzzle[1][1] or 1)
    assert TASK.crossover(problem, seen, blind, rng) is blind.response
    assert TASK.mutate(problem, blind, rng) is blind.response


def test_unreadable_parents() -> None:
    problem = problems(3)[0]
    rng = np.random.default_rng(0)
    nothing, nothing_else = individual(None, 0.0), individual(None, 0.0)
    something = individual(text_of([[1] * 9] * 9), 0.0)
    assert TASK.crossover(problem, nothing, something, rng) is something.response
    assert TASK.crossover(problem, something, nothing, rng) is something.response
    assert TASK.crossover(problem, nothing, nothing_else, rng) is nothing.response
    assert TASK.mutate(problem, nothing, rng) is nothing.response


def test_a_model_that_blames_a_kept_given_causes_no_change() -> None:
    problem, right = problems(3)[0], solution(3, 0)
    puzzle = rows_of(problem.data["grid"])
    i, j = next((i, j) for i in range(9) for j in range(9) if puzzle[i][j])
    blamed = individual(text_of(right), 60.0, ([i, j, "row"],))
    other = individual(text_of([[1] * 9] * 9), 20.0)
    for seed in range(20):
        assert TASK.mutate(problem, blamed, np.random.default_rng(seed)) is blamed.response
    assert TASK.crossover(problem, other, blamed, np.random.default_rng(0)) is blamed.response
    a, b = next((a, b) for a in range(9) for b in range(9) if not puzzle[a][b])
    both = individual(text_of(right), 60.0, ([i, j, "row"], [a, b, "row"]))
    children = [TASK.mutate(problem, both, np.random.default_rng(seed)) for seed in range(100)]
    assert sum(child is not both.response for child in children) > 75  # 8 of 9 numbers are other ones
