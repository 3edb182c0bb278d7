"""The runs before a student's: its teacher's and its fine-tuning, as a plan counts them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from evorun.errors import DataError
from evorun.reports import text
from evorun.runner.estimates import TRAINING, find_billions, hours
from evorun.runner.settings import RunConfig
from evorun.runner.stages import TEACHER, is_complete, name_stage, run_digest
from evorun.runner.student import StudentConfig, teacher_composition, tuning_composition
from evorun.runs.directory import identity


class PlannedStudent(NamedTuple):
    """The runs that make a student."""

    name: str
    teacher: Mapping[str, Any]
    tuning: Mapping[str, Any]
    selection: Mapping[str, Any]
    """The settings that select some of the teacher's responses."""
    kept_share: float
    """The most of the teacher's responses that it learns from."""
    recorded: Path | None
    """Folder of the teacher's run where it is complete already."""


def list_students(configs: Iterable[Mapping[str, Any]]) -> list[PlannedStudent]:
    """Return the students that runs with these configurations need, each once."""
    students = dict[str, PlannedStudent]()
    for config in configs:
        if config.get("student"):
            teacher, tuning = teacher_composition(config), tuning_composition(config, "traces.jsonl")
            own = StudentConfig(**config["student"])
            share = float(own.traces.top) if own.traces.kind.ranked else 1.0
            selection = {"kind": own.kind, "top": own.top, "parsed_only": own.parsed_only}
            student = PlannedStudent(own.name, teacher, tuning, selection, share, _find_complete(config, teacher))
            students[repr((own.name, selection, identity(teacher), identity(tuning)))] = student
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


def describe_tuning(config: RunConfig, data: str, tokens: float) -> str:
    """Say how many tokens a fine-tuning learns from, and for how long. data: what they come from."""
    epochs = config.raw["method"]["epochs"]
    if config.engine.simulated:
        how_long = "simulated, which takes no GPU"
    else:
        took = hours(6, find_billions(config.model) or 0.0, tokens, TRAINING)
        how_long = f"about {text.duration(3600 * took)} of an H100 by formula" if took else "hours unknown"
    return f"{data}, {epochs:g} epoch{'' if epochs == 1 else 's'}, {text.compact(tokens)} tokens in all, {how_long}."
