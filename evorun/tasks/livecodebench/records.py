"""One record of a LiveCodeBench file, in the release's layout or in evorun's own plainer one."""

import re
from collections.abc import Sequence
from datetime import date
from typing import Any, Literal, Protocol

import msgspec

from evorun.errors import DataError
from evorun.sandbox.base import Case
from evorun.tasks.base import Problem
from evorun.tasks.livecodebench.private_tests import decode_private_tests

STRATA = ("easy", "medium", "hard")

Kind = Literal["stdin", "functional"]
"""`stdin`: the program reads input and prints. `functional`: the benchmark calls a method that starter code names."""


class Heading(msgspec.Struct, frozen=True):
    """What a record says apart from its hidden tests."""

    problem: Problem
    contest_date: date


class Answers(msgspec.Struct, frozen=True):
    """What a record keeps from methods."""

    hidden: tuple[Case, ...]
    solution: str = ""
    """A program that passes; empty where the record has none."""


class Test(msgspec.Struct, frozen=True):
    """One test as both layouts have it."""

    input: str
    output: str

    def case(self) -> Case:
        """Return the test as the sandbox takes it."""
        return Case(self.input, self.output)


class Layout(Protocol):
    """How a file's lines are read. Both methods raise DataError naming `where` (FILE:LINE)."""

    def heading(self, line: bytes, where: str) -> Heading:
        """Read everything but the hidden tests, which may be many megabytes."""
        ...

    def answers(self, line: bytes, where: str) -> Answers:
        """Read the hidden tests, and a solution where there is one."""
        ...


def layout_of(line: bytes, where: str) -> Layout:
    """Tell a file's layout by its first record. Raises DataError when it is neither."""
    try:
        keys = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DataError(f"{where}: expected one JSON object a line: {error}") from error
    if "question_content" in keys:
        return ReleaseLayout()
    if "statement" in keys:
        return PlainLayout()
    raise DataError(
        f"{where}: expected a record of LiveCodeBench (with question_content) or of evorun's own layout (with "
        f"statement), got the fields {', '.join(sorted(keys)) or 'none'}"[:300]
    )


class _ReleaseRecord(msgspec.Struct):
    question_id: str | int
    question_title: str
    question_content: str
    platform: str
    contest_date: str
    starter_code: str
    difficulty: str
    public_test_cases: str
    private_test_cases: msgspec.Raw
    metadata: str


class _ReleaseTests(msgspec.Struct):
    private_test_cases: str


class ReleaseLayout:
    """The benchmark's own: `public_test_cases` and `metadata` are JSON in a string, private tests are encoded."""

    def heading(self, line: bytes, where: str) -> Heading:
        """Read everything but the private tests."""
        record = _decode(line, _ReleaseRecord, where)
        tests = _embedded(record.public_test_cases, list[Test], "public_test_cases", where)
        func_name = _embedded(record.metadata, dict[str, Any], "metadata", where).get("func_name")
        return _heading(
            where,
            identity=str(record.question_id),
            title=record.question_title,
            statement=record.question_content,
            starter_code=record.starter_code,
            func_name=func_name,
            platform=record.platform,
            difficulty=record.difficulty,
            contest_date=record.contest_date,
            public=tests,
        )

    def answers(self, line: bytes, where: str) -> Answers:
        """Decode the private tests; the release has no solutions."""
        text = decode_private_tests(_decode(line, _ReleaseTests, where).private_test_cases, where)
        tests = _embedded(text, list[Test], "private_test_cases", where)
        return Answers(hidden=_cases(tests, "private_test_cases", where))


class _Solution(msgspec.Struct):
    code: str
    verdict: str


class _PlainRecord(msgspec.Struct):
    id: str
    title: str
    statement: str
    platform: str
    difficulty: str
    contest_date: str
    kind: Kind
    public_tests: list[Test]
    hidden_tests: msgspec.Raw
    func_name: str | None = None
    starter_code: str = ""


class _PlainTests(msgspec.Struct):
    hidden_tests: list[Test]
    solutions: list[_Solution] = []


class PlainLayout:
    """evorun's own: everything in plain JSON; `solutions` may hold programs with a verdict."""

    def heading(self, line: bytes, where: str) -> Heading:
        """Read everything but the hidden tests and the solutions."""
        record = _decode(line, _PlainRecord, where)
        if (record.kind == "functional") != bool(record.func_name):
            raise DataError(
                f"{where}: func_name: expected one exactly where kind is functional, got {record.func_name!r}"
            )
        return _heading(
            where,
            identity=record.id,
            title=record.title,
            statement=record.statement,
            starter_code=record.starter_code,
            func_name=record.func_name,
            platform=record.platform,
            difficulty=record.difficulty,
            contest_date=record.contest_date,
            public=record.public_tests,
        )

    def answers(self, line: bytes, where: str) -> Answers:
        """Read the hidden tests and the first solution that is known to be correct."""
        record = _decode(line, _PlainTests, where)
        correct = (solution.code for solution in record.solutions if solution.verdict == "correct")
        return Answers(hidden=_cases(record.hidden_tests, "hidden_tests", where), solution=next(correct, ""))


def _decode(line: bytes, kind: type[Any], where: str) -> Any:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DataError(f"{where}: {error}") from error


def _embedded(text: str, kind: Any, key: str, where: str) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DataError(f"{where}: {key}: expected JSON in a string: {error}") from error


def _heading(
    where: str,
    *,
    identity: str,
    title: str,
    statement: str,
    starter_code: str,
    func_name: object,
    platform: str,
    difficulty: str,
    contest_date: str,
    public: Sequence[Test],
) -> Heading:
    for key, value in (("id", identity), ("statement", statement)):
        if not value.strip():
            raise DataError(f"{where}: {key}: expected a non-empty string")
    if func_name is not None and not (isinstance(func_name, str) and func_name.isidentifier()):
        raise DataError(f"{where}: func_name: expected the name of a method, got {func_name!r:.60}")
    kind: Kind = "functional" if func_name else "stdin"
    data = {
        "title": title,
        "question": re.sub(r"\r\n?", "\n", statement).strip(),
        "starter_code": starter_code.strip(),
        "func_name": func_name,
        "platform": platform.lower(),
        "public_tests": tuple({"input": test.input, "output": test.output} for test in public),
        "kind": kind,
    }
    stratum = _one_of("difficulty", difficulty.lower(), STRATA, where)
    return Heading(Problem(id=identity.strip(), stratum=stratum, data=data), _date(contest_date, where))


def _one_of(key: str, value: str, choices: Sequence[str], where: str) -> str:
    if value not in choices:
        raise DataError(f"{where}: {key}: expected one of {', '.join(choices)}, got '{value:.60}'")
    return value


def _date(text: str, where: str) -> date:
    try:
        return date.fromisoformat(text[:10])
    except ValueError as error:
        raise DataError(f"{where}: contest_date: expected a date such as 2024-06-30, got '{text:.60}'") from error


def _cases(tests: Sequence[Test], key: str, where: str) -> tuple[Case, ...]:
    if not tests:
        raise DataError(f"{where}: {key}: expected at least one test, got none; add the problem to task.exclude")
    return tuple(test.case() for test in tests)
