"""A run's configuration as plain data, without interpolations."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evorun.errors import ConfigError

MAX_DEPTH = 64
"""Maximum levels of nested groups and lists, far below Python's recursion limit (ours)."""
FEW_SETTINGS = 2
"""Maximum settings that all of several runs state, whether or not they are unusual (ours)."""


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


def find_distinguishing_keys(settings: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the keys by which to tell each of several runs from the others, given the settings of each.

    These are the keys whose values differ; where they are many, those in which a run differs from what most runs have.
    """
    # repr: values may be lists, and 1 must differ from True
    values = {
        key: [repr(own.get(key)) for own in settings] for key in dict.fromkeys(key for own in settings for key in own)
    }
    usual = {key: Counter(found).most_common(1)[0][0] for key, found in values.items() if len(set(found)) > 1}
    many = len(usual) > FEW_SETTINGS
    return [[key for key in usual if not many or values[key][index] != usual[key]] for index in range(len(settings))]


def count_turns(task: object) -> int:
    """Return the most turns of a response by a task's settings: 1 without tools."""
    turns = task.get("max_turns") if isinstance(task, Mapping) else None
    return turns if isinstance(turns, int) else 1


def refuse_interpolations(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for `${...}` in a value, which OmegaConf could resolve to a secret of the environment."""
    for key, value in iterate_leaves(dict(config)):
        if isinstance(value, str) and "${" in value:
            raise ConfigError(f"{key}: expected a plain value, got {value}; write the value itself")
