"""A run's configuration as plain data: values, and nothing that stands for another one."""

from collections.abc import Iterator, Mapping
from typing import Any

from evorun.errors import ConfigError

DEEPEST = 64
"""Groups and lists one inside another; far fewer than Python's stack holds. `ours`."""


def leaves(node: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield each value that is no group or list, with its key (`engine.base_urls.0`).

    Raises ConfigError for a configuration that is nested too deep to be anybody's.
    """
    if depth > DEEPEST:
        raise ConfigError(f"{prefix[:80]}...: expected at most {DEEPEST} groups one inside another, got more")
    if isinstance(node, dict | list):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from leaves(value, f"{prefix}.{key}" if prefix else str(key), depth + 1)
    else:
        yield prefix, node


def refuse_interpolations(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for `${...}` in a value, which OmegaConf would resolve: the environment's secrets, say."""
    for key, value in leaves(dict(config)):
        if isinstance(value, str) and "${" in value:
            raise ConfigError(f"{key}: expected a plain value, got {value}; write out what it stands for")
