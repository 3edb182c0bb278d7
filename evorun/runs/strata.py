"""The order of strata in tables and pictures."""

from collections.abc import Iterable, Sequence


def sort_strata(names: Iterable[str], stated: Sequence[str]) -> list[str]:
    """Return strata, each once, in the order that their task states; those that it does not state follow by name."""
    return sorted(set(names), key=lambda name: (stated.index(name) if name in stated else len(stated), name))
