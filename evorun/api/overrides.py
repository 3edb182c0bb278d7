"""Settings given in Python, as overrides of a command line (Hydra's grammar)."""

from collections.abc import Mapping, Sequence
from typing import Any

from evorun.cli.quoting import write_value
from evorun.errors import ConfigError

Settings = str | Mapping[str, Any]
"""Overrides: a text KEY=VALUE, or values by key."""


def make_overrides(given: Sequence[Settings], named: Mapping[str, Any], *, swept: bool = False) -> list[str]:
    """Return overrides in the given order, those by name last.

    swept: a list, a tuple or a range has the values to sweep over; otherwise it is one value. A text KEY=VALUE is
    passed on as it is. Raises ConfigError for anything else.
    """
    words: list[str] = []
    for settings in (*given, named):
        if isinstance(settings, str):
            if settings.startswith("-") or ("=" not in settings and not settings.startswith("~")):
                raise ConfigError(
                    f"expected KEY=VALUE, got '{settings}'; options of the command line are arguments here"
                )
            words.append(settings)
        elif isinstance(settings, Mapping):
            words += [_make_override(str(key), value, swept=swept) for key, value in settings.items()]
        else:
            raise ConfigError(f"expected KEY=VALUE or a mapping of settings, got {type(settings).__name__}")
    return words


def _make_override(key: str, value: Any, *, swept: bool) -> str:
    if swept and isinstance(value, list | tuple | range):
        if not value:
            raise ConfigError(f"{key}: expected at least one value to sweep over, got none")
        return f"{key}={','.join(write_value(key, choice) for choice in value)}"
    return f"{key}={write_value(key, value)}"
