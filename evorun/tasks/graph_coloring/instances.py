"""Configuration of the task: which graphs, with how many colours.

Not every graph has a right answer. Of the labelled graphs on 9 vertices, which are equally likely at edge probability
0.5, exactly 22,249,524,024 of 2^36 can be coloured in 3 colours: 32.38 % (counted by extending every graph on 7
vertices by two). So of 50 graphs some 16 have a right answer, between 10 and 23 in 95 of 100 draws. The best penalised
score in 3 colours is 95.2 on average (20,000 graphs; sets of 50 scatter by 0.5), and 92.9 over the graphs without a
right answer.

The paper reports no right answer by any model and method (table 1: GC_CR 0 everywhere) beside penalised scores of up to
97. Graphs without one do not explain that, if they are drawn as it says: 50 in a row have a chance of 3e-9, and their
scores could not come near 97. Taking ECC literally and CR from it would: no answer could be right (see `metrics`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from evorun.errors import ConfigError, at_least, within
from evorun.tasks.base import Problem
from evorun.tasks.graph_coloring import files, solver
from evorun.tasks.graph_coloring.graph import Coloring, Graph, as_text, random_graph
from evorun.tasks.graph_coloring.graph_coloring import GraphColoring, GraphColoringSimulator
from evorun.tasks.puzzles.instances import Draft, Instance, PuzzleConfig


@dataclass(kw_only=True)
class GraphColoringConfig(PuzzleConfig):
    """Graph colouring as the Lyria paper sets it up (section 3.2): random graphs, no more colours than given.

    32.4 % of the graphs with 9 vertices and edge probability 0.5 can be coloured in 3 colours; the others have no right
    answer, only a best one. `colorable_only` draws from the former alone.
    """

    task_class = GraphColoring
    simulator = GraphColoringSimulator

    vertices: int
    """Vertices of a generated graph, at most 1000."""
    colors: int | None
    """Colours that may be used. null: as many as each graph needs, computed; where that cannot be
    proved within the solver's limit, the fewest for which a colouring was found."""
    edge_probability: float
    """Probability that two vertices of a generated graph are adjacent."""
    colorable_only: bool
    """Generate only graphs that were found to have a right answer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        within("task.vertices", self.vertices, 1, files.MAX_VERTICES)
        at_least("task.colors", self.colors, 1)
        within("task.edge_probability", self.edge_probability, 0, 1)
        if self.colorable_only and self.data is not None:
            raise ConfigError(
                "task.colorable_only: selects among generated graphs, and task.data gives graphs of a file; leave one "
                "of the two out"
            )

    def draft(self, rng: np.random.Generator) -> Draft:
        """Draw a graph. It decides the split, whatever the number of colours."""
        of = random_graph(self.vertices, self.edge_probability, rng)
        return Draft(msgspec.json.encode(of), partial(self._fitting_instance, of))

    def more_room(self) -> str:
        if self.colorable_only:
            return (
                f"leave task.colorable_only out, raise task.colors ({self.colors}) or lower task.edge_probability "
                f"({self.edge_probability:g}): with these few graphs have a right answer"
            )
        return "raise task.vertices, or bring task.edge_probability nearer to 0.5"

    def read_data(self, path: Path) -> list[Callable[[], Instance]]:
        """Find a DIMACS file, or the .col files of a folder: one graph each."""
        return [partial(self._read_instance, file) for file in files.graph_files(path)]

    def _read_instance(self, file: Path) -> Instance:
        return self._solved_instance(file.stem, files.read_graph(file))

    def _fitting_instance(self, of: Graph) -> Instance | None:
        """Return a graph with its best colouring; None where it must have a right answer and none was found."""
        # With colors=null every graph gets as many as it needs, so all of them have a right answer.
        if self.colorable_only and self.colors is not None:
            right = solver.color(of, self.colors).coloring
            return None if right is None else _instance("", of, self.colors, right)
        return self._solved_instance("", of)

    def _solved_instance(self, name: str, of: Graph) -> Instance:
        if self.colors is None:
            least = solver.chromatic(of)
            return _instance(name, of, least.upper, least.coloring)
        return _instance(name, of, self.colors, solver.best(of, self.colors).coloring)


def _instance(name: str, of: Graph, colors: int, coloring: Coloring) -> Instance:
    # The stratum must not tell whether there is a right answer.
    data = {"vertices": of.vertices, "colors": colors, "edges": of.edges}
    return Instance(Problem(id=name, stratum=f"{of.vertices} vertices", data=data), as_text(coloring))
