"""Draw the score of runs against the calls that they made: a curve per run, with its 95 % interval."""

import sys
from collections.abc import Sequence

from matplotlib.figure import Figure

import evorun


def main(folders: Sequence[str], output: str) -> None:
    """Write the figure; a sweep's folder stands for its runs. Raises RunDirectoryError or DataError."""
    figure = Figure(figsize=(5.5, 3.5), layout="constrained")
    axes = figure.subplots()
    for run in evorun.load(folders):
        score = run.manifest.scores[0].name
        points = run.curves()
        points = points[(points["name"] == score) & points["value"].notna()]
        calls, values = points["calls"], points["value"]
        name = f"{run.method}, seed {run.seed}"
        (line,) = axes.plot(calls, values, marker=".", label=name)
        low, high = points["low"].fillna(values), points["high"].fillna(values)
        axes.fill_between(calls, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
        print(f"{name}: {score} {values.iloc[-1]:.3f} after {calls.iloc[-1]:.1f} calls per problem")
    axes.set(xlabel="calls per problem", ylabel=score)
    axes.legend(fontsize="small")
    figure.savefig(output)
    print(f"written: {output}")


if __name__ == "__main__":
    main(sys.argv[2:], sys.argv[1])
