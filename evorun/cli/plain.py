"""A composed configuration as plain data that stays true wherever and whenever it is read."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from evorun.cli.explain import explain
from evorun.errors import ConfigError

_TASK_PATHS = ("data", "prompts")
_MODELS = {"model": "engine", "judge": "judge_engine"}


def plain(composed: DictConfig) -> dict[str, Any]:
    """Return a composed configuration as plain data. Raises ConfigError for a value that is missing."""
    try:
        config: Any = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(explain(error)) from error
    return dict(config)


def refuse_secrets(composed: DictConfig) -> None:
    """Raise ConfigError for a value taken from the environment: the manifest would record what may be a key."""
    for key, value in _leaves(OmegaConf.to_container(composed, resolve=False)):
        if isinstance(value, str) and re.search(r"\$\{\s*oc\.env\s*:", value):
            raise ConfigError(
                f"{key}: expected a value, got {value}, which would write the variable's content to manifest.json; "
                "write the value out (for an API key, name its variable in engine.api_key_env)"
            )


def with_absolute_paths(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with paths that hold in every folder: data, prompts, examples, runs, local models."""
    absolute = with_absolute_runs(config)
    _replace(absolute, "method", "demonstrations")
    for key in _TASK_PATHS:
        _replace(absolute, "task", key)
    for role, engine in _MODELS.items():
        served = absolute.get(engine)
        name = absolute[role].get("id") if isinstance(absolute.get(role), dict) else None
        # a server's name for its model is no path, whatever folders there are
        is_served_by_name = isinstance(served, dict) and served.get("name") == "server"
        if isinstance(name, str) and name and not is_served_by_name and Path(name).expanduser().is_dir():
            _replace(absolute, role, "id")
    return absolute


def with_absolute_runs(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with absolute paths of the runs to replay; nothing that decides the results changes."""
    absolute = {key: dict(value) if isinstance(value, Mapping) else value for key, value in config.items()}
    for engine in _MODELS.values():
        _replace(absolute, engine, "run")
    return absolute


def _replace(config: dict[str, Any], group: str, key: str) -> None:
    values = config.get(group)
    if isinstance(values, dict) and isinstance(values.get(key), str) and values[key]:
        values[key] = os.path.abspath(Path(values[key]).expanduser())


def _leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict | list):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, node
