"""The simulated model: right as often as its skill says, better with better parents, and always well-formed."""

import itertools
from statistics import mean
from typing import Any

import numpy as np
import pytest

from building import load_task
from evorun.tasks.tsp.tsp import SolvedTour

LOADED = load_task("tsp", instances=2)
TASK: Any = LOADED.task
PROBLEM = LOADED.problems[0]
GOLD = LOADED.simulator._puzzles[PROBLEM.id].attempt(1.0, np.random.default_rng(0))  # type: ignore[attr-defined]
TOUR = SolvedTour(TASK, PROBLEM, GOLD)
ODD = ["0,0", "0,1,0", "0,1,1,1,1,0", "0," * 30 + "0", "0,9,9,0,0,3,3,3,2,0,0", "0,5,4,3,2,1,0"]
DRAWS = 600


def attempts(skill: float) -> list[str]:
    rng = np.random.default_rng(1)
    return [TOUR.attempt(skill, rng) for _ in range(DRAWS)]


def revisions(
    answers: list[str], choice: float = 0.75, repair: float = 0.15, slip: float = 0.0, draws: int = 20
) -> list[str]:
    rng = np.random.default_rng(2)
    return [TOUR.revise(answers, choice, repair, slip, rng) for _ in range(draws)]


def quality(answers: list[str]) -> float:
    return mean(TOUR.fitness(answer) for answer in answers)


def right_edges(answer: str) -> int:
    def edges(text: str) -> set[frozenset[str]]:
        route = text.split(",")
        return {frozenset(pair) for pair in itertools.pairwise(route)}

    return len(edges(answer) & edges(GOLD))


@pytest.mark.sample(3)
@pytest.mark.parametrize("skill", [-0.2, 0.0, 0.4, 0.9, 1.0, 1.3])
def test_every_attempt_can_be_read(skill: float) -> None:
    assert all(TASK.parse(PROBLEM, f"```\n{answer}\n```").answer == answer for answer in attempts(skill))


def test_attempts_get_better_with_skill() -> None:
    worst, poor, fair, best = (quality(attempts(skill)) for skill in (0.0, 0.4, 0.8, 1.0))
    assert worst < poor < fair < best == 100


def test_some_attempts_leave_a_city_out_or_repeat_one() -> None:
    routes = [answer.split(",") for answer in attempts(0.2)]
    omitting = [route for route in routes if len(set(route)) < 10]
    assert mean(len(set(route)) < 10 for route in routes) == pytest.approx(0.2 * 0.8, abs=0.04)
    assert {len(route) for route in omitting} == {10, 11}


def test_every_revision_can_be_read_whatever_it_is_made_of() -> None:
    for answers in [[odd] for odd in ODD] + [ODD, [GOLD, *ODD]]:
        for repair, slip in ((0.0, 0.0), (0.15, 0.3), (1.0, 1.0)):
            for answer in revisions(answers, repair=repair, slip=slip, draws=50):
                assert TASK.parse(PROBLEM, f"```\n{answer}\n```").answer == answer


def test_without_repair_and_slips_an_answer_stays_as_it_is_up_to_its_direction() -> None:
    for answer in attempts(0.3)[:60]:
        backwards = ",".join(reversed(answer.split(",")))
        assert set(revisions([answer], choice=1, repair=0, draws=5)) <= {answer, backwards}


def test_full_repair_ends_at_the_shortest_route() -> None:
    for answer in [*attempts(0.2)[:60], *ODD]:
        assert set(revisions([answer], choice=1, repair=1, draws=3)) == {GOLD}


def test_repair_loses_no_right_edge_and_improves() -> None:
    for answer in attempts(0.3)[:30]:
        before = right_edges(answer)
        if len(set(answer.split(","))) == 10:
            assert all(right_edges(revised) >= before for revised in revisions([answer]))
    poor = attempts(0.2)[:40]
    rng = np.random.default_rng(0)
    mended = [TOUR.revise([answer], 0.75, 0.15, 0.0, rng) for answer in poor for _ in range(10)]
    assert mean(map(right_edges, mended)) > mean(map(right_edges, poor)) + 0.5


def test_two_answers_are_merged_well_or_badly_by_choice() -> None:
    poor = attempts(0.4)
    pairs = [poor[i : i + 2] for i in range(0, 100, 2)]
    rng = np.random.default_rng(0)
    by_choice = [
        mean(right_edges(TOUR.revise(pair, choice, 0.0, 0.0, rng)) for pair in pairs for _ in range(10))
        for choice in (0.0, 0.5, 1.0)
    ]
    assert by_choice == sorted(by_choice)
    assert by_choice[2] > by_choice[0] + 1


def test_slips_lose_what_was_right() -> None:
    kept = mean(answer == GOLD for answer in revisions([GOLD], slip=0.05, draws=DRAWS))
    assert kept == pytest.approx(0.95**9, abs=0.05)
