"""Reading of numbers in answers, for any task whose answers are numbers."""

import re
from fractions import Fraction

from evorun.tasks.math_contest.reading import canonical, read_integer

MAX_CHARS = 400
"""Longest text that is read as a number (ours): the longest integer that a float can hold has 309 digits."""

_VALUE = r"[+-]?(?:[0-9]{1,3}(?:[,_][0-9]{3})+(?:\.[0-9]*)?|[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
# Three digits of an exponent: the exact value of 1e999999999 would fill the memory.
_EXPONENT = r"[+-]?[0-9]{1,3}"
_SCIENTIFIC = re.compile(
    rf"(?P<value>{_VALUE})(?:e(?P<exponent>{_EXPONENT}))?"
    rf"|(?:(?P<factor>{_VALUE})(?:\\times|\\cdot|[x\u00d7*\u00b7]))?10(?:\^|\*\*)[{{(]?(?P<power>{_EXPONENT})[}})]?",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"\\?\$|\\(?:text|mathrm)\{([^{}]*)\}")
_RATIO = re.compile(r"-?[0-9]+/[0-9]+")
# "2.5 km", "0.5%"; of integers `read_integer` takes them off
_MEASURED = re.compile(r"(?P<number>.*[0-9.})])(?P<unit> ?\\?%| [A-Za-z][A-Za-z .]*(?: ?\^ ?\{?[23]\}?)?)")
_SUPERSCRIPT = re.compile("[\u207a\u207b]?[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+")
_SUPERSCRIPTS = str.maketrans(
    "\u207a\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079", "+-0123456789"
)


def read_number(text: str) -> Fraction:
    """Return the exact value of a number in one of its usual forms, ignoring a unit after it.

    These are an integer, a decimal or a fraction, with or without thousands set apart, and a power of ten (`1.5e-3`,
    `3 x 10^5`). Raises ValueError with `not_a_number: ...` for anything else, and for what no float can hold.
    """
    try:
        value = _read_value(text if len(text) <= MAX_CHARS else "")
        float(value)
    except (ValueError, OverflowError, ZeroDivisionError) as error:
        raise ValueError(f"not_a_number: expected a number, got {text!r:.60}") from error
    return value


def _read_value(text: str) -> Fraction:
    """Return the value. Raises ValueError or ZeroDivisionError where there is none."""
    if (integer := read_integer(text)) is not None:
        return Fraction(integer)
    plain = canonical(_remove_unit(_SUPERSCRIPT.sub(lambda found: f"^{found[0].translate(_SUPERSCRIPTS)}", text)))
    if _RATIO.fullmatch(plain):
        return Fraction(plain)
    found = _SCIENTIFIC.fullmatch(plain)
    if found is None:
        raise ValueError(plain)
    value = re.sub("[,_]", "", found["value"] or found["factor"] or "1")
    return Fraction(value) * Fraction(10) ** int(found["exponent"] or found["power"] or 0)


def _remove_unit(text: str) -> str:
    """Return the text without a unit in words, or a percent sign, behind its last digit."""
    measured = _MEASURED.fullmatch(_MARKUP.sub(r"\1", text).strip().rstrip("."))
    # Some words are no unit: "5.5 million" is no 5.5.
    return measured["number"] if measured and read_integer(f"1{measured['unit']}") == 1 else text
