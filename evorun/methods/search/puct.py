"""PUCT over the ancestry of states: which of them to expand next (TTT-Discover, arXiv 2601.16175, and its code).

A state that has led to something better, or has rarely been tried, comes first. Where several parents make a child
together, an expansion counts once for each of them and for each of their ancestors (ours; the paper's have one parent).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

MIN_SCALE = 1e-6
"""Least scale of the bonus (authors' code): among equal rewards the rarely tried states still come first."""


def puct_scores(
    rewards: ArrayLike,
    best_children: ArrayLike,
    visits: ArrayLike,
    initial: ArrayLike,
    *,
    expansions: int,
    exploration: float = 1.0,
) -> NDArray[np.float64]:
    """Return the score Q + c scale P sqrt(1 + T) / (1 + n) of each state; all arrays have the shape (states,).

    rewards: of the states, higher is better. best_children (Q): the best reward of a child so far, NaN where there is
    none, so that the state's own reward counts. visits (n): expansions of the state or its descendants. initial: True
    for states without parents; scale is the range of the other rewards, and of all where there are no others.
    expansions (T): total so far. exploration: c. The prior P falls linearly with the reward's rank, from the best state
    to the worst; of equal rewards the earlier ranks first.
    """
    own, best = np.asarray(rewards, dtype=np.float64), np.asarray(best_children, dtype=np.float64)
    found = ~np.asarray(initial, dtype=bool)
    scale = max(MIN_SCALE, float(np.ptp(own[found] if found.any() else own)))
    prior = np.empty(len(own))
    prior[np.argsort(-own, kind="stable")] = np.arange(len(own), 0, -1)
    prior /= prior.sum()
    bonus = exploration * scale * prior * np.sqrt(1 + expansions) / (1 + np.asarray(visits))
    return np.asarray(np.where(np.isnan(best), own, best) + bonus)


class Puct:
    """States by their ids, their parents, and the number of times that each has been expanded."""

    def __init__(self, exploration: float = 1.0) -> None:
        """exploration: c, the weight of what has rarely been tried."""
        self._exploration = exploration
        self._parents: dict[str, tuple[str, ...]] = {}
        self._children: dict[str, list[str]] = {}
        self.visits: Counter[str] = Counter()
        self.expansions = 0

    @property
    def states(self) -> Sequence[str]:
        """All states, in the order in which they were added."""
        return tuple(self._parents)

    def add(self, state: str, parents: Sequence[str] = ()) -> None:
        """Add a state after its parents; one without parents is initial."""
        self._parents[state] = tuple(parents)
        for parent in parents:
            self._children.setdefault(parent, []).append(state)

    def expand(self, *parents: str) -> None:
        """Count an expansion of parents that together make a child, or a group of children."""
        self.visits.update(_reachable(parents, self._parents))
        self.expansions += 1

    def choose(self, rewards: Mapping[str, float], among: Sequence[str], count: int) -> list[str]:
        """Return at most `count` states of `among`, the highest score first, none an ancestor of another.

        rewards: of all states that have one, also of children that are no longer eligible; those of `among` are
        needed. Fewer states are returned when all others are ancestors or descendants of the chosen ones.
        """
        if not among:
            return []
        own = np.array([rewards[state] for state in among])
        children = [
            max((rewards[child] for child in self._children.get(state, ()) if child in rewards), default=np.nan)
            for state in among
        ]
        visits = [self.visits[state] for state in among]
        initial = [not self._parents[state] for state in among]
        scores = puct_scores(own, children, visits, initial, expansions=self.expansions, exploration=self._exploration)
        chosen: list[str] = []
        blocked: set[str] = set()
        for index in np.lexsort((-own, -scores)).tolist():  # by score, then by reward, then by arrival
            if len(chosen) == count:
                break
            if (state := among[index]) not in blocked:
                chosen.append(state)
                blocked |= _reachable([state], self._parents) | _reachable([state], self._children)
        return chosen


def _reachable(states: Iterable[str], edges: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the states and all that follow from them along the edges."""
    reached: set[str] = set()
    pending = list(states)
    while pending:
        state = pending.pop()
        if state not in reached:
            reached.add(state)
            pending.extend(edges.get(state, ()))
    return reached
