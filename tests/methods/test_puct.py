"""PUCT: its formula by loops over an explicit tree, blocked lineages, and the parents that methods choose by it."""

from itertools import combinations
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from building import make_method
from evorun.methods.lyria.population import Member, select_by_puct
from evorun.methods.search.puct import Puct, puct_scores
from evorun.runs.candidates import Candidate
from evorun.tasks.capabilities import Diagnosis, Individual
from method_fixture import Ask, Scripted, solve


def test_a_hand_worked_example() -> None:
    """Two initial states; the first was expanded twice, its child once."""
    scores = puct_scores(
        [1.0, 2.0, 4.0, 3.0], [4.0, np.nan, 3.0, np.nan], [3, 0, 1, 0], [True, True, False, False], expansions=3
    )
    # The range of the found states is 1; priors are 0.1, 0.2, 0.4, 0.3; sqrt(1 + 3) = 2.
    assert scores == pytest.approx([4 + 0.2 / 4, 2 + 0.4, 3 + 0.8 / 2, 3 + 0.6])
    assert puct_scores([5.0, 5.0], [np.nan] * 2, [0, 9], [True] * 2, expansions=9, exploration=2.0) == pytest.approx(
        [5 + 2e-6 * 2 / 3 * sqrt(10), 5 + 2e-6 / 3 * sqrt(10) / 10]
    )


class Explicit:
    """The paper's bookkeeping, a state with one parent at a time, by walking up the tree after every expansion."""

    def __init__(self) -> None:
        self.parent: dict[str, str | None] = {}
        self.reward: dict[str, float] = {}
        self.visits: dict[str, int] = {}
        self.total = 0

    def line(self, state: str) -> list[str]:
        up: str | None = state
        found = []
        while up is not None:
            found.append(up)
            up = self.parent[up]
        return found

    def expand(self, state: str) -> None:
        for each in self.line(state):
            self.visits[each] = self.visits.get(each, 0) + 1
        self.total += 1

    def score(self, state: str) -> float:
        found = [reward for each, reward in self.reward.items() if self.parent[each] is not None]
        found = found or list(self.reward.values())
        scale = max(max(found) - min(found), 1e-6)
        order = sorted(self.reward, key=lambda each: -self.reward[each])
        count = len(order)
        prior = (count - order.index(state)) / (count * (count + 1) / 2)
        children = [self.reward[each] for each, parent in self.parent.items() if parent == state]
        best = max(children) if children else self.reward[state]
        return best + scale * prior * sqrt(1 + self.total) / (1 + self.visits.get(state, 0))

    def choose(self, count: int) -> list[str]:
        scores = {state: self.score(state) for state in self.reward}
        chosen: list[str] = []
        for state in sorted(self.reward, key=lambda each: (-scores[each], -self.reward[each])):
            related = any(state in self.line(other) or other in self.line(state) for other in chosen)
            if not related and len(chosen) < count:
                chosen.append(state)
        return chosen


@given(
    rewards=st.lists(st.integers(-50, 50), min_size=3, max_size=24, unique=True),
    parents=st.lists(st.integers(-1, 30), min_size=24, max_size=24),
    count=st.integers(1, 6),
)
def test_choices_are_those_of_an_explicit_tree(rewards: list[int], parents: list[int], count: int) -> None:
    puct, explicit = Puct(), Explicit()
    for index, (reward, parent) in enumerate(zip(rewards, parents, strict=False)):
        state, above = f"s{index}", f"s{parent % index}" if index > 1 and parent >= 0 else None
        puct.add(state, () if above is None else (above,))
        if above is not None:
            puct.expand(above)
            explicit.expand(above)
        # Distances of whole numbers from a square root: no two scores differ by a rounding error alone.
        explicit.parent[state], explicit.reward[state] = above, reward + index / 97
    chosen = puct.choose(explicit.reward, puct.states, count)
    assert chosen == explicit.choose(count)
    assert puct.visits == explicit.visits


def test_a_child_that_is_no_longer_eligible_still_speaks_for_its_parent() -> None:
    puct = Puct(exploration=0)
    for state, parents in {"a": (), "b": (), "a1": ("a",)}.items():
        puct.add(state, parents)
    assert puct.choose({"a": 1.0, "b": 2.0}, ["a", "b"], 1) == ["b"]
    assert puct.choose({"a": 1.0, "b": 2.0, "a1": 3.0}, ["a", "b"], 1) == ["a"]
    assert puct.choose({"a": 1.0}, [], 1) == []


def test_joint_parents_count_once_for_each_ancestor() -> None:
    puct = Puct()
    for state, parents in {"a": (), "b": (), "ab": ("a", "b"), "c": ("ab", "a")}.items():
        puct.add(state, parents)
    puct.expand("ab", "c")
    assert (puct.visits, puct.expansions) == ({"a": 1, "b": 1, "ab": 1, "c": 1}, 1)
    puct.expand("b")
    assert puct.visits["b"] == 2
    # Whoever is chosen first, all others are of its lineage.
    assert len(puct.choose(dict.fromkeys("abc", 1.0) | {"ab": 1.0}, ["a", "ab", "c"], 3)) == 1


def ancestors(candidates: dict[str, Candidate], name: str) -> set[str]:
    return {name}.union(*(ancestors(candidates, parent) for parent in candidates[name].parents))


async def test_duel_evolve_shows_parents_of_different_lineages() -> None:
    def later_is_better(ask: Ask) -> str:
        if ask.role == "generate":
            return f"a{ask.step * 10 + ask.index}"
        first, second = (int(ask.shown[side]["answer"][1:]) for side in "ab")
        return f"{'A' if first > second else 'B'}:"

    sizes = {"generations": 5, "initial_candidates": 6, "children": 4, "parents": 3, "duels": 8, "retries": 0}
    method = make_method("duel_evolve", parent_choice="puct", shared_parents=False, bound_width=3.0, **sizes)
    model = Scripted(later_is_better)
    history = await solve(method, model)
    candidates = {candidate.id: candidate for candidate in history[-1].candidates}
    sets = [candidate.parents for candidate in candidates.values() if candidate.parents]
    assert len(sets) == 20
    assert all(
        first not in ancestors(candidates, second) and second not in ancestors(candidates, first)
        for parents in sets
        for first, second in combinations(parents, 2)
    )
    assert {len(parents) for parents in sets} <= {1, 2, 3}
    # Children of one generation are expansions one after the other, so that parents of equal belief take turns.
    assert len(set(sets)) > 5


def test_lyrias_mating_pool_holds_the_elites_and_then_the_least_tried_of_the_good() -> None:
    puct, fitness = Puct(), dict[str, float]()
    population = []
    for index, value in enumerate([10.0, 40.0, 20.0, 30.0]):
        candidate = Candidate(text=str(index), answer=str(index), id=str(index), generation=0, operator="init")
        puct.add(candidate.id)
        fitness[candidate.id] = value
        individual = Individual(response=candidate, fitness=value, errors=Diagnosis())
        population.append(Member(candidate, individual, candidate.id.encode()))
    pool = [member.candidate.id for member in select_by_puct(population, 1, puct, fitness)]
    # Scores after the elite "1" was visited: 40 + 30 * .4 * 2^.5 / 2, 30 + 30 * .3 * 2^.5, 20 + ..., 10 + ...
    assert pool == ["1", "1", "3", "2"]
    assert (puct.visits, puct.expansions) == ({"1": 2, "3": 1, "2": 1}, 4)
