"""The lines after a sweep: its unfinished jobs, the command that continues them, and the one that compares all."""

import contextlib
import shlex
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from omegaconf import OmegaConf

from evorun.cli.naming import SWEEP
from evorun.cli.overrides import as_typed
from evorun.errors import ConfigError
from evorun.runs.directory import MANIFEST
from evorun.runs.paths import display


class Sweep(NamedTuple):
    """A sweep that has begun."""

    folder: Path
    jobs: Sequence[Sequence[str]]
    """The overrides of each job."""
    in_this_process: bool
    """False if a launcher carries them out elsewhere: they outlive this process."""


def refuse_sweep(folder: Path) -> None:
    """Raise ConfigError for a sweep's folder in place of a run's; it shows the command that continues the jobs."""
    if (folder / MANIFEST).exists() or not (folder / SWEEP).is_file():
        return
    command = f"its own command once more and hydra.sweep.dir={display(folder)}"
    with contextlib.suppress(Exception):  # Hydra may not have written this YAML; the line is right without it, too
        given = OmegaConf.load(folder / SWEEP).hydra.overrides
        words = [*map(as_typed, given.task), *(word for word in given.hydra if not word.startswith("hydra.mode="))]
        command = _command(["-m", *words], folder)
    raise ConfigError(
        f"{display(folder)}: expected a run directory, got a sweep's folder; continue all jobs with: {command}; a "
        f"single job with: evorun resume {shlex.quote(display(folder))}/JOB"
    )


def _command(typed: Sequence[str], folder: Path) -> str:
    again = [word for word in typed if not word.lstrip("+").startswith("hydra.sweep.dir=")]
    return shlex.join(["evorun", *again, f"hydra.sweep.dir={display(folder)}"])


def describe_end(sweep: Sweep, outcomes: Sequence[str], typed: Sequence[str]) -> list[str]:
    """Return the lines to print once a sweep has ended or was interrupted.

    outcomes: statuses of its first jobs; the remaining ones have not begun. typed: the arguments of the command line.
    """
    common = set.intersection(*map(set, sweep.jobs)) if len(sweep.jobs) > 1 else set()
    unfinished = [
        f"  {status or 'not begun'}: {' '.join(as_typed(word) for word in job if word not in common)}"
        for job, status in zip_longest(sweep.jobs, outcomes)
        if status != "completed"
    ]
    lines = []
    if unfinished and sweep.folder.exists():  # without a folder, nothing has begun
        command = _command(typed, sweep.folder)
        count = f"{len(unfinished)} of {len(sweep.jobs)} jobs of the sweep are unfinished"
        lines += [f"{count}; continue all of them with: {command}", *unfinished]
    if len(sweep.jobs) - len(unfinished) > 1:
        lines.append(f"compare the jobs of the sweep: evorun report {shlex.quote(display(sweep.folder))}")
    return lines
