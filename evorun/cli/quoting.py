"""Values in Hydra's grammar; a module of its own, since a program that starts runs must not load Hydra."""

import re
from collections.abc import Mapping
from numbers import Integral, Real
from os import PathLike, fspath
from typing import Any

from evorun.errors import ConfigError
from evorun.plugins import advise_key

_BARE = re.compile(r"[A-Za-z_/][\w./-]*", re.ASCII)
"""Texts that need no quotes, but for the words that mean something else."""
_WORDS = {"null", "true", "false", "nan", "inf"}


def write_value(key: str, value: Any) -> str:
    """Return a value in Hydra's grammar, so that it is read back as it is. Raises ConfigError for what has no form."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return repr(float(value))
    if isinstance(value, str | PathLike):
        return _write_text(str(fspath(value)))
    if isinstance(value, list | tuple | range):
        return f"[{','.join(write_value(key, item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{_write_text(str(name))}:{write_value(key, item)}' for name, item in value.items())}}}"
    if (advice := advise_key(key)) is not None:
        given = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise ConfigError(f"{key}: expected the name of an installed one, got {given}; {advice}")
    raise ConfigError(
        f"{key}: expected a text, a number, true or false, a list or a mapping, got {type(value).__name__}"
    )


def _write_text(text: str) -> str:
    return text if _BARE.fullmatch(text) and text.lower() not in _WORDS else quoted(text)


def quoted(value: str) -> str:
    """Return a text as a value of Hydra's grammar, between quotes."""
    # a backslash stands for itself, but not before a quote
    escaped = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), value)
    return f"'{escaped}'"
