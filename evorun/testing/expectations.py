"""Assertions that say what was expected, with or without a test runner that rewrites `assert`."""

from typing import Any


def expect(holds: object, message: str) -> None:
    """Raise AssertionError with the message unless `holds` is true."""
    if not holds:
        raise AssertionError(message)


def expect_equal(found: Any, expected: Any, what: str) -> None:
    """Raise AssertionError naming `what` unless the two are equal."""
    expect(found == expected, f"{what}: expected {_short(expected)}, found {_short(found)}")


def _short(value: Any, length: int = 300) -> str:
    text = repr(value)
    return text if len(text) <= length else f"{text[:length]}[...]"
