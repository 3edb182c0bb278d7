"""The simulated model on graphs: a decision is a vertex, and its right colour is the known colouring's.

Any renaming of the colours gives a colouring as good as the known one. So where answers are revised, the known one is
renamed to agree with them in as many vertices as a greedy choice finds; and an answer that is as good as the known one
is itself what is right, lest revising spoil it.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from evorun.tasks.base import Problem
from evorun.tasks.graph_coloring.graph import Coloring, as_coloring, as_text
from evorun.tasks.puzzles.simulator import PuzzleSimulator, SolvedPuzzle
from evorun.tasks.puzzles.task import Puzzle

# Share of a model's mistakes that use a colour which is not allowed (ours)
_BEYOND = 0.1


class SolvedGraph(SolvedPuzzle):
    """A graph with the best colouring that is known."""

    def __init__(self, task: Puzzle, problem: Problem, solution: str) -> None:
        super().__init__(task, problem, solution)
        self._colors: int = problem.data["colors"]
        self._known = as_coloring(solution)
        self._best = self.fitness(solution)

    def attempt(self, skill: float, rng: np.random.Generator) -> str:
        return as_text(self._with_slips(self._known, 1 - skill, rng))

    def revise(
        self, answers: Sequence[str], choice: float, repair: float, slip: float, rng: np.random.Generator
    ) -> str:
        colorings = [as_coloring(answer) for answer in answers]
        as_good = (own for text, own in zip(answers, colorings, strict=True) if self.fitness(text) >= self._best)
        right: Coloring | None = next(as_good, None)
        if right is None:
            names = _renaming(self._known, colorings, self._colors)
            right = [names[color] for color in self._known]
        child = []
        for known, options in zip(right, zip(*colorings, strict=True), strict=True):
            if len(set(options)) == 1 or (known in options and rng.random() < choice):
                child.append(known if known in options else options[0])
            else:
                others = [color for color in options if color != known]
                child.append(others[int(rng.integers(len(others)))])
        mended = rng.random(len(child)) < repair
        wrong = [color != right[v] for v, color in enumerate(child)]
        slipped = self._with_slips(child, slip, rng)
        return as_text([(right[v] if mended[v] else own) if wrong[v] else slipped[v] for v, own in enumerate(child)])

    def _with_slips(self, coloring: Coloring, probability: float, rng: np.random.Generator) -> list[int]:
        """Return a colouring with another colour wherever a draw falls below the probability."""
        slipped = list(coloring)
        for vertex, slips in enumerate((rng.random(len(coloring)) < probability).tolist()):
            if not slips:
                continue
            own = coloring[vertex]
            others = [color for color in range(self._colors) if color != own]
            if own != self._colors and (not others or rng.random() < _BEYOND):
                slipped[vertex] = self._colors
            else:
                slipped[vertex] = others[int(rng.integers(len(others)))]
        return slipped


class GraphColoringSimulator(PuzzleSimulator):
    """Colours a graph vertex by vertex."""

    solved = SolvedGraph


def _renaming(known: Coloring, colorings: Sequence[Coloring], colors: int) -> list[int]:
    """Return a new name for each colour of `known`: pairs that agree in most vertices of the answers come first."""
    pairs = Counter(pair for coloring in colorings for pair in zip(known, coloring, strict=True))
    names = [-1] * colors
    free = set(range(colors))
    for (old, new), _ in pairs.most_common():
        if names[old] < 0 and new in free:
            names[old] = new
            free.remove(new)
    left = iter(sorted(free))
    return [next(left) if name < 0 else name for name in names]
