"""A program against a suite of tests."""

import asyncio

from evorun.sandbox.base import CaseResult, Check, Program, Suite, Verdict
from evorun.sandbox.comparison import same_output
from evorun.sandbox.pool import Sandbox

LONGEST_TEXT = 2000
"""Characters of each text that a result keeps (ours)."""
_QUICKLY_COMPARED = 20_000


async def test(sandbox: Sandbox, program: Program, suite: Suite, stop_at_failure: bool) -> tuple[CaseResult, ...]:
    """Run the cases in order; with `stop_at_failure`, the first one that is not accepted is the last result.

    Raises SandboxError when the sandbox breaks down.
    """
    results: list[CaseResult] = []
    for case in suite.cases:
        execution = await sandbox.run(program, case.stdin, suite.limits)
        verdict: Verdict
        if execution.end == "completed":
            printed = program.entry is None
            output = execution.stdout if printed else execution.value or ""
            verdict = "accepted" if await _same(suite.check, case.expected, output, printed) else "wrong_answer"
        else:
            verdict = execution.end
        results.append(
            CaseResult(
                verdict=verdict,
                stdout=cut(execution.stdout),
                stderr=cut(execution.stderr),
                value=None if execution.value is None else cut(execution.value),
                cpu_seconds=execution.cpu_seconds,
            )
        )
        if stop_at_failure and verdict != "accepted":
            break
    return tuple(results)


test.__test__ = False  # type: ignore[attr-defined]  # pytest: this is not one of its tests


def cut(text: str) -> str:
    """Return a text of `LONGEST_TEXT` characters at most: its head and its tail, saying what was left out."""
    if len(text) <= LONGEST_TEXT:
        return text
    kept = LONGEST_TEXT - 40
    head = kept // 2
    return f"{text[:head]}\n[{len(text) - kept} characters left out]\n{text[len(text) - (kept - head) :]}"


async def _same(check: Check, expected: str, output: str, printed: bool) -> bool:
    if len(expected) + len(output) <= _QUICKLY_COMPARED:
        return same_output(check, expected, output, printed=printed)
    return await asyncio.to_thread(same_output, check, expected, output, printed=printed)
