"""Count and draw the discourse motifs of a run's rubrics (MPO, appendix J.1 and figure 8; Kim et al., 2024).

    python scripts/parse_rubrics.py RUN                        # or put trees of another parser into RUN/artifacts/rst
    python scripts/rubric_motifs.py RUN [--output FIGURE]      # a CSV table; the figure as .svg, .png or .pdf

The graph of a text has an edge from each satellite to its nucleus, which bears the relation's name (between nuclei one
in each direction), and an edge `/` from each unit to the one above it, that it is a part of. A motif is a connected
subgraph of one to three relations, each with its units: `contrast`; `contrast /N cause`, where the nucleus of a
contrast is made up by a cause; `contrast /N cause /S joint`; and `contrast (/N cause, /S joint)`. Two subgraphs are the
same motif where they are isomorphic with their labels.
"""

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rubric_trees import Unit, read_trees

from evorun.errors import DataError
from evorun.reports.population import Length, measure_rubrics
from evorun.runs.reading import read_records
from evorun.runs.schema import CandidateRecord

FOLDER = "artifacts/rst"
"""Of a run's trees: `<id of the rubric>.rs3` or `.dis`."""
ENDINGS = (".rs3", ".dis")
MAX_DRAWN = 24
"""Motifs of the figure, the most frequent; the table has all."""
_MAX_NAME = 44


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
    for unit in (unit for tree in trees for unit in _relations(tree)):
        found[unit.relation] += 1
        below = [(role, part) for role, part in unit.parts if part.relation]
        for place, (role, part) in enumerate(below):
            found[f"{unit.relation} /{role} {part.relation}"] += 1
            for inner, leaf in part.parts:
                if leaf.relation:
                    found[f"{unit.relation} /{role} {part.relation} /{inner} {leaf.relation}"] += 1
            for other_role, other in below[:place]:
                fork = sorted((f"/{role} {part.relation}", f"/{other_role} {other.relation}"))
                found[f"{unit.relation} ({', '.join(fork)})"] += 1
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


def draw(versions: Sequence[Motifs], output: Path) -> None:
    """Draw the shares of the most frequent motifs in each version of the rubrics (figure 8)."""
    from matplotlib.figure import Figure

    total = sum((version.counts for version in versions), Counter[str]())
    names = sorted(total, key=lambda name: (-sum(version.share(name) for version in versions), name))[:MAX_DRAWN]
    figure = Figure(figsize=(10.4, 3.8), layout="constrained")
    axes = figure.subplots()
    width = 0.8 / len(versions)
    for order, version in enumerate(versions):
        places = [at + (order - (len(versions) - 1) / 2) * width for at in range(len(names))]
        axes.bar(places, [version.share(name) for name in names], width, label=version.version)
    shown = [name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…" for name in names]
    axes.set_xticks(range(len(names)), shown, rotation=40, ha="right", fontsize=8, parse_math=False)
    axes.set_ylabel("share of motifs")
    axes.legend()
    figure.savefig(output)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table and draw the figure."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("run", type=Path, metavar="RUN")
    options.add_argument("--output", type=Path, metavar="FIGURE")
    given = options.parse_args(arguments)
    versions, faults = load_motifs(
        given.run, measure_rubrics(read_records(given.run / "candidates.jsonl", CandidateRecord))
    )
    for line in faults:
        print(line, file=sys.stderr)
    if not versions:
        raise SystemExit(f"{given.run / FOLDER}: expected trees of its rubrics; scripts/parse_rubrics.py makes them")
    table = csv.writer(sys.stdout)
    table.writerow(("version", "motif", "count", "share"))
    for version in versions:
        table.writerows(
            (version.version, name, n, f"{version.share(name):.4g}") for name, n in version.counts.most_common()
        )
    if given.output is not None:
        draw(versions, given.output)


if __name__ == "__main__":
    main()
