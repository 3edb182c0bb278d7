"""The states of TTT-Discover: what has been found so far, and which of it to go on from (arXiv 2601.16175)."""

from collections.abc import Sequence
from typing import NamedTuple

from evorun.methods.search.puct import Puct
from evorun.runs.candidates import Candidate


class State(NamedTuple):
    """A response with its reward, or nothing yet."""

    name: str
    """Unique."""
    candidate: Candidate | None
    """None where the problem is still asked from scratch."""
    reward: float
    """In [0, 1]."""
    key: str = ""
    """Equal for responses that count as duplicates."""


class States:
    """The buffer of states, of which PUCT chooses parents."""

    def __init__(self, initial: Sequence[State], *, size: int, children: int, exploration: float) -> None:
        """initial: never dropped. size: maximum number of states. children: of a parent that enter at each expansion.

        exploration: see `Puct`.
        """
        self._size = size
        self._children = children
        self._puct = Puct(exploration)
        self._rewards: dict[str, float] = {}
        """Rewards of all states ever, which count for their parents when they are no longer in the buffer."""
        self._initial = {state.name for state in initial}
        self._held: dict[str, State] = {}
        for state in initial:
            self._puct.add(state.name)
            self._rewards[state.name] = state.reward
            self._held[state.name] = state

    def __len__(self) -> int:
        return len(self._held)

    @property
    def held(self) -> Sequence[State]:
        """The states in the buffer, in the order of their arrival."""
        return list(self._held.values())

    def choose(self, count: int) -> list[State]:
        """Return at most `count` parents, none an ancestor of another."""
        return [self._held[name] for name in self._puct.choose(self._rewards, list(self._held), count)]

    def add(self, parent: State, children: Sequence[State]) -> None:
        """Count an expansion of a parent; add its best children, but for duplicates."""
        self._puct.expand(parent.name)
        for child in children:
            self._puct.add(child.name, [parent.name])
            self._rewards[child.name] = child.reward
        # Duplicates leave after the choice of the best, as in the released code: no worse child takes their place.
        keys = {state.key for state in self._held.values()}
        for child in sorted(children, key=lambda child: -child.reward)[: self._children]:
            if child.key not in keys:
                self._held[child.name] = child
                keys.add(child.key)

    def trim(self) -> None:
        """Drop the worst states beyond the buffer's size, once all children of a step are in."""
        found = [name for name in self._held if name not in self._initial]
        found.sort(key=lambda name: -self._rewards[name])
        dropped = set(found[max(self._size - len(self._initial), 0) :])
        self._held = {name: state for name, state in self._held.items() if name not in dropped}
