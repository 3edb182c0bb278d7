"""The limit on the nesting of values in records."""

from typing import Any

MAX_DEPTH = 32
"""Maximum nesting of values (ours): configurations and problems have a few levels; code that walks them recurses."""


def refuse_depth(value: Any) -> None:
    """Raise ValueError for lists and dictionaries nested more than `MAX_DEPTH` deep."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        groups = [node.values() if isinstance(node, dict) else node for node in level if isinstance(node, dict | list)]
        level = [value for group in groups for value in group]
    if level:
        raise ValueError(f"expected at most {MAX_DEPTH} levels of lists and objects")
