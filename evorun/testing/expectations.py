"""Assertions whose messages say what was expected, even without a test runner that rewrites `assert`."""

from typing import Any


def expect(holds: object, message: str) -> None:
    """Raise AssertionError with the message unless `holds` is true."""
    if not holds:
        raise AssertionError(message)


def expect_equal(found: Any, expected: Any, what: str) -> None:
    """Raise AssertionError naming `what` unless the two are equal."""
    shown = [text if len(text := repr(value)) <= 300 else f"{text[:300]}[...]" for value in (expected, found)]
    expect(found == expected, f"{what}: expected {shown[0]}, found {shown[1]}")
