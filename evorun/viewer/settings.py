"""The settings by which runs are filtered, sorted and grouped: those in which they differ, cut to a size."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from evorun.errors import ConfigError
from evorun.runs.configs import iterate_leaves

_MAX_LEAVES = 1_000
"""Maximum keys of a configuration (ours): evorun's have some two hundred."""
_MAX_KEYS = 300
"""Maximum keys that are offered to filter, sort and group by (ours), those of most runs first."""
_MAX_TEXT = 120
"""Maximum characters of a key or of its value (ours)."""
_NOT_COMPARED = ("evorun.", "hydra.", "reported.")
"""Beginnings of keys that say nothing of a run."""

Value = str | int | float | bool | None


def list_settings(config: Mapping[str, Any]) -> dict[str, Value]:
    """Return the values of a configuration, cut to a size, without what says nothing of a run."""
    found: dict[str, Value] = {}
    try:
        for key, value in itertools.islice(iterate_leaves(config), _MAX_LEAVES):
            if not key.startswith(_NOT_COMPARED) and len(key) <= _MAX_TEXT:
                found[key] = _shorten(value)
    except ConfigError:  # nested too deeply
        return {}
    return found


def _shorten(value: Any) -> Value:
    if isinstance(value, str):
        return value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]}…"
    if isinstance(value, int) and abs(value) > 2**53:  # what JavaScript would round
        return "a number beyond 2^53"
    return value if isinstance(value, bool | int | float) else None


def find_differing_keys(settings: Sequence[Mapping[str, Value]]) -> list[str]:
    """Return the keys in which runs differ, in the order of the first run that has them."""
    values: dict[str, set[tuple[type, Value]]] = defaultdict(set)
    counts: Counter[str] = Counter()
    known = [each for each in settings if each]
    for each in known:
        for key, value in each.items():
            values[key].add((type(value), value))
            counts[key] += 1
    differing = [key for key, found in values.items() if len(found) > 1 or counts[key] < len(known)]
    kept = set(sorted(differing, key=lambda key: (-counts[key], key))[:_MAX_KEYS])
    return [key for key in differing if key in kept]
