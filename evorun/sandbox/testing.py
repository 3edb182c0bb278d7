"""Tests a program on a suite of cases."""

import asyncio

from evorun.sandbox.base import CaseResult, Program, Suite, Verdict
from evorun.sandbox.comparison import same_output
from evorun.sandbox.pool import Sandbox

LONGEST_TEXT = 2000
"""Characters that a result keeps of each text (ours)."""
# Comparing this many characters takes a few milliseconds; longer texts would block the event loop.
_QUICKLY_COMPARED = 20_000


async def test(sandbox: Sandbox, program: Program, suite: Suite, stop_at_failure: bool) -> tuple[CaseResult, ...]:
    """Run the cases in order. With `stop_at_failure`, stop after the first one that is not accepted.

    Raises SandboxError when the sandbox breaks down.
    """
    results: list[CaseResult] = []
    for case in suite.cases:
        execution = await sandbox.run(program, case.stdin, suite.limits)
        verdict: Verdict
        if execution.end == "completed":
            printed = program.entry is None
            output = execution.stdout if printed else execution.value or ""
            if suite.check == "any":
                same = True
            elif len(case.expected) + len(output) <= _QUICKLY_COMPARED:
                same = same_output(suite.check, case.expected, output, printed=printed)
            else:
                async with sandbox.large_comparison:
                    same = await asyncio.to_thread(same_output, suite.check, case.expected, output, printed=printed)
            verdict = "accepted" if same else "wrong_answer"
        else:
            verdict = execution.end
        value = execution.value
        results.append(
            CaseResult(
                verdict=verdict,
                stdout=cut(execution.stdout),
                stderr=cut(execution.stderr),
                value=value if value is None or suite.check == "any" else cut(value),
                cpu_seconds=execution.cpu_seconds,
            )
        )
        if stop_at_failure and verdict != "accepted":
            break
    return tuple(results)


test.__test__ = False  # type: ignore[attr-defined]  # for pytest: not one of its tests


def cut(text: str) -> str:
    """Return at most `LONGEST_TEXT` characters of a text: its head, the number of characters left out, and its tail."""
    if len(text) <= LONGEST_TEXT:
        return text
    kept = LONGEST_TEXT - 40
    head = kept // 2
    return f"{text[:head]}\n[{len(text) - kept} characters left out]\n{text[len(text) - (kept - head) :]}"
