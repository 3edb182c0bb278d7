"""Graph colouring as methods see it, and the simulated model on it.

`Problem.data`: `vertices` (a count), `colors` (k) and `edges` (pairs u < v in ascending order, vertices from 0). An
answer lists the vertices' colours: `0,1,2,...`. `metrics` and `operators` explain our choices where the paper leaves
one. If one parent has no answer, the crossover returns the other parent's response.

Like the paper's templates, the prompts do not mention that a graph may have no right colouring, though most of the
paper's graphs have none.

The simulated model decides vertex by vertex; the right colour is the known colouring's. Any renaming of the colours
gives an equally good colouring. So when answers are revised, the known colouring is renamed greedily to agree with them
in many vertices. An answer as good as the known colouring is itself taken as right, so that revising does not spoil
it.
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
from evorun.tasks.graph_coloring.graph import Coloring, Graph, conflicts, format_coloring, parse_coloring
from evorun.tasks.graph_coloring.metrics import UNREADABLE, count_excess, measure
from evorun.tasks.graph_coloring.operators import EXCESS
from evorun.tasks.graph_coloring.reading import is_color
from evorun.tasks.puzzles.puzzle import PENALISED_SCORE_PAPER, Puzzle, PuzzleSimulator, SolvedPuzzle

_BETWEEN = re.compile(r"\s*,\s*|\s+")
MATRIX_VERTICES = 60
"""Maximum vertices of a graph shown as a matrix, as in the paper; for larger ones, neighbour lists are shorter
(ours)."""


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
        graph = _graph(problem)
        as_matrix = graph.vertices <= MATRIX_VERTICES
        return {
            "vertices": graph.vertices,
            "colors": problem.data["colors"],
            "edges": len(graph.edges),
            "as_matrix": as_matrix,
            "graph": _render(graph, as_matrix=as_matrix),
        }

    def read_answer(self, problem: Problem, block: str) -> str:
        return reading.read(block, problem.data["vertices"])

    def random_answer(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return a colouring with uniformly random allowed colours."""
        return format_coloring(rng.integers(problem.data["colors"], size=problem.data["vertices"]).tolist())

    def measure(self, problem: Problem, answer: str | None) -> Grade:
        return (
            UNREADABLE if answer is None else measure(parse_coloring(answer), _graph(problem), problem.data["colors"])
        )

    def findings(self, problem: Problem, answer: str) -> tuple[Any, ...]:
        """Return `["excess", n]` where colours are not allowed, then `[u, v, colour]` for each conflict, in order."""
        coloring = parse_coloring(answer)
        excess = count_excess(coloring, problem.data["colors"])
        named = [[u, v, coloring[u]] for u, v in conflicts(coloring, problem.data["edges"])]
        return ([EXCESS, excess], *named) if excess else tuple(named)

    def describe(self, problem: Problem, findings: Sequence[Any]) -> str:
        """Return a line per error: `u,v,colour` for a conflict, `excess n` for colours that are not allowed."""
        return "\n".join(f"{EXCESS} {f[1]}" if f[0] == EXCESS else f"{f[0]},{f[1]},{f[2]}" for f in findings)

    def read_findings(self, problem: Problem, block: str) -> tuple[Any, ...] | None:
        """Parse the lines of `describe` in any order; return the excess first and each conflict once.

        None for a line of another form or for unknown vertices. The errors need not be real.
        """
        excess, named = 0, dict[tuple[int, int], int]()
        for line in block.lower().split("\n"):
            words = _BETWEEN.split(line.strip())
            if words == [""]:
                continue
            if words[0].rstrip(":") == EXCESS:
                if len(words) != 2 or not is_color(words[1].removeprefix("-")):
                    return None
                excess = max(excess, int(words[1]))
                continue
            if len(words) != 3 or not all(map(is_color, words)):
                return None
            u, v, color = map(int, words)
            if u == v or max(u, v) >= problem.data["vertices"]:
                return None
            named.setdefault((min(u, v), max(u, v)), color)
        errors = [[u, v, color] for (u, v), color in named.items()]
        return ([EXCESS, excess], *errors) if excess else tuple(errors)

    def crossover(self, problem: Problem, first: Individual, second: Individual, rng: np.random.Generator) -> Response:
        """Take each vertex from the parent that has no conflict in it (section 4.1.6)."""
        response_a, response_b = first.response, second.response
        if response_a.answer is None or response_b.answer is None:
            return response_b if response_a.answer is None and response_b.answer is not None else response_a
        findings = (first.errors.findings, second.errors.findings)
        child = operators.crossover(parse_coloring(response_a.answer), parse_coloring(response_b.answer), findings, rng)
        return self._response(child, response_a, response_b)

    def mutate(self, problem: Problem, individual: Individual, rng: np.random.Generator) -> Response:
        """Recolour a vertex in conflict, and all vertices with colours that are not allowed (section 4.1.7)."""
        response = individual.response
        if response.answer is None:
            return response
        findings = individual.errors.findings
        child = operators.mutate(parse_coloring(response.answer), findings, problem.data["colors"], rng)
        return self._response(child, response)

    def _response(self, child: Coloring, *parents: Response) -> Response:
        answer = format_coloring(child)
        same = next((parent for parent in parents if parent.answer == answer), None)
        return self.response(answer) if same is None else same


