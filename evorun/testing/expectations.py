"""Assertions whose messages say what was expected, even without a test runner that rewrites `assert`."""

import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def expect(holds: object, message: str) -> None:
    """Raise AssertionError with the message unless `holds` is true."""
    if not holds:
        raise AssertionError(message)


def expect_equal(found: Any, expected: Any, what: str) -> None:
    """Raise AssertionError naming `what` unless the two are equal."""
    shown = [text if len(text := repr(value)) <= 300 else f"{text[:300]}[...]" for value in (expected, found)]
    expect(found == expected, f"{what}: expected {shown[0]}, found {shown[1]}")


def expect_same(found: Any, expected: Any, what: str, advice: str) -> None:
    """Raise AssertionError that names the first place where two values of JSON differ, unless they are equal."""
    for place, actual, wanted in _differences(found, expected, ""):
        cut, shown = "", (wanted, actual)
        if isinstance(actual, str) and isinstance(wanted, str):  # long texts may begin alike
            pairs = enumerate(zip(actual, wanted, strict=False))
            start = max(0, next((n for n, (a, b) in pairs if a != b), min(len(actual), len(wanted))) - 20)
            cut, shown = f" from character {start + 1}" if start else "", (wanted[start:], actual[start:])
        cut_wanted, cut_actual = (repr(value)[:100] for value in shown)
        raise AssertionError(f"{what}: {place}{cut}: expected {cut_wanted}, found {cut_actual}; {advice}")


def _differences(found: Any, expected: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the place, the found and the expected value of each difference; None stands for a missing value."""
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        for key in dict.fromkeys((*expected, *found)):
            yield from _differences(found.get(key), expected.get(key), f"{place}.{key}".lstrip("."))
    elif isinstance(found, list) and isinstance(expected, list):
        for index in range(max(len(found), len(expected))):
            actual, wanted = (values[index] if index < len(values) else None for values in (found, expected))
            yield from _differences(actual, wanted, f"{place}[{index}]")
    elif found != expected:
        yield place, found, expected


def locate(error: BaseException, owner: type) -> str:
    """Return an error and, where a method of `owner` raised it or called what did, that method's name and line."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if isinstance(frame.f_locals.get("self"), owner):
            code = frame.f_code
            found = f" from its `{code.co_name}` ({Path(code.co_filename).name}, line {line})"
    return f"{error!r}{found}"
