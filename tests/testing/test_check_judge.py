"""A right judge passes the suite, and judges with each fault that matters fail by name."""

import os
import time
from typing import Any

import pytest

from evorun.tasks.base import Problem
from evorun.tasks.capabilities import Judgment
from evorun.testing import check_judge

PROBLEM = Problem(id="p", stratum="all", data={"question": "Name a long word."})
PAIRS = (("incomprehensible", "no"), ("seventeen", "ten"))
KEY = "JUDGE_TEST_KEY"


class Longer:
    """Prefers the longer answer."""

    async def compare(self, problem: Problem, first: str | None, second: str | None, seed: int) -> Judgment:
        left, right = len(first or ""), len(second or "")
        return Judgment(verdict="A" if left > right else "B" if right > left else "T", reason="By length.")

    async def close(self) -> None: ...


class FirstPlace(Longer):
    async def compare(self, problem: Problem, first: str | None, second: str | None, seed: int) -> Judgment:
        return Judgment(verdict="A")


class Shorter(Longer):
    async def compare(self, problem: Problem, first: str | None, second: str | None, seed: int) -> Judgment:
        return await super().compare(problem, second, first, seed)


class Counting(Longer):
    """Gives reasons that depend on how often it was asked."""

    asked = 0

    async def compare(self, problem: Problem, first: str | None, second: str | None, seed: int) -> Judgment:
        Counting.asked += 1
        judged = await super().compare(problem, first, second, seed)
        return Judgment(verdict=judged.verdict, reason=f"My judgment {Counting.asked}.")


class Fragile(Longer):
    async def compare(self, problem: Problem, first: str | None, second: str | None, seed: int) -> Judgment:
        assert first is not None
        assert second is not None
        first.encode()
        second.encode()
        return await super().compare(problem, first, second, seed)


class Mixing(Longer):
    """Keeps what it compares in itself, so that calls at once meet."""

    async def compare(self, problem: Problem, first: str | None, second: str | None, seed: int) -> Judgment:
        import asyncio

        self.pair = first, second
        await asyncio.sleep(0)
        return await super().compare(problem, *self.pair, seed)


class Sleeping(Longer):
    async def compare(self, problem: Problem, first: str | None, second: str | None, seed: int) -> Judgment:
        time.sleep(0)  # noqa: ASYNC251
        return await super().compare(problem, first, second, seed)


class Telling(Longer):
    async def compare(self, problem: Problem, first: str | None, second: str | None, seed: int) -> Judgment:
        judged = await super().compare(problem, first, second, seed)
        return Judgment(verdict=judged.verdict, reason=f"Asked with {os.environ[KEY]}.")


class Wordy(Longer):
    async def compare(self, problem: Problem, first: str | None, second: str | None, seed: int) -> Any:
        return "A"


def test_a_right_judge_passes() -> None:
    check_judge(Longer, PROBLEM, PAIRS, variables=[KEY])
    assert KEY not in os.environ


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        (FirstPlace, "found A in both orders .* it follows the place"),
        (Shorter, r"verdicts on 'incomprehensible', the better one"),
        (Counting, "judgments of a new judge on the same answers"),
        (Fragile, "expected a verdict on any answers"),
        (Mixing, "judgments of many calls at once"),
        (Sleeping, r"no call that blocks the event loop, found time\.sleep"),
        (Telling, "expected no key in it"),
        (Wordy, "expected a Judgment, found 'A'"),
    ],
)
def test_a_judge_with_a_fault_fails(judge: type[Longer], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_judge(judge, PROBLEM, PAIRS, variables=[KEY])


def test_one_pair_tells_no_verdict_from_a_habit() -> None:
    with pytest.raises(AssertionError, match="two or more"):
        check_judge(Longer, PROBLEM, PAIRS[:1])
