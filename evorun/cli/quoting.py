"""Texts in Hydra's grammar; a module of its own, since a program that starts runs must not load Hydra."""

import re

_BARE = re.compile(r"[A-Za-z_/][\w./-]*", re.ASCII)
"""Texts that need no quotes, but for the words that mean something else."""
_WORDS = {"null", "true", "false", "nan", "inf"}


def written(text: str) -> str:
    """Return a text as a value of Hydra's grammar, between quotes where it needs them."""
    return text if _BARE.fullmatch(text) and text.lower() not in _WORDS else quoted(text)


def quoted(value: str) -> str:
    """Return a text as a value of Hydra's grammar, between quotes."""
    # a backslash stands for itself, but not before a quote
    escaped = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), value)
    return f"'{escaped}'"
