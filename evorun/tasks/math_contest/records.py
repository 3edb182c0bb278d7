"""One record of a contest file: what it must hold, and what is read from it where fields have other names."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import msgspec

from evorun.errors import DataError
from evorun.tasks.base import Problem
from evorun.tasks.boxes import last_boxed
from evorun.tasks.math_contest.reading import read_integer

TEXTS = ("problem", "question", "prompt")
"""Fields that may hold the problem's text; the first one that is there counts (`prompt`: DAPO's processed set)."""
IDS = ("id", "unique_id")
"""Fields that may hold the record's own id (`unique_id`: MATH-500)."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A problem together with its accepted answers; split before a method sees the problem."""

    problem: Problem
    answers: tuple[str, ...]
    """The first is the one to name; integers as `str` writes them where the task's answers are integers."""
    contest: str | None = None
    year: int | None = None
    solution: str = ""
    """The worked solution, where the record has one that ends in a box."""


def digest_of(questions: Sequence[Question]) -> str:
    """Return the SHA-256 over problems and their answers, in order."""
    # Solutions are no part of it: with and without them, a run works on the same problems.
    told = [{key: getattr(one, key) for key in ("problem", "answers", "contest", "year")} for one in questions]
    return sha256(msgspec.json.encode(told)).hexdigest()


@dataclass(frozen=True)
class Expected:
    """Requirements on a task's records."""

    integers: bool
    """True where answers are integers."""
    largest: int | None
    """The largest one, the smallest being 0; None: any."""
    stratum: str
    """Of records that name neither a level nor a contest."""
    details: Callable[[Mapping[str, Any], str], tuple[str, dict[str, Any]]] | None = None
    """Reads a record's stratum and further data of its problem; None: level or contest, and the text alone."""


def parse_record(record: object, where: str, fallback_id: str, expected: Expected) -> Question:
    """Check one record and return its question.

    record: its decoded value. where: `FILE:LINE`, for errors. fallback_id: its id when it has none of its own that is
    more than a number. Raises DataError for what cannot be used.
    """
    if not isinstance(record, Mapping):
        raise DataError(f"{where}: expected a JSON object, got {type(record).__name__}")
    field = next((name for name in TEXTS if name in record), None)
    if field is None:
        raise DataError(f"{where}: expected the fields problem and answer; 'problem' is missing")
    text = record[field]
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"{where}: {field}: expected a non-empty string, got {text!r:.60}")
    own = next((record[name] for name in IDS if record.get(name) is not None), fallback_id)
    if isinstance(own, bool) or not isinstance(own, str | int) or not str(own).strip():
        raise DataError(f"{where}: id: expected a non-empty string or an integer, got {own!r:.60}")
    # A mere number is an id within its file only, while a split may have several files.
    identity = fallback_id if str(own).strip().isdecimal() else str(own).strip()
    solution = record.get("solution")
    stratum, data = expected.details(record, where) if expected.details else (_stratum(record, expected), {})
    return Question(
        problem=Problem(id=identity, stratum=stratum, data={"problem": text.strip(), **data}),
        answers=_answers(record, where, expected),
        contest=_optional(record, "contest", str, where),
        year=_optional(record, "year", int, where),
        solution=solution if isinstance(solution, str) and last_boxed(solution) else "",
    )


def _answers(record: Mapping[str, Any], where: str, expected: Expected) -> tuple[str, ...]:
    """Return the accepted answers, the main one first.

    Where there is no `answer`, it is the box that ends the solution, or a solution that is only an integer.
    """
    main, solution = record.get("answer"), record.get("solution")
    if "answer" not in record:
        main = last_boxed(solution) if isinstance(solution, str) else None
        if not main and isinstance(solution, str) and read_integer(solution) is not None:
            main = solution
        if not main:
            raise DataError(
                f"{where}: expected the field answer, or a solution that ends in \\boxed{{ANSWER}}; found neither"
            )
    others = record.get("accepted_answers")
    if others is None:
        others = []
    if not isinstance(others, list):
        raise DataError(f"{where}: accepted_answers: expected a list of answers, got {others!r:.60}")
    return tuple(dict.fromkeys(_checked(answer, where, expected) for answer in (main, *others)))


def _checked(answer: object, where: str, expected: Expected) -> str:
    if isinstance(answer, bool) or not isinstance(answer, str | int) or not str(answer).strip():
        raise DataError(f"{where}: answer: expected a non-empty string or an integer, got {answer!r:.60}")
    # Expressions stay as they are written: the verifier compares their values.
    if not expected.integers:
        return str(answer).strip()
    value = read_integer(str(answer))
    if value is None or not (expected.largest is None or 0 <= value <= expected.largest):
        bounds = "" if expected.largest is None else f" from 0 to {expected.largest}"
        raise DataError(f"{where}: answer: expected an integer{bounds}, got {answer!r:.60}")
    return str(value)


def read_level(record: Mapping[str, Any]) -> int | None:
    """Return a record's level: MATH gives 1 to 5, or "Level 5"."""
    level = re.fullmatch(r"(?:level\s*)?(\d)", str(record.get("level", "")).lower())
    return int(level[1]) if level else None


def _stratum(record: Mapping[str, Any], expected: Expected) -> str:
    """Return the level, else the contest with its year, else what the task says."""
    level = read_level(record)
    if level is not None:
        return f"level {level}"
    contest, year = record.get("contest"), record.get("year")
    if not contest:
        return expected.stratum
    return f"{contest} {year}" if year is not None and str(year) not in str(contest) else str(contest)


def _optional(record: Mapping[str, Any], field: str, kind: type, where: str) -> Any:
    value = record.get(field)
    if kind is int and isinstance(value, str) and value.isdecimal():
        value = int(value)
    if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
        expected = "an integer" if kind is int else "a string"
        raise DataError(f"{where}: {field}: expected {expected}, got {value!r:.60}")
    return value
