"""Folders of a sweep's jobs: named by what tells the jobs apart, as a reader of the folder would say it."""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from evorun.cli.naming import LONGEST
from evorun.cli.overrides import MAY_CHANGE, MAY_CHANGE_IN_TRAINING, read_key
from evorun.runs.job_overrides import list_differing, list_sufficient
from evorun.runs.sweeps import JobInSweep

_UNNAMED = ("method", "task", "study")
"""Keys that are in every name, or in none."""


class Job(NamedTuple):
    """A job of a sweep before its folder has a name."""

    pair: str
    """METHOD_TASK, with which its folder's name begins."""
    overrides: Sequence[str]
    """As typed on a command line."""
    full_name: str
    """The name with all overrides (`naming.job_name`), which no other job has."""


def choose_folders(jobs: Sequence[Job], earlier: Sequence[JobInSweep] = ()) -> list[str]:
    """Return a folder for each job: `METHOD_TASK_KEY-VALUE...` with its seed and the keys in which the jobs differ.

    A job with the overrides of an earlier one, or with those that decide its results, gets its folder, whatever else
    differs now. Of keys that always come together a name that would be too long has one, and it is cut where that does
    not suffice. Where two jobs would share a name, each has its full one. earlier: the jobs in the folder's manifest.
    """
    given = [job.overrides for job in jobs] + [job.overrides for job in earlier]
    differing, sufficient = list_differing(given), list_sufficient(given)
    folders = {frozenset(job.overrides): job.folder for job in earlier}
    deciding = {job.folder: list_deciding(job.overrides) for job in earlier}
    alike = {overrides: folder for folder, overrides in deciding.items()}
    asked = Counter(list_deciding(job.overrides) for job in jobs)
    names = []
    for job, words, fewer in zip(jobs, differing, sufficient, strict=False):
        seed = [word for word in job.overrides if read_key(word) == "seed" and word not in words]
        name = _name(job, [*words, *seed])
        name = _name(job, [*fewer, *seed]) if len(name) > LONGEST else name
        names.append(_cut(name, job.full_name) if len(name) > LONGEST else name)
    count = Counter(names)
    chosen = []
    for job, name in zip(jobs, names, strict=True):
        own = list_deciding(job.overrides)
        shared = count[name] > 1
        taken = deciding.get(name, own) != own
        kept = folders.get(frozenset(job.overrides), alike.get(own) if asked[own] == 1 else None)
        chosen.append(kept or (job.full_name if shared or taken else name))
    return chosen


def _name(job: Job, overrides: Sequence[str]) -> str:
    given = dict(word.lstrip("+").partition("=")[::2] for word in overrides)
    shown = {key: value for key, value in given.items() if key not in _UNNAMED and not _is_of_program(key)}
    last = Counter(key.rpartition(".")[2] for key in shown)
    parts = []
    for key, value in shown.items():
        short = key.rpartition(".")[2]
        parts.append(f"{short if last[short] == 1 else key}-{value}")
    return "_".join([job.pair, *(re.sub(r"[^A-Za-z0-9._-]+", "-", part).strip("-") for part in parts)])


def _cut(name: str, full_name: str) -> str:
    """Return the name, cut, with a digest of the full one behind it, which no other job has."""
    digest = hashlib.sha256(full_name.encode()).hexdigest()[:8]
    return f"{name[: LONGEST - len(digest) - 1]}_{digest}"


def list_deciding(overrides: Sequence[str]) -> frozenset[str]:
    """Return the overrides that decide a job's results: all but those that a resume may change."""
    return frozenset(word for word in overrides if not _may_change(read_key(word)))


def _may_change(key: str) -> bool:
    group, dot, _ = key.partition(".")
    return bool(dot and group in MAY_CHANGE) or key in MAY_CHANGE_IN_TRAINING or key == "tracker" or _is_of_program(key)


def _is_of_program(key: str) -> bool:
    return key.startswith(("evorun.", "hydra.", "hydra/"))
