"""The runs before a student's: its teacher's and its fine-tuning, as a plan counts them."""

from collections.abc import Iterable, Mapping
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from evorun.errors import DataError
from evorun.runner.estimates import TRAINING, Part, hours
from evorun.runner.settings import RunConfig
from evorun.runner.stages import TEACHER, is_complete, name_stage, run_digest
from evorun.runner.student import teacher_composition, tuning_composition
from evorun.runs.directory import identity


class PlannedStudent(NamedTuple):
    """The runs that make a student."""

    name: str
    teacher: Mapping[str, Any]
    tuning: Mapping[str, Any]
    recorded: Path | None
    """Folder of the teacher's run where it is complete already."""


def list_students(configs: Iterable[Mapping[str, Any]]) -> list[PlannedStudent]:
    """Return the students that runs with these configurations need, each once."""
    students = dict[str, PlannedStudent]()
    for config in configs:
        if config.get("student"):
            teacher, tuning = teacher_composition(config), tuning_composition(config, "traces.jsonl")
            name = config["student"]["name"]
            student = PlannedStudent(name, teacher, tuning, _find_complete(config, teacher))
            students[repr((name, identity(teacher), identity(tuning)))] = student
    return list(students.values())


def _find_complete(config: Mapping[str, Any], teacher: Mapping[str, Any]) -> Path | None:
    """Return the folder of a teacher's run that is complete; None where there is none, or nobody can tell."""
    try:
        digest = run_digest(teacher, identity(teacher))
    except DataError:  # its questions are not on this machine
        return None
    folder = Path(config["run"]["stages"]) / name_stage(
        TEACHER, teacher["method"]["name"], config["task"]["name"], digest
    )
    return folder if is_complete(folder) else None


def count_tuning_calls(config: RunConfig, questions: int, responses: int) -> list[Part]:
    """Return the calls of a fine-tuning's evaluations on the teacher's questions; responses: to learn from, at most."""
    settings: Any = config.method.config
    steps = ceil(settings.epochs * responses / settings.batch)
    between = (steps - 1) // settings.eval_every if settings.eval_every else 0
    answers = (2 + between) * questions * settings.eval_calls
    return [Part("evaluate", config.model.name, answers, settings.eval_max_tokens)]


def describe_tuning(student: str, config: RunConfig, responses: int, max_tokens: float) -> str:
    """Say how long a fine-tuning may take; max_tokens: of a response."""
    settings: Any = config.method.config
    size = hours(6, config.model.name, settings.epochs * responses * max_tokens, TRAINING)
    took = f"about {size:.1f} hours of an H100 by formula" if size else "hours unknown"
    return (
        f"Fine-tuning of student={student}: on at most {responses:,} responses of its teacher, {settings.epochs:g} "
        f"epoch{'' if settings.epochs == 1 else 's'}, {took}."
    )
