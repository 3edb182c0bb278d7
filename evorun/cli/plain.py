"""A composed configuration as plain data that means the same in every folder and at any later time."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from evorun.cli.explain import explain
from evorun.errors import ConfigError, EvorunError
from evorun.models.config import OTHER_ROLES
from evorun.runs.directory import load_manifest

_TASK_PATHS = ("data", "prompts")
# By role: the key of the engine that serves it.
_MODELS = {"model": "engine", **{role: f"{role}_engine" for role in OTHER_ROLES}, "teacher": "teacher_engine"}


def plain(composed: DictConfig) -> dict[str, Any]:
    """Return a composed configuration as plain data. Raises ConfigError for a value that is missing."""
    try:
        config: Any = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(explain(error)) from error
    return dict(config)


def with_absolute_paths(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with paths that hold in every folder: data, prompts, examples, runs, local models."""
    absolute = with_absolute_runs(config)
    _replace(absolute, "method", "demonstrations")
    for key in _TASK_PATHS:
        _replace(absolute, "task", key)
    for role, engine_key in _MODELS.items():
        name = absolute[role].get("id") if isinstance(absolute.get(role), dict) else None
        if not (isinstance(name, str) and name and Path(name).expanduser().is_dir()):
            continue
        engine = absolute.get(engine_key)
        if isinstance(engine, dict) and engine.get("name") == "policy":
            engine = absolute.get("engine")
        # A server's name for its model is no path, even where a folder of that name happens to be here.
        if not (isinstance(engine, dict) and _is_served_by_name(name, engine)):
            _replace(absolute, role, "id")
    return absolute


def _is_served_by_name(model: str, engine: Mapping[str, Any]) -> bool:
    """Return whether the model has a server's name for it: here, or in the run that is replayed."""
    if engine.get("name") == "replay" and isinstance(engine.get("run"), str):
        with contextlib.suppress(EvorunError):  # where there is no such run, the engine will say so
            return model in {recorded.id for recorded in load_manifest(Path(engine["run"])).models.values()}
    return engine.get("name") == "server"


def with_absolute_runs(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with absolute paths of the runs to replay and of the stages; no result changes."""
    absolute = {key: dict(value) if isinstance(value, Mapping) else value for key, value in config.items()}
    for engine in _MODELS.values():
        _replace(absolute, engine, "run")
    _replace(absolute, "run", "stages")
    return absolute


def _replace(config: dict[str, Any], group: str, key: str) -> None:
    values = config.get(group)
    if isinstance(values, dict) and isinstance(values.get(key), str) and values[key]:
        values[key] = os.path.abspath(Path(values[key]).expanduser())
