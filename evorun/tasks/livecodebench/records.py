"""Records of LiveCodeBench files, in the release's layout or in evorun's own plainer one."""

import base64
import binascii
import pickletools
import re
import zlib
from collections.abc import Sequence
from datetime import date
from itertools import islice
from typing import Any, Literal, Protocol

import msgspec

from evorun.errors import DataError
from evorun.sandbox.base import Case
from evorun.tasks.base import Problem

STRATA = ("easy", "medium", "hard")
MAX_BYTES = 2**30
"""Maximum unpacked size of a problem's tests; the release's largest are a few hundred megabytes."""

Kind = Literal["stdin", "functional"]
"""`stdin`: the program reads input and prints. `functional`: the benchmark calls a method that starter code names."""


class PublicRecord(msgspec.Struct, frozen=True):
    """A record without its hidden tests."""

    problem: Problem
    contest_date: date


class Answers(msgspec.Struct, frozen=True):
    """The part of a record that methods must not see."""

    hidden: tuple[Case, ...]
    solution: str = ""
    """A program that passes; empty where the record has none."""


class Test(msgspec.Struct, frozen=True):
    """A test in both layouts."""

    input: str
    output: str

    def case(self) -> Case:
        """Return the test for the sandbox."""
        return Case(self.input, self.output)


class Layout(Protocol):
    """The reader of a file's lines. Both methods raise DataError naming `where` (FILE:LINE)."""

    def read_public(self, line: bytes, where: str) -> PublicRecord:
        """Read everything but the hidden tests, which may be many megabytes."""
        ...

    def answers(self, line: bytes, where: str) -> Answers:
        """Read the hidden tests, and a solution where there is one."""
        ...


def detect_layout(line: bytes, where: str) -> Layout:
    """Detect a file's layout from its first record. Raises DataError when it is neither."""
    try:
        keys = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DataError(f"{where}: expected one JSON object per line: {error}") from error
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
    """The benchmark's layout: `public_test_cases` and `metadata` are JSON in strings, private tests are encoded."""

    def read_public(self, line: bytes, where: str) -> PublicRecord:
        """Read everything but the private tests."""
        record = _decode(line, _ReleaseRecord, where)
        tests = _decode_embedded(record.public_test_cases, list[Test], "public_test_cases", where)
        # A method's name makes a problem functional; the release has no field for that.
        func_name = _decode_embedded(record.metadata, dict[str, Any], "metadata", where).get("func_name")
        plain = _PlainRecord(
            id=str(record.question_id),
            title=record.question_title,
            statement=record.question_content,
            platform=record.platform,
            difficulty=record.difficulty,
            contest_date=record.contest_date,
            kind="functional" if func_name else "stdin",
            public_tests=tests,
            hidden_tests=record.private_test_cases,
            func_name=func_name,
            starter_code=record.starter_code,
        )
        return _make_public_record(plain, where)

    def answers(self, line: bytes, where: str) -> Answers:
        """Decode the private tests; the release has no solutions."""
        text = decode_private_tests(_decode(line, _ReleaseTests, where).private_test_cases, where)
        tests = _decode_embedded(text, list[Test], "private_test_cases", where)
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
    """evorun's layout: everything in plain JSON; `solutions` may hold programs with a verdict."""

    def read_public(self, line: bytes, where: str) -> PublicRecord:
        """Read everything but the hidden tests and the solutions."""
        record = _decode(line, _PlainRecord, where)
        if (record.kind == "functional") != bool(record.func_name):
            raise DataError(
                f"{where}: func_name: expected one exactly where kind is functional, got {record.func_name!r}"
            )
        return _make_public_record(record, where)

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


def _decode_embedded(text: str, kind: Any, key: str, where: str) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise DataError(f"{where}: {key}: expected JSON in a string: {error}") from error


def _make_public_record(record: _PlainRecord, where: str) -> PublicRecord:
    func_name: object = record.func_name
    for key, value in (("id", record.id), ("statement", record.statement)):
        if not value.strip():
            raise DataError(f"{where}: {key}: expected a non-empty string")
    if func_name is not None and not (isinstance(func_name, str) and func_name.isidentifier()):
        raise DataError(f"{where}: func_name: expected the name of a method, got {func_name!r:.60}")
    data = {
        "title": record.title,
        "question": re.sub(r"\r\n?", "\n", record.statement).strip(),
        "starter_code": record.starter_code.strip(),
        "func_name": func_name,
        "platform": record.platform.lower(),
        "public_tests": tuple({"input": test.input, "output": test.output} for test in record.public_tests),
        "kind": record.kind,
    }
    stratum = record.difficulty.lower()
    if stratum not in STRATA:
        raise DataError(f"{where}: difficulty: expected one of {', '.join(STRATA)}, got '{stratum:.60}'")
    try:
        day = date.fromisoformat(record.contest_date[:10])
    except ValueError as error:
        raise DataError(
            f"{where}: contest_date: expected a date such as 2024-06-30, got '{record.contest_date:.60}'"
        ) from error
    return PublicRecord(Problem(id=record.id.strip(), stratum=stratum, data=data), day)


def _cases(tests: Sequence[Test], key: str, where: str) -> tuple[Case, ...]:
    if not tests:
        raise DataError(f"{where}: {key}: expected at least one test, got none; add the problem to task.exclude")
    return tuple(test.case() for test in tests)


# --- the release's encoding of hidden tests: JSON, or base64 of zlib of a pickle of the JSON text ---


def decode_private_tests(encoded: str, where: str) -> str:
    """Return the JSON text of a record's private tests. Raises DataError naming `where` (FILE:LINE)."""
    if encoded.lstrip().startswith("["):
        return encoded
    try:
        packed = base64.b64decode(encoded, validate=True)
        stream = zlib.decompressobj()
        unpacked = stream.decompress(packed, MAX_BYTES)
        if stream.unconsumed_tail or not stream.eof:
            raise ValueError(f"the compressed tests are cut off or unpack to more than {MAX_BYTES >> 20} MiB")
        return _pickled_string(unpacked)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise _make_error(where, str(error)) from error


_STRINGS = ("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8")
_AROUND_A_STRING = ("PROTO", "FRAME", "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE")
_MAX_OPCODES = 8
"""Maximum opcodes: protocol, up to three frames, the string, its memo entry, and the end."""


def _pickled_string(data: bytes) -> str:
    """Return the string that a pickle consists of. Raises ValueError for anything else.

    The pickle is parsed, not executed: it can name any callable, or a memo index that takes gigabytes.
    """
    text: str | None = None
    for opcode, argument, _ in islice(pickletools.genops(data), _MAX_OPCODES):
        if opcode.name in _STRINGS and text is None:
            text = argument
        elif opcode.name == "STOP" and text is not None:
            return text
        elif opcode.name not in _AROUND_A_STRING:
            raise ValueError(f"the pickle holds more than a string: {opcode.name}")
    raise ValueError("the pickle holds more than a string")


def _make_error(where: str, reason: str) -> DataError:
    plain = reason.splitlines()[0][:120] if reason else "unreadable"
    return DataError(f"{where}: private_test_cases: expected JSON, or base64 of zlib of a pickled JSON string: {plain}")
