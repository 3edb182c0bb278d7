"""The outcome of a program's public tests, in the words that prompts show (B.2.3)."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from evorun.runs.candidates import Feedback
from evorun.sandbox.base import Case, CaseResult, Limits

SHOWN_TESTS = 3
"""B.2.3 shows three."""
SHOWN_CHARS = 200
"""Longest piece of an input, an output or an error message (ours)."""

# A frame of the program's own in a traceback, as the sandbox names it
_FRAME = re.compile(r'^ *File "solution\.py", line (\d{1,9})\b', re.MULTILINE)


class Failure(NamedTuple):
    """A public test that a program failed."""

    trace: str
    """Input and outcome, on one line."""
    line: int | None
    """The program's line that a runtime error ended in; None for anything else."""


def make_feedback(cases: Sequence[Case], results: Sequence[CaseResult], limits: Limits) -> Feedback:
    """Describe the results of these cases, failed ones first: a line each, and the share that passed."""
    # A stable sort: within the failed ones, and within the passed ones, the tests stay in order.
    told = sorted(zip(cases, results, strict=True), key=lambda pair: pair[1].verdict == "accepted")
    passed = sum(result.verdict == "accepted" for result in results)
    lines = [f"- {_trace(case, result, limits)}" for case, result in told[:SHOWN_TESTS]]
    return Feedback(text="\n".join([f"{passed} of {len(results)} passed", *lines]), score=passed / len(results))


def list_failures(cases: Sequence[Case], results: Sequence[CaseResult], limits: Limits) -> list[Failure]:
    """Return the tests that were not passed, in order."""
    failures = []
    for case, result in zip(cases, results, strict=True):
        if result.verdict != "accepted":
            # The last frame of the program's own; deeper ones are the library's.
            frames = _FRAME.findall(result.stderr) if result.verdict == "runtime_error" else []
            failures.append(Failure(_trace(case, result, limits), int(frames[-1]) if frames else None))
    return failures


def shown(text: str, limit: int = SHOWN_CHARS) -> str:
    """Return a text on one line, its middle left out where it is long."""
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
            came = result.value if result.value is not None else result.stdout
            outcome = f"wrong answer: expected {shown(case.expected)}, got {shown(came) or 'no output'}"
        case "runtime_error":
            # A traceback's last three lines: where the program failed, and why.
            end = "\n".join(line.strip() for line in result.stderr.strip().splitlines()[-3:])
            outcome = f"runtime error: {shown(end) or 'no message'}"
        case "time_limit":
            outcome = f"stopped after {limits.cpu_seconds:g} seconds"
        case "memory_limit":
            outcome = f"stopped at {limits.memory_mib} MiB of memory"
        case "output_limit":
            outcome = "stopped for printing too much"
    return f"{shown(case.stdin)} -> {outcome}"
