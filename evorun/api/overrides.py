"""Settings given in Python, as overrides of a command line (Hydra's grammar)."""

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from os import PathLike, fspath
from typing import Any

from evorun.cli.quoting import written
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
        return f"{key}={','.join(_write(key, one) for one in value)}"
    return f"{key}={_write(key, value)}"


def _write(key: str, value: Any) -> str:
    """Return a value in Hydra's grammar, so that it is read back as it is."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return repr(float(value))
    if isinstance(value, str | PathLike):
        return written(str(fspath(value)))
    if isinstance(value, list | tuple | range):
        return f"[{','.join(_write(key, one) for one in value)}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{written(str(name))}:{_write(key, one)}' for name, one in value.items())}}}"
    raise ConfigError(
        f"{key}: expected a text, a number, true or false, a list or a mapping, got {type(value).__name__}"
    )
