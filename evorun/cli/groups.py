"""The config groups and the names of their choices: light, as a shell asks for them at each completion."""

from functools import cache
from pathlib import Path

import evorun
from evorun.models.config import OTHER_ROLES
from evorun.runner import registry
from evorun.tracking.choices import plugin_trackers


def config_folder() -> Path:
    """Return the folder of YAML files: inside an installed wheel, or beside the package in a checkout."""
    package = Path(evorun.__file__).parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


ROLES = tuple(role for role in OTHER_ROLES if (config_folder() / role).is_dir())
"""Model roles that can have their own model."""

RUN_GROUPS = (
    *("method", "task", "model", "engine"),
    *(group for role in ROLES for group in (role, f"{role}_engine")),
    "budget",
)
"""Groups that make a run."""

CHOSEN_GROUPS = (*RUN_GROUPS, "tracker", "experiment", "release", "student", "teacher", "teacher_engine", "training")
"""Groups with a choice by name."""

UNTYPED = ("experiment", "release")
SETTINGS = ("sandbox", "run", "evorun")
"""Groups of settings without choices."""
TYPED_GROUPS = (*(group for group in CHOSEN_GROUPS if group not in UNTYPED), *SETTINGS)
"""Groups whose keys evorun checks against their schema; a key may be set whether or not the YAML lists it."""

# Groups with the choices of another group: a role's model is any model.
LIKE = {
    group: "engine" if group.endswith("_engine") else "model"
    for role in (*ROLES, "teacher")
    for group in (role, f"{role}_engine")
}


def choices(group: str) -> list[str]:
    """Return the choices of a config group in alphabetical order; a file in a subfolder is FOLDER/NAME."""
    files = _files(config_folder() / group)
    if group in LIKE:
        files |= set(choices(LIKE[group]))
    if group in registry.GROUPS:
        files |= set(registry.names(group))
    if group == "tracker":
        files |= set(plugin_trackers())
    return sorted(files)


@cache
def _files(folder: Path) -> frozenset[str]:
    """Return the names of the YAML files in a folder of evorun's own, which stay."""
    return frozenset(file.relative_to(folder).with_suffix("").as_posix() for file in folder.rglob("*.yaml"))
