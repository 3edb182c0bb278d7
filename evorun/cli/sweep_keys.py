"""Keys in a sweep over methods, tasks, engines or students: each goes to the jobs whose choice has it."""

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any

from evorun.cli.overrides import read_key
from evorun.errors import ConfigError, EvorunError
from evorun.runner import registry
from evorun.runner.typed import hint_at_key

Job = list[str]
"""The overrides of a job."""

_SCHEMAS: dict[str, Callable[[str], Any]] = {
    "method": lambda name: registry.method_class(name).Config,
    "task": registry.task_config_class,
    "engine": registry.engine_config_class,
}

_log = logging.getLogger(__name__)


def drop_inapplicable_keys(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs without the keys that their method, task or engine lacks and another in the sweep has.

    Jobs without a student lack its keys, and those of its teacher. Log a warning for each dropped key. Raises
    ConfigError for a key that no choice of the sweep has.
    """
    found = list(jobs)
    for group, schema in _SCHEMAS.items():
        choices = list(dict.fromkeys(_choice(group, job) for job in jobs))
        if len(choices) > 1:
            fields = {choice: _fields(schema, choice) for choice in choices}
            found = _without(group, fields, found)
    return _drop_keys_of_students(found)


_OF_STUDENTS = ("student", "teacher", "teacher_engine", "training")
"""Groups that are settings of a student alone; `training` is also one of a method that trains."""


def _drop_keys_of_students(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs, those without a student without the keys of one, if others in the sweep have one.

    Log a warning for each dropped key.
    """
    have = [_has_student(job) for job in jobs]
    if all(known is False for known in have):  # each job reports the key as an error
        return list(jobs)
    dropped = dict[str, None]()
    found = []
    for job, known in zip(jobs, have, strict=True):
        lacking = [word for word in job if known is False and _is_of_student(word, job)]
        dropped |= dict.fromkeys(map(read_key, lacking))
        found.append([word for word in job if word not in lacking])
    for key in dropped:
        _log.warning(f"{key}: only jobs with a student have this key; the others run without it")
    return found


def _has_student(job: Job) -> bool | None:
    """Return whether a job's model is fine-tuned first; None where an experiment or an unknown method decides."""
    choice = _choice("student", job)
    if choice is not None:
        return choice != "none"
    method = _choice("method", job)
    if any(word.startswith("experiment=") for word in job):
        return None
    with contextlib.suppress(EvorunError):
        return method is not None and registry.method_class(method).requires_student
    return None


def _is_of_student(word: str, job: Job) -> bool:
    """Return whether an override sets something that only a student has."""
    key = read_key(word)
    group = key.partition(".")[0]
    if group not in _OF_STUDENTS or key == "student":
        return False
    method = _choice("method", job)
    return group != "training" or not (method is not None and _trains(method))


def _trains(method: str) -> bool:
    """Return whether a method trains weights; also for one that is unknown, whose job will report it."""
    with contextlib.suppress(EvorunError):
        return registry.method_class(method).trains
    return True


def _choice(group: str, job: Job) -> str | None:
    """Return the job's choice of a group; None for the default choice, or an experiment's."""
    chosen = [word.partition("=")[2] for word in job if word.lstrip("+").startswith(f"{group}=")]
    return chosen[-1] if chosen else None


def _fields(schema: Callable[[str], Any], choice: str | None) -> list[str] | None:
    """Return the keys of a choice; None if they are unknown here, and its job will report the error."""
    if choice is not None:
        with contextlib.suppress(EvorunError):
            return [field.name for field in dataclasses.fields(schema(choice))]
    return None


def _without(group: str, fields: dict[str | None, list[str] | None], jobs: Sequence[Job]) -> list[Job]:
    warnings: dict[str, None] = {}
    found = []
    for job in jobs:
        own = fields[_choice(group, job)]
        kept = []
        for word in job:
            key = read_key(word)
            leaf = key.removeprefix(f"{group}.").partition(".")[0]
            if own is None or leaf in own or not key.startswith(f"{group}.") or word.startswith("~"):
                kept.append(word)
                continue
            having = [str(choice) for choice, keys in fields.items() if keys is None or leaf in keys]
            if not having:
                names = ", ".join(map(str, fields))
                known = sorted({key for keys in fields.values() for key in keys or ()})
                hint = hint_at_key(group, leaf, known)
                raise ConfigError(f"{key}: unknown key of {names}; {hint}{'else ' if hint else ''}leave it out")
            lacking = ", ".join(str(choice) for choice, keys in fields.items() if keys is not None and leaf not in keys)
            line = f"{key}: only {', '.join(having)} {'has' if len(having) == 1 else 'have'} this key"
            line += f"; the jobs of {lacking} run without it"
            if len(having) > 1:
                arm = f"{{{group}: {having[-1]}, {key}: ...}}"
                line += f"; for one of them alone, give hydra.sweeper.variants=[{arm}]"
            warnings[line] = None
        found.append(kept)
    for line in warnings:
        _log.warning(line)
    return found
