"""Tables of simulated studies in Markdown, an arm a row: what the scripts that measure them have in common."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from omegaconf import OmegaConf

from evorun.runs.statistics import crossed_interval, t_interval

_NOT_OF_THE_ARM = ("seed=", "experiment=", "evorun.", "hydra", "run.", "sandbox.", "engine.stream=${arm:")
"""Beginnings of overrides; `engine.stream=${arm:}` gives each arm random numbers by its other settings."""


def finished_runs(folders: Sequence[Path]) -> list[Path]:
    """Return the directories of the finished runs below some folders."""
    return [file.parent for folder in folders for file in sorted(folder.rglob("results.json"))]


def read_arm(run_dir: Path) -> str:
    """Return the name of a run's arm."""
    return name_arm([str(override) for override in OmegaConf.load(run_dir / ".hydra" / "overrides.yaml")])


def name_arm(overrides: Sequence[str]) -> str:
    """Return the overrides that all seeds of an arm share, the method first."""
    # Hydra records them with a backslash before each of its own characters
    plain = [re.sub(r"\\(.)", r"\1", override).lstrip("+") for override in overrides]
    swept = [override for override in plain if not override.startswith(_NOT_OF_THE_ARM)]
    return " ".join(sorted(swept, key=lambda override: (not override.startswith("method="), override)))


def mean_over_seeds(values: Sequence[float], digits: int = 2) -> str:
    """Return a mean with Student's 95 % interval over seeds; no interval where all values are alike."""
    return _with_interval(float(np.mean(values)), t_interval(values), digits) if values else "-"


def mean_over_seeds_and_problems(by_seed: Sequence[Mapping[str, float]], digits: int = 2) -> str:
    """Return the mean of values by test problem, one mapping for each seed, with its 95 % interval over both.

    Of a single problem the interval is over seeds.
    """
    problems = sorted(set.intersection(*(set(by_problem) for by_problem in by_seed))) if by_seed else []
    if not problems:
        return "-"
    if len(problems) == 1:
        return mean_over_seeds([by_problem[problems[0]] for by_problem in by_seed], digits)
    values = np.array([[by_problem[problem] for problem in problems] for by_problem in by_seed])
    return _with_interval(float(values.mean()), crossed_interval(values), digits)


def paired_difference(
    ours: Mapping[int, Mapping[str, float]], theirs: Mapping[int, Mapping[str, float]], digits: int = 2
) -> str:
    """Return the mean difference of two arms, seed by seed and problem by problem, with its 95 % interval over both.

    ours, theirs: by seed, then by test problem.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    return mean_over_seeds_and_problems(
        [{at: ours[seed][at] - theirs[seed][at] for at in ours[seed].keys() & theirs[seed].keys()} for seed in seeds],
        digits,
    )


def markdown(columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    """Return a table with the rows' names in its first column."""
    lines = [("arm", *columns), ("---",) * (len(columns) + 1)]
    lines += [(f"`{name}`", *cells) for name, cells in rows.items()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _with_interval(mean: float, interval: tuple[float, float] | None, digits: int) -> str:
    half = "" if interval is None else f" ± {(interval[1] - interval[0]) / 2:.{digits}f}"
    return f"{mean:.{digits}f}{half}"
