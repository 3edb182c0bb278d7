"""Plug-ins: classes that installed packages offer as entry points, found by name and imported on demand."""

import logging
import typing
from collections.abc import Callable, Collection
from importlib import metadata
from typing import Any, Literal

from evorun.errors import PluginError, first_line

Kind = Literal["method", "task", "engine", "judge", "reward", "grader"]
INSTALL = "a plug-in's package must be installed (pip install FOLDER)"
"""Advice for a name that is not found."""

_KEYS = {"reward": "method.reward_source", "grader": "task.grader"}

log = logging.getLogger("evorun")


def key_of(kind: str) -> str:
    """Return the key of the command line that chooses a plug-in of a kind."""
    return _KEYS.get(kind, kind)


def advise_package(kind: str) -> str:
    """Say how code of one's own becomes a choice by name, of a kind of plug-in."""
    written = kind in ("method", "task", "reward")
    how = f"evorun new {kind} NAME, then pip install -e ./NAME" if written else "see the guide on plug-ins"
    return f"make a package of your own {kind}, and give its name: {how}"


def advise_key(key: str) -> str | None:
    """Say the same of the key that chooses a kind of plug-in; None of other keys."""
    kinds = {key_of(kind): kind for kind in typing.get_args(Kind)}
    return advise_package(kinds[key]) if key in kinds else None


def find_plugins(kind: Kind, own: Collection[str]) -> dict[str, metadata.EntryPoint]:
    """Return the entry points that installed packages offer for a kind, by name; the first to take a name keeps it.

    own: evorun's own names, which no plug-in replaces.
    """
    found: dict[str, metadata.EntryPoint] = {}
    for point in metadata.entry_points(group=f"evorun.{kind}s"):
        if point.name in own or point.name in found:
            owner = "evorun" if point.name in own else find_package(found[point.name])
            log.warning(
                f"{key_of(kind)}={point.name}: the name belongs to {owner}, so the plug-in {find_package(point)} is "
                "ignored; rename it there, or uninstall the package"
            )
        else:
            found[point.name] = point
    return found


def load_plugin(kind: Kind, point: metadata.EntryPoint, base: type, check: Callable[[Any], object]) -> type:
    """Import a plug-in. Raises PluginError when that fails, or when it does not meet the contract of its kind.

    base: the class that it must derive from. check: raises an exception for what else it breaks.
    """
    try:
        found: type = point.load()
        if not (isinstance(found, type) and issubclass(found, base)):
            raise TypeError(f"expected a subclass of {base.__module__}.{base.__name__}, got {found!r:.60}")
        check(found)
    # A module may do anything when it is imported, `sys.exit` included.
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"{key_of(kind)}={point.name}: the plug-in {find_package(point)} cannot be used: {first_line(error)}; fix "
            "it, or uninstall the package"
        ) from error
    return found


def find_package(point: metadata.EntryPoint) -> str:
    """Return the name and version of the package that provides a plug-in."""
    return "of an unknown package" if point.dist is None else f"{point.dist.name} {point.dist.version}"
