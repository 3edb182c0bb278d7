"""Draw the score of runs against the calls that they made: a curve per run, with its 95 % interval."""

import sys
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from evorun.runs.directory import load_manifest
from evorun.runs.folders import run_folders
from evorun.runs.reading import read_metrics


def main(folders: Sequence[Path], output: Path) -> None:
    """Write the figure; a sweep's folder stands for its runs. Raises RunDirectoryError or DataError."""
    figure = Figure(figsize=(5.5, 3.5), layout="constrained")
    axes = figure.subplots()
    for run in run_folders(folders):
        manifest = load_manifest(run)
        score = manifest.scores[0]
        points = [(one, one.value) for one in read_metrics(run) if one.name == score.name and one.value is not None]
        calls, values = [point.calls for point, _ in points], [value for _, value in points]
        name = f"{manifest.method}, seed {manifest.seed}"
        (line,) = axes.plot(calls, values, marker=".", label=name)
        low, high = zip(*(point.ci95 or (value, value) for point, value in points), strict=True)
        axes.fill_between(calls, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        print(f"{name}: {score.name} {values[-1]:.3f} after {calls[-1]:.1f} calls per problem")
    axes.set(xlabel="calls per problem", ylabel=score.name)
    axes.legend(fontsize="small")
    figure.savefig(output)
    print(f"written: {output}")


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[2:]], Path(sys.argv[1]))
