"""Graph colouring as methods see it, and the simulated model on it.

`Problem.data`: `vertices` (a count), `colors` (k) and `edges` (pairs u < v in ascending order, vertices from 0). An
answer lists the vertices' colours: `0,1,2,...`. See `metrics` and `operators` for what was decided where the paper
leaves a choice. Of an individual without an answer the crossover has no use: it returns the other parent's response.

The prompts do not speak of graphs that cannot be coloured, as the paper's templates do not, though most of those that
it draws are.

To the simulated model a decision is a vertex, and its right colour is the known colouring's. Any renaming of the
colours gives a colouring as good as the known one. So where answers are revised, the known one is renamed to agree with
them in as many vertices as a greedy choice finds; and an answer that is as good as the known one is itself what is
right, lest revising spoil it.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from evorun.runs.candidates import Response
from evorun.runs.scores import Score
from evorun.tasks.base import Grade, Problem
from evorun.tasks.capabilities import Individual
from evorun.tasks.graph_coloring import operators, reading
from evorun.tasks.graph_coloring.graph import Coloring, Graph, as_coloring, as_text, conflicts
from evorun.tasks.graph_coloring.metrics import UNREADABLE, excess, measured
from evorun.tasks.graph_coloring.operators import EXCESS
from evorun.tasks.graph_coloring.reading import is_color
from evorun.tasks.puzzles.puzzle import PENALISED_SCORE_PAPER, Puzzle, PuzzleSimulator, SolvedPuzzle

_BETWEEN = re.compile(r"\s*,\s*|\s+")
MATRIX_VERTICES = 60
"""Most vertices of a graph shown as a matrix, as in the paper; beyond, lists of neighbours are shorter (ours)."""


class GraphColoring(Puzzle):
    """Colour a graph's vertices in k colours (section 3.2)."""

    name = "graph_coloring"
    scores = (
        *Puzzle.scores,
        Score("score", 0, 100),
        Score("conflict_ratio", 0, 1, higher_is_better=False),
        Score(PENALISED_SCORE_PAPER, 0, 100),
    )
    prompt_folders: ClassVar[Sequence[Path]] = (Path(__file__).parent / "prompts", *Puzzle.prompt_folders)

    def puzzle_values(self, problem: Problem) -> Mapping[str, Any]:
        """Return the graph as text, and its numbers."""
        of = _graph(problem)
        as_matrix = of.vertices <= MATRIX_VERTICES
        return {
            "vertices": of.vertices,
            "colors": problem.data["colors"],
            "edges": len(of.edges),
            "as_matrix": as_matrix,
            "graph": _shown(of, as_matrix=as_matrix),
        }

    def read_answer(self, problem: Problem, block: str) -> str:
        return reading.read(block, problem.data["vertices"])

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return a colouring in the allowed colours, each as likely for every vertex."""
        return as_text(rng.integers(problem.data["colors"], size=problem.data["vertices"]).tolist())

    def measure(self, problem: Problem, answer: str | None) -> Grade:
        return UNREADABLE if answer is None else measured(as_coloring(answer), _graph(problem), problem.data["colors"])

    def findings(self, problem: Problem, answer: str) -> tuple[Any, ...]:
        """Return `["excess", n]` where colours are not allowed, then `[u, v, colour]` for each conflict, in order."""
        coloring = as_coloring(answer)
        over = excess(coloring, problem.data["colors"])
        named = [[u, v, coloring[u]] for u, v in conflicts(coloring, problem.data["edges"])]
        return ([EXCESS, over], *named) if over else tuple(named)

    def describe(self, problem: Problem, findings: Sequence[Any]) -> str:
        """Return a line an error: `u,v,colour` for a conflict, `excess n` for colours that are not allowed."""
        return "\n".join(f"{EXCESS} {f[1]}" if f[0] == EXCESS else f"{f[0]},{f[1]},{f[2]}" for f in findings)

    def read_findings(self, problem: Problem, block: str) -> tuple[Any, ...] | None:
        """Read such lines, in any order: the excess comes first, a repeated conflict counts once.

        None for a line of another form and for vertices that the graph does not have. The errors need not be real.
        """
        over, named = 0, dict[tuple[int, int], int]()
        for line in block.lower().split("\n"):
            words = _BETWEEN.split(line.strip())
            if words == [""]:
                continue
            if words[0].rstrip(":") == EXCESS:
                if len(words) != 2 or not is_color(words[1].removeprefix("-")):
                    return None
                over = max(over, int(words[1]))
                continue
            if len(words) != 3 or not all(map(is_color, words)):
                return None
            u, v, color = map(int, words)
            if u == v or max(u, v) >= problem.data["vertices"]:
                return None
            named.setdefault((min(u, v), max(u, v)), color)
        errors = [[u, v, color] for (u, v), color in named.items()]
        return ([EXCESS, over], *errors) if over else tuple(errors)

    def crossover(self, problem: Problem, first: Individual, second: Individual, rng: np.random.Generator) -> Response:
        """Take over each vertex from the parent that has no conflict in it (section 4.1.6)."""
        one, other = first.response, second.response
        if one.answer is None or other.answer is None:
            return other if one.answer is None and other.answer is not None else one
        findings = (first.errors.findings, second.errors.findings)
        child = operators.crossover(as_coloring(one.answer), as_coloring(other.answer), findings, rng)
        return self._response(child, one, other)

    def mutate(self, problem: Problem, individual: Individual, rng: np.random.Generator) -> Response:
        """Recolour a conflict's vertex, and all whose colour is not allowed (section 4.1.7)."""
        own = individual.response
        if own.answer is None:
            return own
        findings = individual.errors.findings
        child = operators.mutate(as_coloring(own.answer), findings, problem.data["colors"], rng)
        return self._response(child, own)

    def _response(self, child: Coloring, *parents: Response) -> Response:
        answer = as_text(child)
        same = next((parent for parent in parents if parent.answer == answer), None)
        return self.response(answer) if same is None else same


def _graph(problem: Problem) -> Graph:
    return Graph(problem.data["vertices"], problem.data["edges"])


def _shown(of: Graph, *, as_matrix: bool) -> str:
    """Return an adjacency matrix, or a line for each vertex with neighbours of a higher number: `0: 3 5`."""
    if as_matrix:
        rows = [["n"] * of.vertices for _ in range(of.vertices)]
        for u, v in of.edges:
            rows[u][v] = rows[v][u] = "y"
        return "\n".join(" ".join(row) for row in rows)
    lists: dict[int, list[str]] = {}
    for u, v in of.edges:
        lists.setdefault(u, [f"{u}:"]).append(str(v))
    return "\n".join(" ".join(row) for row in lists.values())


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
