"""Configuration of the task: its graphs and numbers of colours.

Not every graph has a right answer. Of the labelled graphs on 9 vertices, which are equally likely at edge probability
0.5, exactly 22,249,524,024 of 2^36 can be coloured in 3 colours: 32.38 % (counted by extending every graph on 7
vertices by two). So about 16 of 50 graphs have a right answer, and between 10 and 23 in 95 % of draws. The best
penalised score in 3 colours is 95.2 on average (20,000 graphs; the standard deviation over sets of 50 is 0.5), and 92.9
over the graphs without a right answer.

The paper reports no right answer for any model and method (table 1: GC_CR 0 everywhere), but penalised scores of up to
97. Graphs without a right answer do not explain this, if they are drawn as described: 50 in a row have a probability of
3e-9, and their scores could not come near 97. Taking ECC literally and deriving CR from it would explain it: then no
answer could be right (see `metrics`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from evorun.errors import ConfigError
from evorun.fields import Fraction, PositiveInt
from evorun.tasks.base import Problem
from evorun.tasks.graph_coloring import files, solver
from evorun.tasks.graph_coloring.graph import Coloring, Graph, format_coloring, random_graph
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

    vertices: Annotated[int, Meta(ge=1, le=files.MAX_VERTICES)]
    """Vertices of a generated graph, at most 1000."""
    colors: PositiveInt | None
    """Number of allowed colours. null: the number that each graph needs; if the solver cannot prove it within its
    limit, the fewest for which it found a colouring."""
    edge_probability: Fraction
    """Probability that two vertices of a generated graph are adjacent."""
    colorable_only: bool
    """Generate only graphs for which a right answer was found."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.colorable_only and self.data is not None:
            raise ConfigError(
                "task.colorable_only: selects among generated graphs, but task.data names files; omit one of the two"
            )

    def draft(self, rng: np.random.Generator) -> Draft:
        """Draw a graph, which alone decides the split, whatever the number of colours."""
        graph = random_graph(self.vertices, self.edge_probability, rng)
        return Draft(msgspec.json.encode(graph), partial(self._fitting_instance, graph))

    def more_room(self) -> str:
        if self.colorable_only:
            return (
                f"omit task.colorable_only, raise task.colors ({self.colors}) or lower task.edge_probability "
                f"({self.edge_probability:g}): with these few graphs have a right answer"
            )
        return "raise task.vertices, or bring task.edge_probability nearer to 0.5"

    def read_data(self, path: Path) -> list[Callable[[], Instance]]:
        """Find a DIMACS file, or the .col files of a folder, with one graph per file."""
        return [partial(self._read_instance, file) for file in files.graph_files(path)]

    def _read_instance(self, file: Path) -> Instance:
        return self._solved_instance(file.stem, files.read_graph(file))

    def _fitting_instance(self, graph: Graph) -> Instance | None:
        """Return a graph with its best colouring; None where a right answer is required but none was found."""
        # With colors=null every graph gets as many as it needs, so all of them have a right answer.
        if self.colorable_only and self.colors is not None:
            right = solver.color(graph, self.colors).coloring
            return None if right is None else _instance("", graph, self.colors, right)
        return self._solved_instance("", graph)

    def _solved_instance(self, name: str, graph: Graph) -> Instance:
        if self.colors is None:
            minimum = solver.chromatic(graph)
            return _instance(name, graph, minimum.upper, minimum.coloring)
        return _instance(name, graph, self.colors, solver.best(graph, self.colors).coloring)


def _instance(name: str, graph: Graph, colors: int, coloring: Coloring) -> Instance:
    # The stratum must not tell whether there is a right answer.
    data = {"vertices": graph.vertices, "colors": colors, "edges": graph.edges}
    return Instance(Problem(id=name, stratum=f"{graph.vertices} vertices", data=data), format_coloring(coloring))
