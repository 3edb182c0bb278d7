"""One record of a MathBench file: what it must hold, and what is tolerated because its meaning is certain."""

import re
from typing import Any

import msgspec

from evorun.errors import DataError
from evorun.tasks.base import Problem
from evorun.tasks.multiple_choice import letters

OPTIONS = 4
"""Options of every MathBench question."""

_ANSWER = re.compile(r"\s*\(?([A-Za-z])\)?\.?\s*")


class Question(msgspec.Struct, frozen=True):
    """A problem together with its answer letter; split before a method sees the problem."""

    problem: Problem
    answer: str


def parse_record(line: bytes, where: str, stage: str, number: int) -> Question:
    """Check one JSONL line and return its question.

    line: the line's bytes. where: `FILE:LINE`, for errors. number: the line's number, counted from 1.

    Tolerated: numbers as options, options that all carry their own letter ("A. 12"), and a padded, lower-case or
    bracketed answer letter. Raises DataError for everything else.
    """
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DataError(f"{where}: expected one JSON object a line: {error}") from error
    if not isinstance(record, dict):
        raise DataError(f"{where}: expected a JSON object, got {type(record).__name__}")
    options = _options(record, where)
    question = _field(record, "question", where)
    if not isinstance(question, str) or not question.strip():
        raise DataError(f"{where}: question: expected a non-empty string, got {question!r:.60}")
    given = _field(record, "answer", where)
    match = _ANSWER.fullmatch(given) if isinstance(given, str) else None
    answer = match[1].upper() if match else ""
    if not answer or answer not in letters(OPTIONS):
        raise DataError(f"{where}: answer: expected one of {', '.join(letters(OPTIONS))}, got {given!r:.60}")
    own = record.get("id", number)
    if isinstance(own, bool) or not isinstance(own, str | int) or not str(own).strip():
        raise DataError(f"{where}: id: expected a non-empty string or an integer, got {own!r:.60}")
    # A mere number, and the line where there is no id, is unique within its stage only.
    identity = f"{stage}/{str(own).strip()}" if str(own).strip().isdecimal() else str(own).strip()
    data = {"question": question.strip(), "options": options}
    return Question(problem=Problem(id=identity, stratum=stage, data=data), answer=answer)


def _field(record: dict[str, Any], key: str, where: str) -> Any:
    if key not in record:
        raise DataError(f"{where}: expected the fields question, options and answer; '{key}' is missing")
    return record[key]


def _options(record: dict[str, Any], where: str) -> tuple[str, ...]:
    options = _field(record, "options", where)
    fits = isinstance(options, list) and len(options) == OPTIONS
    plain = fits and all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in options)
    texts = tuple(str(option).strip() for option in options) if plain else ()
    if not texts or not all(texts):
        raise DataError(f"{where}: options: expected a list of {OPTIONS} strings, got {options!r:.60}")
    # The options' own letters are cut off only where every option carries its own: "A. 12" may be a name.
    patterns = (rf"\(?{letter}[.):]+\s*(\S.*)" for letter in letters(OPTIONS))
    matches = [re.fullmatch(pattern, text, re.DOTALL) for pattern, text in zip(patterns, texts, strict=True)]
    return tuple(found[1] for found in matches if found) if all(matches) else texts
