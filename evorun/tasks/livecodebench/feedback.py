"""Descriptions of a program's public test results for prompts (B.2.3)."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from evorun.runs.candidates import Feedback
from evorun.sandbox.base import Case, CaseResult, Limits

SHOWN_TESTS = 3
"""Number of tests to show, as in B.2.3."""
SHOWN_CHARS = 200
"""Maximum characters of an input, an output or an error message (ours)."""

# A traceback frame in the program itself, as the sandbox names it
_FRAME = re.compile(r'^ *File "solution\.py", line (\d{1,9})\b', re.MULTILINE)


class Failure(NamedTuple):
    """A public test that a program failed."""

    trace: str
    """Input and outcome, on one line."""
    line: int | None
    """The line of the program where a runtime error occurred; None for other failures."""


def make_feedback(cases: Sequence[Case], results: Sequence[CaseResult], limits: Limits) -> Feedback:
    """Describe test results, one per line, failures first, with the share that passed."""
    # A stable sort: failed tests, and passed tests, stay in order among themselves.
    failed_first = sorted(zip(cases, results, strict=True), key=lambda pair: pair[1].verdict == "accepted")
    passed = sum(result.verdict == "accepted" for result in results)
    lines = [f"- {_trace(case, result, limits)}" for case, result in failed_first[:SHOWN_TESTS]]
    return Feedback(text="\n".join([f"{passed} of {len(results)} passed", *lines]), score=passed / len(results))


def list_failures(cases: Sequence[Case], results: Sequence[CaseResult], limits: Limits) -> list[Failure]:
    """Return the failed tests, in order."""
    failures = []
    for case, result in zip(cases, results, strict=True):
        if result.verdict != "accepted":
            # The last frame in the program itself; deeper frames are in libraries.
            frames = _FRAME.findall(result.stderr) if result.verdict == "runtime_error" else []
            failures.append(Failure(_trace(case, result, limits), int(frames[-1]) if frames else None))
    return failures


def shorten(text: str, limit: int = SHOWN_CHARS) -> str:
    """Put a text on one line, leaving out its middle if it is long."""
    line = text.strip().replace("\n", "\\n")
    if len(line) <= limit:
        return line
    half = (limit - 5) // 2
    return f"{line[:half]} ... {line[-half:]}"


def _trace(case: Case, result: CaseResult, limits: Limits) -> str:
    """Return a test's input and outcome, on one line."""
    match result.verdict:
        case "accepted":
            outcome = "passed"
        case "wrong_answer":
            actual = result.value if result.value is not None else result.stdout
            outcome = f"wrong answer: expected {shorten(case.expected)}, got {shorten(actual) or 'no output'}"
        case "runtime_error":
            # A traceback's last three lines say where and why the program failed.
            end = "\n".join(line.strip() for line in result.stderr.strip().splitlines()[-3:])
            outcome = f"runtime error: {shorten(end) or 'no message'}"
        case "time_limit":
            outcome = f"stopped after {limits.cpu_seconds:g} seconds"
        case "memory_limit":
            outcome = f"stopped at {limits.memory_mib} MiB of memory"
        case "output_limit":
            outcome = "stopped for printing too much"
    return f"{shorten(case.stdin)} -> {outcome}"