def _graph(problem: Problem) -> Graph:
    return Graph(problem.data["vertices"], problem.data["edges"])


def _render(graph: Graph, *, as_matrix: bool) -> str:
    """Return an adjacency matrix, or a line per vertex with its higher-numbered neighbours: `0: 3 5`."""
    if as_matrix:
        rows = [["n"] * graph.vertices for _ in range(graph.vertices)]
        for u, v in graph.edges:
            rows[u][v] = rows[v][u] = "y"
        return "\n".join(" ".join(row) for row in rows)
    lists: dict[int, list[str]] = {}
    for u, v in graph.edges:
        lists.setdefault(u, [f"{u}:"]).append(str(v))
    return "\n".join(" ".join(row) for row in lists.values())


# Share of a model's mistakes that use a colour beyond the allowed ones (ours)
_EXCESS_SHARE = 0.1


class SolvedGraph(SolvedPuzzle):
    """A graph with the best known colouring."""

    def __init__(self, task: Puzzle, problem: Problem, solution: str) -> None:
        super().__init__(task, problem, solution)
        self._colors: int = problem.data["colors"]
        self._known = parse_coloring(solution)
        self._best = self.fitness(solution)

    def attempt(self, skill: float, rng: np.random.Generator) -> str:
        return format_coloring(self._with_slips(self._known, 1 - skill, rng))

    def revise(
        self, answers: Sequence[str], choice: float, repair: float, slip: float, rng: np.random.Generator
    ) -> str:
        colorings = [parse_coloring(answer) for answer in answers]
        as_good = (
            coloring for text, coloring in zip(answers, colorings, strict=True) if self.fitness(text) >= self._best
        )
        right: Coloring | None = next(as_good, None)
        if right is None:
            names = _rename_colors(self._known, colorings, self._colors)
            right = [names[color] for color in self._known]
        child = []
        for known, options in zip(right, zip(*colorings, strict=True), strict=True):
            if len(set(options)) == 1 or (known in options and rng.random() < choice):
                child.append(known if known in options else options[0])
            else:
                others = [color for color in options if color != known]
                child.append(others[int(rng.integers(len(others)))])
        repaired = rng.random(len(child)) < repair
        wrong = [color != right[v] for v, color in enumerate(child)]
        slipped = self._with_slips(child, slip, rng)
        return format_coloring(
            [(right[v] if repaired[v] else color) if wrong[v] else slipped[v] for v, color in enumerate(child)]
        )

    def share_right(self, answer: str) -> float:
        # By the known names: renamed to fit best, a colouring at random agrees as much as one of some skill.
        same = sum(known == color for known, color in zip(self._known, parse_coloring(answer), strict=True))
        return same / len(self._known)

    def _with_slips(self, coloring: Coloring, probability: float, rng: np.random.Generator) -> list[int]:
        """Return a colouring in which each vertex gets another colour with the given probability."""
        slipped = list(coloring)
        for vertex, slips in enumerate((rng.random(len(coloring)) < probability).tolist()):
            if not slips:
                continue
            own = coloring[vertex]
            others = [color for color in range(self._colors) if color != own]
            if own != self._colors and (not others or rng.random() < _EXCESS_SHARE):
                slipped[vertex] = self._colors
            else:
                slipped[vertex] = others[int(rng.integers(len(others)))]
        return slipped


class GraphColoringSimulator(PuzzleSimulator):
    """Colours a graph vertex by vertex."""

    solved = SolvedGraph


def _rename_colors(known: Coloring, colorings: Sequence[Coloring], colors: int) -> list[int]:
    """Return a new name for each colour of `known`, so that it agrees with the answers in many vertices."""
    pairs = Counter(pair for coloring in colorings for pair in zip(known, coloring, strict=True))
    names = [-1] * colors
    free = set(range(colors))
    for (old, new), _ in pairs.most_common():
        if names[old] < 0 and new in free:
            names[old] = new
            free.remove(new)
    unused = iter(sorted(free))
    return [next(unused) if name < 0 else name for name in names]
