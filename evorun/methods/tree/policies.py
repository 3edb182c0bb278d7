"""Policies of a tree search over responses: which node to expand next, and by which of several models.

`AdaptiveBranching` is AB-MCTS-A (arXiv 2503.04412). The others are its baselines in the authors' package treequest
0.3.3. A node is a scored response, the root is the problem alone, and an expansion adds a child.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, log, sqrt
from typing import NamedTuple, Protocol

import numpy as np

from evorun.methods.tree.beliefs import Belief


@dataclass(eq=False)
class Node:
    """A scored response, or the root."""

    parent: "Node | None" = None
    score: float = 0.0
    """In [0, 1]."""
    model: int = 0
    """The model that wrote it."""
    children: list["Node"] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """Number of expansions between the root and the node."""
        return 0 if self.parent is None else self.parent.depth + 1


class Expansion(NamedTuple):
    """A request for a child of a node, by a model."""

    node: Node
    model: int


class Policy(Protocol):
    """Chooses expansions; `add` tells it each child, so that it may choose the next by their scores."""

    def choose(self, count: int, rngs: Callable[[int], np.random.Generator]) -> list[Expansion]:
        """Return at most `count` expansions to make together, at least one; `rngs(i)` is the stream of the i-th."""
        ...

    def add(self, child: Node) -> None:
        """Take in a child that has been attached to its parent."""
        ...


class ModelChoice:
    """A bandit over models by all scores of the tree: Thompson sampling, or UCB1."""

    def __init__(self, models: int, rule: str, make_belief: Callable[[], Belief]) -> None:
        """rule: thompson or ucb."""
        self._rule = rule
        self._beliefs = [make_belief() for _ in range(models)]
        self._scores: list[list[float]] = [[] for _ in range(models)]

    def add(self, child: Node) -> None:
        """Observe the score of a child of its model."""
        self._beliefs[child.model].add(child.score)
        self._scores[child.model].append(child.score)

    def draw(self, rng: np.random.Generator) -> int:
        """Return a model; a single one takes no random number."""
        if len(self._beliefs) == 1:
            return 0
        if self._rule == "thompson":
            return _argmax([belief.draw(rng) for belief in self._beliefs])
        return upper_confidence_bound(self._scores)


def upper_confidence_bound(scores: Sequence[Sequence[float]]) -> int:
    """Return the arm with the largest mean + sqrt(2 ln n / n_i), the first without a score before all others."""
    total = sum(map(len, scores))
    return _argmax([sum(own) / len(own) + sqrt(2 * log(total) / len(own)) if own else inf for own in scores])


def _argmax(values: Sequence[float]) -> int:
    """Return the index of the largest value, the first of equals."""
    return max(range(len(values)), key=values.__getitem__)


class _Arms:
    """Beliefs at a node: about a new child (GEN), about its children's subtrees (CONT), and about its own subtree."""

    def __init__(self, make_belief: Callable[[], Belief]) -> None:
        self.generate, self.go_on, self.own = make_belief(), make_belief(), make_belief()


class AdaptiveBranching:
    """Adaptive branching: at each node Thompson sampling weighs a new child against the children that there are."""

    def __init__(self, root: Node, models: ModelChoice, make_belief: Callable[[], Belief]) -> None:
        self._root = root
        self._models = models
        self._make_belief = make_belief
        self._arms = {root: _Arms(make_belief)}

    def choose(self, count: int, rngs: Callable[[int], np.random.Generator]) -> list[Expansion]:
        return [self._descend(rngs(index)) for index in range(count)]

    def _descend(self, rng: np.random.Generator) -> Expansion:
        node = self._root
        while node.children:
            arms = self._arms[node]
            if arms.generate.draw(rng) >= arms.go_on.draw(rng):
                break
            node = node.children[_argmax([self._arms[child].own.draw(rng) for child in node.children])]
        return Expansion(node, self._models.draw(rng))

    def add(self, child: Node) -> None:
        self._models.add(child)
        self._arms[child] = _Arms(self._make_belief)
        self._arms[child].own.add(child.score)
        node = child.parent
        assert node is not None  # noqa: S101 - a child has a parent
        self._arms[node].generate.add(child.score)
        while node.parent is not None:  # from the expanded node upward
            self._arms[node].own.add(child.score)
            self._arms[node.parent].go_on.add(child.score)
            node = node.parent


class Ucb:
    """Repeated sampling from the root, with a bandit over the models; a batch has one model."""

    def __init__(self, root: Node, models: int) -> None:
        self._root = root
        self._scores: list[list[float]] = [[] for _ in range(models)]

    def choose(self, count: int, rngs: Callable[[int], np.random.Generator]) -> list[Expansion]:
        return [Expansion(self._root, upper_confidence_bound(self._scores))] * count

    def add(self, child: Node) -> None:
        self._scores[child.model].append(child.score)


class _Queued:
    """Expands several nodes of one choice, each by every model several times, before it chooses again."""

    def __init__(self, root: Node, models: int) -> None:
        self._root = root
        self._models = models
        self._queue: deque[Expansion] = deque()

    def choose(self, count: int, rngs: Callable[[int], np.random.Generator]) -> list[Expansion]:
        if not self._queue:
            nodes, times = self._next()
            self._queue.extend(
                Expansion(node, model) for node in nodes for model in range(self._models) for _ in range(times)
            )
        return [self._queue.popleft() for _ in range(min(count, len(self._queue)))]

    def _next(self) -> tuple[list[Node], int]:
        """Return the nodes to expand, and how many children each model adds to each."""
        raise NotImplementedError


class BestFirst(_Queued):
    """The best response that has no child yet is expanded; of equals the shallower, then the earlier one."""

    def __init__(self, root: Node, models: int, width: int) -> None:
        """width: children per model."""
        super().__init__(root, models)
        self._width = width
        self._leaves: list[Node] = []

    def add(self, child: Node) -> None:
        self._leaves.append(child)

    def _next(self) -> tuple[list[Node], int]:
        if not self._leaves:
            return [self._root], self._width
        best = min(self._leaves, key=lambda node: (-node.score, node.depth))
        self._leaves.remove(best)
        return [best], self._width


class BreadthFirst(_Queued):
    """Tree of Thoughts' breadth-first search: the best responses of a level make the next level."""

    def __init__(self, root: Node, models: int, breadth: int, width: int) -> None:
        """breadth: responses of a level that are expanded. width: children of each, shared out among the models."""
        super().__init__(root, models)
        self._breadth = breadth
        self._width = max(1, width // models)
        self._level: list[Node] = []

    def add(self, child: Node) -> None:
        self._level.append(child)

    def _next(self) -> tuple[list[Node], int]:
        best = sorted(self._level, key=lambda node: -node.score)[: self._breadth]
        self._level = []
        return best or [self._root], self._width
