"""Checks of configuration values; each raises ConfigError naming the key, what was given and what is allowed."""

import math
from collections.abc import Collection

from evorun.errors import ConfigError


def at_least(key: str, value: float | None, minimum: float) -> None:
    """Refuse a number below `minimum`; None passes (it means: no limit or not set)."""
    if value is not None and not (math.isfinite(value) and value >= minimum):
        raise ConfigError(f"{key}: expected a number >= {minimum}, got {value}")


def above(key: str, value: float | None, bound: float) -> None:
    """Refuse a number that is not greater than `bound`; None passes."""
    if value is not None and not (math.isfinite(value) and value > bound):
        raise ConfigError(f"{key}: expected a number > {bound}, got {value}")


def within(key: str, value: float | None, low: float, high: float) -> None:
    """Refuse a number outside [`low`, `high`]; None passes."""
    if value is not None and not low <= value <= high:
        raise ConfigError(f"{key}: expected a number in [{low}, {high}], got {value}")


def one_of(key: str, value: str, choices: Collection[str]) -> None:
    """Refuse a string that is not among `choices`."""
    if value not in choices:
        raise ConfigError(f"{key}: expected one of {', '.join(sorted(choices))}, got '{value}'")
