"""The driver with a scripted method: problems in flight, and how it says that a problem has ended."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from evorun.driver import Driver
from evorun.errors import EngineError
from evorun.methods.base import Candidate, Context, PerProblem, Rated, Step
from evorun.models import Completion, Reply
from evorun.runs.budget import Meter
from evorun.runs.directory import RunDirectory
from evorun.runs.effects import Traffic
from evorun.runs.progress import Tally, make_progress
from evorun.tasks.base import Grade, Problem, Response, Task

BEST = Rated(
    candidate=Candidate(
        id="0.0", generation=0, parents=(), operator="init", response=Response(text="right", answer="right")
    ),
    mean=0.0,
    sd=1.0,
    survivor=True,
)


class AnyTask(Task):
    name = "any"

    def parse(self, problem: Problem, text: str) -> Response:
        return Response(text=text, answer=text)


class RightIsRight:
    async def grade(self, problem: Problem, response: Response) -> Grade:
        return Grade(correct=response.answer == "right")


class Scripted(PerProblem):
    """A method whose only step is a function of the context."""

    name = "scripted"
    description = ""
    regime = "problem_only"
    needs = ()
    Config = object

    async def step(self, ctx: Context) -> Step | None:
        raise NotImplementedError

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        step = await self.step(ctx)
        if step is not None:
            yield step


def drive(method: Scripted, folder: Path, problems: int, concurrency: int = 8) -> list[dict[str, Any]]:
    """Run the method and return its predictions."""
    directory = RunDirectory(folder)
    tally = Tally("test", problems, None, Traffic())
    driver = Driver(
        method=method,
        task=AnyTask(),
        grader=RightIsRight(),
        models={},
        directory=directory,
        seed=0,
        concurrency=concurrency,
        progress=make_progress(tally, Console(), "off"),
    )
    ids = [f"p{i}" for i in range(problems)]

    async def run() -> None:
        async with asyncio.timeout(30):
            await driver.run(
                [Problem(id=name, stratum="s", data={}) for name in ids], [Meter(max_calls=1) for _ in ids]
            )

    try:
        asyncio.run(run())
        directory.finish_records(ids)
    finally:
        directory.close()
    return [json.loads(line) for line in (folder / "predictions.jsonl").open()]


class Together(Scripted):
    """Ends a problem only when so many others are in flight beside it; notes the most that ever were."""

    def __init__(self, parties: int) -> None:
        self.barrier = asyncio.Barrier(parties)
        self.in_flight = self.most = 0

    async def step(self, ctx: Context) -> Step:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await self.barrier.wait()
        await asyncio.sleep(0)
        self.in_flight -= 1
        return Step(step=0, best=BEST, candidates=[BEST])


@pytest.mark.parametrize(("concurrency", "problems"), [(1, 3), (3, 9), (256, 512)])
def test_as_many_problems_are_in_flight_as_asked_for_and_no_more(
    tmp_path: Path, concurrency: int, problems: int
) -> None:
    method = Together(concurrency)
    assert len(drive(method, tmp_path, problems, concurrency)) == problems
    assert method.most == concurrency


class Ends(Scripted):
    """Spends and answers as its script says for each problem, in turn."""

    def __init__(self, script: list[tuple[int, Step | None]]) -> None:
        self.script = {f"p{i}": entry for i, entry in enumerate(script)}

    async def step(self, ctx: Context) -> Step | None:
        calls, step = self.script[ctx.problem.id]
        ctx._meter.admit(calls)  # each problem may make one call
        text = Completion(text="", finish_reason="stop", tokens=1)
        ctx._meter.charge("generate", Reply(completions=(text,), prompt_tokens=1, seconds=0.5))
        return step


def test_how_problems_end(tmp_path: Path) -> None:
    answered = Step(step=0, best=BEST, candidates=[BEST])
    nothing = Step(step=0, best=None, candidates=[])
    predictions = drive(
        Ends([(1, answered), (2, answered), (1, nothing), (2, nothing), (1, None), (2, None)]), tmp_path, 6
    )
    assert [p["stop"] for p in predictions] == ["generations", "budget", "failed", "budget", "failed", "budget"]
    assert [p["correct"] for p in predictions] == [True, True, False, False, False, False]
    assert [p["answer"] for p in predictions] == ["right", "right", None, None, None, None]
    assert [p["steps"] for p in predictions] == [1, 1, 1, 1, 0, 0]
    assert all(p["cost"] == {"generate": {"calls": 1, "prompt_tokens": 1, "completion_tokens": 1}} for p in predictions)


class FailsAtOne(Scripted):
    async def step(self, ctx: Context) -> Step:
        if ctx.problem.id == "p3":
            raise EngineError("the server is gone")
        await asyncio.Event().wait()  # for ever, unless cancelled
        raise AssertionError


def test_the_first_error_stops_the_other_problems(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"^the server is gone"):
        drive(FailsAtOne(), tmp_path, 8)
