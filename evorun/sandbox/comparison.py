"""When an output is the expected one: LiveCodeBench's rules, on texts that a program may have made to harm.

Pure, and linear in the length of the texts but for integers of up to some thousand digits.

Where the rules differ from the harness's: a returned object's keys are JSON's (the harness finds {1: 2} and {"1": 2}
unequal, here both are the latter). The harness runs no script where it expects a JSON value, while here one may print
it (ours): as JSON, as Python shows it, or, where it is a string, without quotes.
"""

import json
import re
import sys
from decimal import Decimal, DecimalException
from typing import Any, Final

from evorun.sandbox.base import Check


def same_output(check: Check, expected: str, actual: str, *, printed: bool = False) -> bool:
    """Tell whether `actual`, which a script `printed` or a callable returned as JSON, will do.

    `lines`: as many lines as expected, white space around the whole and around each line aside; a line agrees when it
    is equal, or token by token as exact decimals (1.0 equals 1.00, 0.3 does not equal 0.30000001).

    `json`: equal values as Python compares them (1 equals 1.0 and true), lists and tuples alike. A script may also
    print what `print` shows of such a value: True, None, single quotes, tuples, and an expected string bare, white
    space around it aside. So a script that prints 12 gives both the number 12 and the string "12", as printing tells
    no types; a callable that returns 12 gives the number alone.
    """
    expected, actual = expected.strip(), actual.strip()
    if expected == actual:
        return True
    return _same_lines(expected, actual) if check == "lines" else _same_json(expected, actual, printed)


def _same_lines(expected: str, actual: str) -> bool:
    if expected.count("\n") != actual.count("\n"):
        return False
    return all(map(_same_line, expected.split("\n"), actual.split("\n")))


def _same_line(expected: str, actual: str) -> bool:
    expected, actual = expected.strip(), actual.strip()
    if expected == actual:
        return True
    wanted, given = expected.split(), actual.split()
    try:
        return len(wanted) == len(given) and [Decimal(token) for token in wanted] == [Decimal(token) for token in given]
    except DecimalException:  # a token is no number, or a signalling NaN
        return False


class _NoValue:
    """Stands for a text that is no value; equal to nothing."""


_NO_VALUE: Final = _NoValue()


def _same_json(expected: str, actual: str, printed: bool) -> bool:
    wanted, given = _read(expected), _read(actual)
    if printed and isinstance(wanted, str) and wanted.strip() == actual:
        return True
    if printed and given is _NO_VALUE:
        given = _read(_as_json(actual))
    if wanted is _NO_VALUE or given is _NO_VALUE:
        return False
    try:
        return bool(wanted == given)
    except RecursionError:
        return False


def _read(text: str) -> Any:
    try:
        return json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError):
        return _NO_VALUE


_FEW_DIGITS = sys.int_info.str_digits_check_threshold
"""Python always reads integers as short as this; longer ones may be refused, and take quadratic time."""


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _FEW_DIGITS else Decimal(digits)


_PYTHON_TOKEN = re.compile(
    r"""'(?P<single>(?:[^'\\\n]|\\.)*)'|"(?P<double>(?:[^"\\\n]|\\.)*)"|\b(?P<name>True|False|None)\b"""
    r"""|(?P<open>\()|(?P<close>,?\s*\))"""
)
_PYTHON_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
_CHARACTERS = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_NAMES = {"True": "true", "False": "false", "None": "null"}


def _as_json(text: str) -> str:
    """Rewrite what `print` shows of lists, tuples, dicts, strings, numbers, booleans and None as JSON."""
    return _PYTHON_TOKEN.sub(_token_as_json, text)


def _token_as_json(token: re.Match[str]) -> str:
    kind = token.lastgroup
    if kind == "open":
        return "["
    if kind == "close":
        return "]"
    if kind == "name":
        return _NAMES[token["name"]]
    body = token["single"] if kind == "single" else token["double"]
    return json.dumps(_PYTHON_ESCAPE.sub(_character, body) if "\\" in body else body)


def _character(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    if code is None:
        return _CHARACTERS.get(escape[4], escape[0])
    return chr(min(int(code, 16), sys.maxunicode))
