"""A run's configuration as plain data, without interpolations."""

from collections.abc import Iterator, Mapping
from typing import Any

from evorun.errors import ConfigError

MAX_DEPTH = 64
"""Maximum levels of nested groups and lists, far below Python's recursion limit (ours)."""


def iterate_leaves(node: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield each value that is not a group or list, with its key (`engine.base_urls.0`).

    Raises ConfigError for more than `MAX_DEPTH` levels.
    """
    if depth > MAX_DEPTH:
        raise ConfigError(f"{prefix[:80]}...: expected at most {MAX_DEPTH} nested groups, got more")
    if isinstance(node, dict | list):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from iterate_leaves(value, f"{prefix}.{key}" if prefix else str(key), depth + 1)
    else:
        yield prefix, node


def refuse_interpolations(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for `${...}` in a value, which OmegaConf could resolve to a secret of the environment."""
    for key, value in iterate_leaves(dict(config)):
        if isinstance(value, str) and "${" in value:
            raise ConfigError(f"{key}: expected a plain value, got {value}; write the value itself")
