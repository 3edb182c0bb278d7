"""Discourse motifs of rubrics (MPO, appendix J.1 and figure 8; Kim et al., 2024, "Threads of subtlety").

The graph of a text has an edge from each satellite to its nucleus, which bears the relation's name (between nuclei one
in each direction), and an edge `/` from each unit to the one above it, that it is a part of. A motif is a connected
subgraph of one to three relations, each with its units: `contrast`; `contrast /N cause`, where the nucleus of a
contrast is made up by a cause; `contrast /N cause /S joint`; and `contrast (/N cause, /S joint)`. Two subgraphs are the
same motif where they are isomorphic with their labels.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from evorun.errors import DataError
from evorun.reports.rubrics.lineage import Length
from evorun.reports.rubrics.rst import Unit, read_trees

FOLDER = "artifacts/rst"
"""Of a run's trees: `<id of the rubric>.rs3` or `.dis`."""
ENDINGS = (".rs3", ".dis")


class Motifs(NamedTuple):
    """Counts of motifs of a version of a run's rubrics."""

    version: str
    counts: Counter[str]
    """Over all keys."""

    def share(self, motif: str) -> float:
        """Return the share of a motif among all of the version."""
        total = self.counts.total()
        return self.counts[motif] / total if total else 0.0


def count_motifs(trees: Iterable[Unit]) -> Counter[str]:
    """Return how often each motif occurs."""
    found: Counter[str] = Counter()
    for one in (one for tree in trees for one in _relations(tree)):
        found[one.relation] += 1
        below = [(role, part) for role, part in one.parts if part.relation]
        for place, (role, part) in enumerate(below):
            found[f"{one.relation} /{role} {part.relation}"] += 1
            for inner, leaf in part.parts:
                if leaf.relation:
                    found[f"{one.relation} /{role} {part.relation} /{inner} {leaf.relation}"] += 1
            for other_role, other in below[:place]:
                fork = sorted((f"/{role} {part.relation}", f"/{other_role} {other.relation}"))
                found[f"{one.relation} ({', '.join(fork)})"] += 1
    return found


def load_motifs(run: Path, versions: Mapping[str, Sequence[Length]]) -> tuple[list[Motifs], list[str]]:
    """Return the motifs of the first rubrics, of those after one refinement and of the last, as far as there are trees.

    And a line for each file that cannot be read. versions: the rubrics of each key.
    """
    files = {path.stem: path for path in _files(run / FOLDER)}
    found, faults = [], []
    for version, place in (("initial", 0), ("after the first refinement", 1), ("last", -1)):
        counts: Counter[str] = Counter()
        for of_key in versions.values():
            if len(of_key) == 1 and place:
                continue
            path = files.get(of_key[place].rubric)
            try:
                counts += count_motifs(read_trees(path)) if path is not None else Counter()
            except DataError as error:
                faults.append(str(error))
        if counts:
            found.append(Motifs(version, counts))
    return found, list(dict.fromkeys(faults))


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in ENDINGS)
    except OSError:
        return []


def _relations(tree: Unit) -> Iterator[Unit]:
    """Yield the units of a tree that have a relation, without recursion."""
    waiting = [tree]
    while waiting:
        unit = waiting.pop()
        if unit.relation:
            yield unit
        waiting += [part for _, part in unit.parts]
