"""The settings in which runs differ."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from evorun.runs.directory import identity

KNOWN = ("method.name", "task.name", "seed")
"""Settings that always have a column of their own."""


def list_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide a run's results, by dotted key; lists are values."""
    found: dict[str, Any] = {}

    def walk(node: Mapping[str, Any], prefix: str) -> None:
        for key, value in node.items():
            if isinstance(value, Mapping):
                walk(value, f"{prefix}{key}.")
            else:
                found[f"{prefix}{key}"] = value

    walk(identity(config), "")
    return found


def find_differing(configs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each run, its values of the settings in which any two of the runs differ.

    A setting of a group, such as `method.temperature`, counts only where two runs with the same choice in that group
    differ in it: two methods differ in most of their settings, which their names say. Without `KNOWN`.
    """
    settings = [list_settings(config) for config in configs]
    values: dict[str, dict[Any, set[str]]] = defaultdict(lambda: defaultdict(set))
    for own in settings:
        for key, value in own.items():
            group, _, rest = key.partition(".")
            choice = own.get(f"{group}.name") if rest and rest != "name" else None
            values[key][str(choice)].add(repr(value))  # repr: lists cannot be hashed, and 1 must differ from True
    differing = [
        key
        for key, found in values.items()
        if key not in KNOWN and any(len(different) > 1 for different in found.values())
    ]
    # a whole group that only some runs have
    groups = [key for key in values if key.count(".") == 1 and key.endswith(".name")]
    some = [key for key in groups if any(key not in own for own in settings)]
    kept = dict.fromkeys([*differing, *some])
    return [{key: own.get(key) for key in kept} for own in settings]
