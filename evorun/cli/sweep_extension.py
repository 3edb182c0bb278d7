"""The jobs that `evorun extend SWEEP_DIR KEY=VALUES` adds: a sweep's own with other values of these keys."""

import contextlib
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from evorun.cli.composed_jobs import list_typed_jobs
from evorun.cli.invocation import AddedJobs
from evorun.cli.job_folders import list_deciding
from evorun.cli.overrides import as_typed, parse, read_key, words
from evorun.cli.status_table import join_names
from evorun.cli.sweeper import values_by_key
from evorun.errors import ConfigError, RunDirectoryError
from evorun.runs.directory import load_manifest
from evorun.runs.formats import counted
from evorun.runs.paths import display
from evorun.runs.sweeps import SWEEP_MANIFEST, JobInSweep
from evorun.runs.terminal import Terminal

SEED = "seed"


def extend_commands(
    folder: Path,
    jobs: Sequence[JobInSweep],
    commands: Sequence[Sequence[str]],
    values: Sequence[str],
    console: Terminal,
) -> AddedJobs | None:
    """Return the jobs that values of some keys add to a sweep; None for those of its only command.

    folder: the sweep's. jobs: its jobs. commands: its command lines, in order, each with the values in it. Print which
    jobs no command makes with the values. Raises ConfigError for values that are none, and where no command makes jobs.
    """
    overrides = [parse(word) for given in values for word in words(given)]
    tried = {key: [as_typed(word) for word in found] for key, found in values_by_key(overrides).items()}
    if set(tried) == {SEED}:  # the jobs tell all arms, whatever command made them
        seeds = [word.lstrip("+") for word in tried[SEED]]
        return AddedJobs(_with_seeds(_find_arms(folder, jobs), seeds), commands[:-1])
    made: dict[tuple[str, frozenset[str]], list[str]] = {}
    errors = []
    for command in commands:
        try:
            for key, job in list_typed_jobs(command).items():
                made.setdefault(key, job)
        except ConfigError as error:
            errors.append(error)
    if not made:
        if len(commands) == 1:  # Hydra may know what cannot be listed here, or its error says more
            return None
        raise errors[0]
    left_out = _list_left_out(jobs, list(made.values()), tried)
    if left_out:
        console.print(
            f"leaves out {counted(len(left_out), 'job')} of {display(folder)}: {join_names(left_out)}: no command in "
            f"{SWEEP_MANIFEST} makes their like with {' '.join(values)}; give their own command once more with "
            f"{shlex.join([*values, f'hydra.sweep.dir={display(folder)}'])}",
            style="yellow",
            soft_wrap=True,
        )
    return AddedJobs(list(made.values()), commands[:-1])


class _Arm(NamedTuple):
    """Jobs of a sweep that differ in the seed alone."""

    overrides: Sequence[str]
    """Those of its last job, seed included."""
    seeds: Mapping[str, Sequence[str]]
    """The overrides of its jobs by seed, `seed=0`."""


def _find_arms(folder: Path, jobs: Sequence[JobInSweep]) -> list[_Arm]:
    """Return the arms of a sweep.

    A resume may have changed how some seeds of an arm were carried out, which makes no other arm of them. But where
    such settings are swept (`engine.skill=0.1,0.9`), they tell arms apart.
    """
    alike: dict[frozenset[str], list[JobInSweep]] = {}
    for job in jobs:
        alike.setdefault(list_deciding(_without_seed(job.overrides)), []).append(job)
    arms: dict[frozenset[str], list[JobInSweep]] = {}
    for deciding, found in alike.items():
        unique = len({_read_seed(folder, job) for job in found}) == len(found)
        for job in found:
            arms.setdefault(deciding if unique else frozenset(_without_seed(job.overrides)), []).append(job)
    return [_Arm(arm[-1].overrides, {_read_seed(folder, job): job.overrides for job in arm}) for arm in arms.values()]


def _with_seeds(arms: Sequence[_Arm], seeds: Sequence[str]) -> list[list[str]]:
    """Return the overrides of each arm's job with each seed, of a recorded job as they are."""
    found = []
    for arm in arms:
        for seed in seeds:
            replaced = [seed if read_key(word) == SEED else word for word in arm.overrides]
            new = replaced if seed in replaced else [*replaced, seed]
            found.append(list(arm.seeds.get(seed, new)))
    return found


def _without_seed(overrides: Sequence[str]) -> list[str]:
    return [word for word in overrides if read_key(word) != SEED]


def _read_seed(folder: Path, job: JobInSweep) -> str:
    """Return a job's seed as an override; that of its run where its overrides have none."""
    given = [word.lstrip("+") for word in job.overrides if read_key(word) == SEED]
    if given:
        return given[-1]
    with contextlib.suppress(RunDirectoryError):  # it has not begun
        return f"{SEED}={load_manifest(folder / job.folder).seed}"
    return ""


def _list_left_out(
    jobs: Sequence[JobInSweep], made: Sequence[Sequence[str]], tried: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the folders of the jobs whose like, with the values that are tried, is not among those made."""

    def rest(overrides: Sequence[str]) -> frozenset[str]:
        kept = [word for word in overrides if read_key(word).partition(".")[0] not in tried]
        return list_deciding(kept)

    extended = {rest(job) for job in made if all(set(values) & set(job) for values in tried.values())}
    return [job.folder for job in jobs if rest(job.overrides) not in extended]
