"""Texts in Hydra's grammar; a module of its own, since a program that starts runs must not load Hydra."""

import re


def quoted(value: str) -> str:
    """Return a text as a value of Hydra's grammar, between quotes."""
    # a backslash stands for itself, but not before a quote
    escaped = re.sub(r"(\\*)('|$)", lambda found: found[1] * 2 + ("\\'" if found[2] else ""), value)
    return f"'{escaped}'"
