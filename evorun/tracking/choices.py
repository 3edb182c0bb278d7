"""The trackers by name: evorun's own, and those of installed packages (entry points in the group `evorun.trackers`)."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module, metadata
from typing import Any

from evorun.errors import ConfigError, PluginError, first_line
from evorun.models.requirements import find_missing_packages
from evorun.tracking.base import Tracker, TrackerSettings

TRACKERS = {
    "mlflow": "evorun.tracking.mlflow:MlflowTracker",
    "tensorboard": "evorun.tracking.tensorboard:TensorBoardTracker",
    "trackio": "evorun.tracking.trackio:TrackioTracker",
    "wandb": "evorun.tracking.wandb:WandbTracker",
}
"""Each imports its package only when it is opened."""


@cache
def plugin_trackers() -> dict[str, metadata.EntryPoint]:
    """Return the trackers that installed packages offer, by name; evorun's own keep their names."""
    return {point.name: point for point in metadata.entry_points(group="evorun.trackers") if point.name not in TRACKERS}


def tracker_class(name: str) -> type[Tracker]:
    """Return the tracker of that name. Raises ConfigError when there is none, PluginError for an unusable plug-in."""
    if name in TRACKERS:
        module, _, attribute = TRACKERS[name].partition(":")
        own: type[Tracker] = getattr(import_module(module), attribute)
        return own
    if name not in plugin_trackers():
        offered = ", ".join(sorted({*TRACKERS, *plugin_trackers()}))
        raise ConfigError(f"tracker={name}: unknown tracker; choose one or several of {offered}, or none")
    try:
        found: Any = plugin_trackers()[name].load()
        if not (isinstance(found, type) and issubclass(found.Config, TrackerSettings)):  # type: ignore[attr-defined]
            raise TypeError(f"expected a class with a Config that derives from TrackerSettings, got {found!r:.60}")
        for attribute in ("packages", "variables", "open", "log", "flush", "close"):
            getattr(found, attribute)
    except (Exception, SystemExit) as error:  # a module may do anything when it is imported
        raise PluginError(f"tracker={name}: the plug-in cannot be used: {first_line(error)}") from error
    return found


def require_trackers(trackers: Mapping[str, TrackerSettings]) -> None:
    """Raise ConfigError for a tracker whose package is not installed."""
    for name in trackers:
        missing = find_missing_packages(tracker_class(name).packages)
        if missing:
            how = f"pip install 'evorun[{name}]'" if name in TRACKERS else f"install {', '.join(missing)}"
            raise ConfigError(f"tracker={name}: expected its package, {', '.join(missing)} is not installed: {how}")
