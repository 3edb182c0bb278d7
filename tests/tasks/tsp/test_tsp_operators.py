"""The symbolic operators: what may change, and where it comes from."""

from collections import Counter

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tsp_fixture import individual, problem_of, symmetric, task_for

from evorun.tasks.capabilities import Diagnosis

N = 6
MATRIX = symmetric(N, range(100, 1600, 100))
TASK, PROBLEM = task_for(MATRIX), problem_of(MATRIX)
ROUTES = st.one_of(st.permutations(range(1, N)), st.lists(st.integers(0, N - 1), max_size=4 * N - 2)).map(
    lambda inner: [0, *inner, 0]
)


def text(route: list[int]) -> str:
    return ",".join(map(str, route))


def route_of(answer: str | None) -> list[int]:
    assert answer is not None
    return [int(city) for city in answer.split(",")]


@given(ROUTES, ROUTES, st.integers(0, 2**32 - 1))
def test_a_child_begins_like_one_parent_and_goes_on_like_the_other(a: list[int], b: list[int], seed: int) -> None:
    first, second = individual(text(a)), individual(text(b))
    child = TASK.crossover(PROBLEM, first, second, np.random.default_rng(seed))
    route = route_of(child.answer)
    fits = [route == a[: min(k, len(a) - 1)] + b[min(k, len(b) - 1) :] for k in range(1, N)]
    assert any(fits)
    if child.answer in (first.response.answer, second.response.answer):
        assert child is first.response or child is second.response
    assert TASK.parse(PROBLEM, child.text or f"```\n{child.answer}\n```").answer == child.answer


def test_every_cut_is_as_likely() -> None:
    first, second = individual("0,1,2,3,4,5,0"), individual("0,5,4,2,1,3,0")
    rng = np.random.default_rng(0)
    drawn = Counter(TASK.crossover(PROBLEM, first, second, rng).answer for _ in range(5000))
    cuts = [[0, 1, 2, 3, 4, 5][:k] + [0, 5, 4, 2, 1, 3][k:] for k in range(1, N)]
    assert set(drawn) == {text([*cut, 0]) for cut in cuts}
    assert all(abs(count - 1000) < 150 for count in drawn.values())


def test_a_right_parent_is_returned_itself_the_first_before_the_second() -> None:
    rng = np.random.default_rng(0)
    right, wrong = individual("0,1,2,3,4,5,0", fitness=100), individual("0,1,2,3,5,4,0", missing=[4])
    other = individual("0,2,1,3,4,5,0", fitness=100)
    assert TASK.crossover(PROBLEM, right, wrong, rng) is right.response
    assert TASK.crossover(PROBLEM, wrong, right, rng) is right.response
    assert TASK.crossover(PROBLEM, right, other, rng) is right.response


def test_parents_that_could_not_be_read() -> None:
    rng = np.random.default_rng(0)
    none, other, good = individual(None), individual(None), individual("0,1,0")
    assert TASK.crossover(PROBLEM, none, good, rng) is good.response
    assert TASK.crossover(PROBLEM, good, none, rng) is good.response
    assert TASK.crossover(PROBLEM, none, other, rng) is none.response
    assert TASK.mutate(PROBLEM, individual(None, missing=[1]), rng).answer is None


@given(ROUTES, st.data(), st.integers(0, 2**32 - 1))
def test_mutation_puts_missing_cities_in_place_of_repeats(route: list[int], data: st.DataObject, seed: int) -> None:
    absent = [city for city in range(N) if city not in route]
    reported = absent[: data.draw(st.integers(0, len(absent)))]
    parent = individual(text(route), missing=reported)
    response = TASK.mutate(PROBLEM, parent, np.random.default_rng(seed))
    child = route_of(response.answer)
    repeats = [place for place in range(1, len(route) - 1) if route[place] in route[:place]]
    changed = [place for place in range(len(route)) if route[place] != child[place]]
    assert len(child) == len(route)
    assert changed == repeats[: min(len(repeats), len(reported))]
    put = [child[place] for place in changed]
    assert len(set(put)) == len(put)
    assert set(put) <= set(reported)
    assert set(route) <= set(child), "no city is lost"
    assert (response is parent.response) == (not changed)


def test_a_route_of_the_right_length_is_complete_once_all_is_reported() -> None:
    rng = np.random.default_rng(0)
    children = {TASK.mutate(PROBLEM, individual("0,3,3,3,0,5,0", missing=[1, 2, 4]), rng).answer for _ in range(300)}
    assert len(children) == 6  # each way to put three cities in three places
    assert all(sorted(route_of(child)) == [0, 0, 1, 2, 3, 4, 5] for child in children)


def test_a_city_that_is_only_repeated_stays() -> None:
    parent = individual("0,1,2,2,3,4,5,0")
    parent = msgspec.structs.replace(parent, errors=Diagnosis(text="repeated 2", findings=(["repeated", 2],)))
    assert TASK.mutate(PROBLEM, parent, np.random.default_rng(0)) is parent.response


def test_cities_that_a_model_wrongly_calls_missing_are_put_in_all_the_same() -> None:
    child = TASK.mutate(PROBLEM, individual("0,1,1,0", missing=[1]), np.random.default_rng(0))
    assert child.answer == "0,1,1,0"
    child = TASK.mutate(PROBLEM, individual("0,1,2,2,0", missing=[1]), np.random.default_rng(0))
    assert child.answer == "0,1,2,1,0"
