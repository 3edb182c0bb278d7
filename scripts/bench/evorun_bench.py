"""The result of a benchmark: rows of the table that `make bench` prints."""

from typing import NamedTuple


class Row(NamedTuple):
    """One measured number beside its target."""

    name: str
    value: float
    unit: str
    target: str
    """In words (`>= 2000`); empty for a number that is there for comparison."""
    met: bool | None
    """None when there is no target."""
