"""The pool that Duel-Evolve's confidence rule and cap leave, of finished runs: whom they keep and whom they drop.

    evorun -m method=duel_evolve SETTINGS seed=0,1,2 method.bound_width=1 hydra.sweep.dir=outputs/width-1
    python scripts/measure_survivors.py outputs/width-1 outputs/width-2 ...

One line a folder, for all runs below it together: means over problems, with their standard errors. Accuracy; right ones
among all candidates, and among the survivors; survivors among the right ones; those dropped by the confidence rule and
by the cap, among all candidates at the end; and the chance that a right candidate has a higher mean than a wrong one.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from evorun.runs.reading import read_predictions, read_records, read_steps_without_texts
from evorun.runs.schema import CandidateRecord

COLUMNS = ("accuracy", "right", "right of survivors", "survivors of right", "pruned", "capped", "auc")


def shares(run_dir: Path) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Yield each problem of a run with its shares."""
    pools: dict[str, list[CandidateRecord]] = defaultdict(list)
    for candidate in read_records(run_dir / "candidates.jsonl", CandidateRecord):
        if candidate.mean is not None:
            pools[candidate.problem].append(candidate)
    last = {step.problem: step for step in read_steps_without_texts(run_dir)}
    for prediction in read_predictions(run_dir):
        pool = pools[prediction.problem]
        if not pool:
            continue
        right, survives = (
            np.array([bool(getattr(candidate, key)) for candidate in pool]) for key in ("correct", "survivor")
        )
        mean = np.array([candidate.mean for candidate in pool])
        higher = np.subtract.outer(mean[right], mean[~right])
        dropped = {key: last[prediction.problem].extra[key] / len(pool) for key in ("pruned", "capped")}
        found = {"accuracy": float(bool(prediction.correct)), "right": right.mean(), **dropped}
        found["right of survivors"] = right[survives].mean()
        if right.any():
            found["survivors of right"] = survives[right].mean()
        if higher.size:
            found["auc"] = (np.mean(higher > 0) + np.mean(higher >= 0)) / 2
        yield prediction.problem, found


def line(folder: Path) -> str:
    """Return a folder's line of the table."""
    runs: dict[str, dict[str, list[float]]] = {column: defaultdict(list) for column in COLUMNS}
    for manifest in sorted(folder.rglob("manifest.json")):
        for problem, found in shares(manifest.parent):
            for column, share in found.items():
                runs[column][problem].append(share)
    cells = []
    for by_problem in runs.values():
        means = [float(np.mean(values)) for values in by_problem.values()]
        error = f" +- {np.std(means, ddof=1) / np.sqrt(len(means)):.3f}" if len(means) > 1 else ""
        cells.append(f"{np.mean(means):.3f}{error}" if means else "-")
    return f"{folder.name:24}" + "".join(f"{cell:>20}" for cell in cells)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    print(f"{'':24}" + "".join(f"{column:>20}" for column in COLUMNS))
    for of_runs in parser.parse_args().folders:
        print(line(of_runs))
