"""Conformance of judges by code: verdicts that depend on the answers, in any order, with any texts, many at once."""

import asyncio
from collections.abc import Callable, Sequence
from typing import get_args

from evorun.runs.candidates import Verdict
from evorun.tasks.base import Problem
from evorun.tasks.capabilities import Judgment
from evorun.tasks.judges import Judge
from evorun.testing.expectations import expect, expect_equal
from evorun.testing.faults import planted_keys, refuse_leak, refusing_blocked_loops

Pair = tuple[str, str]
"""A better answer and a worse one."""

ODD_ANSWERS = (
    None,
    "",
    " \r\n\t",
    "\x00",
    "\ud800 lone",
    "```",
    "{",
    '{"solution": "A"}',
    "A" * 20_000,
    "<b>{{ 7 * 7 }}",
)
"""Answers that have broken parsers, templates or encoders; None: no readable answer."""
SEEDS = (0, 1, 2**31 - 1)


def check_judge(
    make: Callable[[], Judge], problem: Problem, pairs: Sequence[Pair], *, variables: Sequence[str] = ()
) -> None:
    """Check a judge by code. Raises AssertionError for the first rule that it breaks.

    make: returns a new judge with the same settings. pairs: answers to the problem, the better one first, that it must
    tell apart in both orders; at least two. variables: the environment variables that hold its keys.
    """
    expect(len(pairs) >= 2, f"pairs: expected two or more to tell a verdict from a habit, got {len(pairs)}")
    with planted_keys(variables), refusing_blocked_loops():
        asyncio.run(_check(make, problem, pairs))


async def _check(make: Callable[[], Judge], problem: Problem, pairs: Sequence[Pair]) -> None:
    judge = make()
    refuse_leak("repr of the judge", repr(judge))
    try:
        await _check_orders(judge, problem, pairs)
        await _check_repetition(judge, make, problem, pairs)
        await _check_odd_answers(judge, problem, pairs[0][0])
    finally:
        await judge.close()
        await judge.close()  # closing is idempotent


async def _ask(judge: Judge, problem: Problem, first: str | None, second: str | None, seed: int = 0) -> Judgment:
    shown = f"{_shorten(first)} and {_shorten(second)}"
    try:
        judgment = await judge.compare(problem, first, second, seed)
    except Exception as error:
        refuse_leak(f"the error on {shown}", str(error))
        raise AssertionError(f"expected a verdict on any answers, got {error!r} for {shown}") from error
    expect(isinstance(judgment, Judgment), f"expected a Judgment, found {judgment!r:.60} for {shown}")
    expect(judgment.verdict in get_args(Verdict), f"verdict: expected A, B, T or invalid, found {judgment.verdict!r}")
    expect(isinstance(judgment.reason, str), f"reason: expected a text, found {judgment.reason!r:.60}")
    refuse_leak(f"the reason on {shown}", judgment.reason)
    return judgment


async def _check_orders(judge: Judge, problem: Problem, pairs: Sequence[Pair]) -> None:
    for better, worse in pairs:
        shown = [
            (await _ask(judge, problem, first, second)).verdict for first, second in ((better, worse), (worse, better))
        ]
        if shown[0] == shown[1] and shown[0] in ("A", "B"):
            raise AssertionError(
                f"expected a verdict on the answers, found {shown[0]} in both orders of {_shorten(better)} and "
                f"{_shorten(worse)}: it follows the place"
            )
        expect_equal(shown, ["A", "B"], f"verdicts on {_shorten(better)}, the better one, first as A and then as B")


async def _check_repetition(judge: Judge, make: Callable[[], Judge], problem: Problem, pairs: Sequence[Pair]) -> None:
    calls = [(first, second, seed) for pair in pairs for first, second in (pair, pair[::-1]) for seed in SEEDS]
    alone = [await _ask(judge, problem, *call) for call in calls]
    another = make()
    try:
        again = [await _ask(another, problem, *call) for call in reversed(calls)][::-1]
        expect_equal(again, alone, "judgments of a new judge on the same answers with the same seeds, in another order")
    finally:
        await another.close()
    together = await asyncio.gather(*(_ask(judge, problem, *call) for call in calls))
    expect_equal(list(together), alone, "judgments of many calls at once, each for its own answers")


async def _check_odd_answers(judge: Judge, problem: Problem, usual: str) -> None:
    for odd in ODD_ANSWERS:
        for first, second in ((odd, usual), (usual, odd), (odd, odd)):
            await _ask(judge, problem, first, second)


def _shorten(answer: str | None) -> str:
    return repr(answer) if answer is None or len(answer) <= 30 else f"{answer[:30]!r}..."
