"""Questions of the benchmarks' files: what a record must hold, and how files are found."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from evorun.errors import DataError
from evorun.tasks.base import Problem
from evorun.tasks.benchmark_files import records

ANSWERS = ("answers", "golden_answers", "answer")
"""Fields that may hold the accepted answers, a list or a single one; the first that is there counts."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question together with its accepted answers; split before a method sees the problem."""

    problem: Problem
    answers: tuple[str, ...]
    gold_passages: tuple[str, ...] = ()
    """Ids of the passages that hold the answer, where the file names them."""


def read_questions(paths: Mapping[str, list[Path]]) -> list[Question]:
    """Read the questions of each stratum's files; one that is repeated is kept where it comes first.

    Raises DataError naming file and line for a malformed record, or an id used twice.
    """
    found: dict[str, Question] = {}
    seen: dict[str, str] = {}
    for stratum, files in paths.items():
        located = ((where, record) for path in files for where, record in records(path))
        for number, (where, record) in enumerate(located, 1):
            question = _question(record, where, stratum, number)
            if (earlier := seen.setdefault(question.problem.id, where)) != where:
                raise DataError(f"{where}: id '{question.problem.id}' is already used in {earlier}")
            found.setdefault(question.problem.data["question"], question)
    return list(found.values())


def _question(record: object, where: str, stratum: str, number: int) -> Question:
    if not isinstance(record, Mapping):
        raise DataError(f"{where}: expected a JSON object, got {type(record).__name__}")
    text, name = record.get("question"), record.get("id", number)
    if not isinstance(text, str) or not text.strip():
        raise DataError(f"{where}: question: expected a non-empty string, got {text!r:.60}")
    if isinstance(name, bool) or not isinstance(name, str | int) or "|" in str(name):
        raise DataError(f"{where}: id: expected a string without '|' or an integer, got {name!r:.60}")
    # Ids are unique in a file only, and those of some collections are bare numbers.
    identity = f"{stratum}/{str(name).strip() or number}"
    return Question(
        problem=Problem(id=identity, stratum=stratum, data={"question": text.strip()}),
        answers=_answers(record, where),
        gold_passages=tuple(map(str, record.get("gold_passages") or ())),
    )


def _answers(record: Mapping[str, Any], where: str) -> tuple[str, ...]:
    given = next((record[field] for field in ANSWERS if field in record), None)
    answers = [given] if isinstance(given, str) else given
    if not isinstance(answers, list) or not answers or not all(isinstance(one, str) and one.strip() for one in answers):
        raise DataError(f"{where}: expected accepted answers under {' or '.join(ANSWERS)}, got {given!r:.60}")
    return tuple(dict.fromkeys(" ".join(one.split()) for one in answers))
