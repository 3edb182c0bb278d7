"""Comparison of a program's output with the expected one, by LiveCodeBench's rules.

The functions are pure, and safe on hostile texts. Their time is linear in the length of the texts, and they need little
further memory. Only JSON values may take fifty times the memory of their text.

Two rules differ from the harness's. The keys of a returned object are JSON's: the harness finds {1: 2} and {"1": 2}
unequal; here both become the latter. The harness runs no script where it expects a JSON value. Here a script may print
the value (ours): as JSON, as Python shows it, or, if it is a string, without quotes.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from decimal import Decimal, DecimalException
from itertools import zip_longest
from typing import Any, Final

from evorun.sandbox.base import Check


def same_output(check: Check, expected: str, actual: str, *, printed: bool = False) -> bool:
    """Return whether `actual`, which a script `printed` or a callable returned as JSON, counts as `expected`.

    `lines`: the outputs have equally many lines, and these agree, ignoring surrounding white space. Two lines agree if
    they are equal, or if their tokens are equal as exact decimals (1.0 equals 1.00; 0.3 does not equal 0.30000001).

    `json`: the values are equal as Python compares them (1 equals 1.0 and true), lists and tuples alike. A script may
    also print what `print` shows of such a value: True, None, single quotes, tuples. It may print an expected string
    without quotes, ignoring surrounding white space. A script that prints 12 therefore gives both the number 12 and the
    string "12", since printing loses types. A callable that returns 12 gives only the number.
    """
    expected, actual = expected.strip(), actual.strip()
    if expected == actual:
        return True
    if check == "json":
        return _same_json(expected, actual, printed)
    if expected.count("\n") != actual.count("\n"):  # before splitting: megabytes of line ends cost nothing
        return False
    return all(map(_same_line, _lines(expected), _lines(actual)))


def _lines(text: str) -> Iterator[str]:
    # Not text.split("\n"): lists of short texts take thirty times the memory of the whole.
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    yield text[start:]


_TOKEN = re.compile(r"\S+")
_LONG_LINE = 10_000  # characters from which a list of tokens would take too much memory; below, a list is faster


def _tokens(line: str) -> Iterable[str]:
    return line.split() if len(line) < _LONG_LINE else (token[0] for token in _TOKEN.finditer(line))


def _same_line(expected: str, actual: str) -> bool:
    expected, actual = expected.strip(), actual.strip()
    if expected == actual:
        return True
    try:
        pairs = zip_longest(_tokens(expected), _tokens(actual))
        return all(wanted and given and _no_other_number(wanted, given) for wanted, given in pairs)
    except DecimalException:  # a token is not a number, or is a signalling NaN
        return False


def _no_other_number(expected: str, actual: str) -> bool:
    return (expected == actual and expected.isdecimal()) or Decimal(expected) == Decimal(actual)


_NO_VALUE: Final = object()  # for a text that is not JSON; None is JSON's null


def _same_json(expected: str, actual: str, printed: bool) -> bool:
    wanted, given = _read(expected), _read(actual)
    if printed and isinstance(wanted, str) and wanted.strip() == actual:
        return True
    if printed and given is _NO_VALUE:
        # Not by ast.literal_eval: its documentation warns that hostile text can crash the process.
        given = _read(_python_as_json(actual))
    if wanted is _NO_VALUE or given is _NO_VALUE:
        return False
    try:
        return bool(wanted == given)
    except RecursionError:  # lists nested deeper than Python compares
        return False


def _read(text: str) -> Any:
    try:
        return json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError):
        return _NO_VALUE


def _integer(digits: str) -> int | Decimal:
    # Python refuses long integers by default, since reading them takes quadratic time. A Decimal takes linear time.
    return int(digits) if len(digits) <= sys.int_info.str_digits_check_threshold else Decimal(digits)


# Possessive quantifiers: an unclosed quote is tried once, not again from each of its characters.
_PYTHON_TOKEN = re.compile(
    r"""'(?P<single>(?:[^'\\\n]++|\\.)*+)'|"(?P<double>(?:[^"\\\n]++|\\.)*+)"|(?P<unclosed>['"])"""
    r"""|\b(?P<name>True|False|None)\b|(?P<open>\()|(?P<close>\))"""
)
_PYTHON_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
_CHARACTERS = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"'}
_NAMES = {"True": "true", "False": "false", "None": "null"}


def _python_as_json(text: str) -> str:
    """Convert a value that Python has printed to JSON. For any other text the result is no valid JSON."""
    pieces: list[str] = []
    end = 0
    for token in _PYTHON_TOKEN.finditer(text):
        between, end = text[end : token.start()], token.end()
        match token.lastgroup:
            case "unclosed":
                return ""
            case "name":
                pieces += between, _NAMES[token["name"]]
            case "open":
                pieces += between, "["
            case "close":  # of a tuple, which may end in a comma: (1,)
                pieces += between.rstrip().removesuffix(","), "]"
            case kind:
                body = token[kind or 0]
                pieces += between, json.dumps(_PYTHON_ESCAPE.sub(_character, body) if "\\" in body else body)
    return "".join((*pieces, text[end:]))


def _character(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2] or escape[3]
    if code is None:
        return _CHARACTERS.get(escape[4], escape[0])
    return chr(min(int(code, 16), sys.maxunicode))
