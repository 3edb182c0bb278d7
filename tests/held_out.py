"""Replies to problems of all tasks with the verdict of a careful human, and what a run makes of each of them.

The files have a JSON object a line: `task` (a task's name, `judge` or `fitness`), `problem` (its data), `gold` (the
right answer, or the answers that are accepted, or a program's tests), `reply`, `verdict` (`right`: a human who sees all
this says that the reply's final answer is the right one; `wrong`: that it is another, or that there is none) and `why`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from building import NoTools, load_task
from evorun.sandbox.base import Case, Limits, Suite
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.lazy import LazySandbox
from evorun.tasks.base import Grader, Problem
from evorun.tasks.livecodebench.problems import TestGrader
from evorun.tasks.livecodebench.programs import make_check
from evorun.tasks.loading import GoldGrader
from evorun.tasks.math_contest.math_contest import ContestGrader
from evorun.tasks.rubric_scores import read_scores
from evorun.tasks.rubrics import Rubric
from evorun.tasks.tsp.tsp import Tsp

CORPUS = Path(__file__).parent / "replies" / "held_out.jsonl"
_SETTINGS: dict[str, dict[str, Any]] = {
    "sudoku": {"validation_instances": 0},
    "graph_coloring": {"validation_instances": 0},
    "arithmetic": {"validation_problems": 0},
}
_CONTESTS = ("aime", "math500", "arithmetic")
_AT_ONCE = 4


class Judged(msgspec.Struct, frozen=True):
    """A reply with a human's verdict on it."""

    task: str
    problem: dict[str, Any]
    gold: Any
    reply: str
    verdict: str
    why: str = ""

    @property
    def right(self) -> bool:
        return self.verdict == "right"


class Outcome(msgspec.Struct, frozen=True):
    """A reply as a run reads and grades it."""

    reply: Judged
    accepted: bool
    read: str
    """The answer that was read, or why none was."""

    @property
    def agrees(self) -> bool:
        """True where the run and the human are of one mind."""
        return self.accepted == self.reply.right


def read_judged(path: Path = CORPUS) -> list[Judged]:
    """Return the replies of a file, in order."""
    return [msgspec.json.decode(line, type=Judged) for line in path.read_bytes().splitlines()]


def outcomes(replies: Sequence[Judged]) -> list[Outcome]:
    """Grade replies as a run does, several at once."""

    async def grade_all() -> list[Outcome]:
        free = asyncio.Semaphore(_AT_ONCE)

        async def grade(reply: Judged) -> Outcome:
            async with free:
                return await _graded(reply, tools)

        async with _sandbox() as tools:
            return await asyncio.gather(*map(grade, replies))

    return asyncio.run(grade_all())


@asynccontextmanager
async def _sandbox() -> AsyncIterator[LazySandbox]:
    tools = LazySandbox(SandboxConfig())
    try:
        yield tools
    finally:
        await tools.close()


async def _graded(reply: Judged, tools: Any) -> Outcome:
    if reply.task in _OPINIONS:
        read = _OPINIONS[reply.task](reply)
        return Outcome(reply, read == reply.gold, read)
    problem, task, grader = _problem_of(reply)
    response = task.parse(problem, reply.reply)
    grade = await grader.grade(problem, response, tools if reply.task == "livecodebench" else NoTools())
    return Outcome(reply, grade.correct is True, response.answer or response.error or "")


def _problem_of(reply: Judged) -> tuple[Problem, Any, Grader]:
    data, gold = dict(reply.problem), reply.gold
    if reply.task == "tsp":
        task = _tsp(data.pop("optimum"))
        return _problem(data), task, GoldGrader(task, {"p": [gold]})
    task = _task(reply.task)
    if reply.task == "livecodebench":
        problem = _problem({"func_name": None, "starter_code": "", **data})
        cases = tuple(Case(test["input"], test["output"]) for test in gold)
        return problem, task, TestGrader({"p": Suite(cases, make_check(problem), Limits())})
    problem = _problem(data)
    if reply.task == "search_qa":
        return problem, task, GoldGrader(task, {"p": gold})  # a list already
    if reply.task in _CONTESTS:
        return problem, task, ContestGrader(task, {"p": [gold]})
    return problem, task, GoldGrader(task, {"p": [gold]})


def _problem(data: dict[str, Any]) -> Problem:
    # Loaders make tuples of a record's lists.
    if "edges" in data:
        data["edges"] = tuple(map(tuple, data["edges"]))
    if "options" in data:
        data["options"] = tuple(data["options"])
    return Problem(id="p", stratum="", data=data)


@cache
def _task(name: str) -> Any:
    return load_task(name, limit=1, **_SETTINGS.get(name, {"source": "sample"})).task


@cache
def _tsp(optimum: float) -> Any:
    return Tsp({"p": optimum})


def _judgment(reply: Judged) -> str:
    verdict: str = _task("mathbench").parse_judgment(reply.reply).verdict
    return verdict


def _fitness(reply: Judged) -> str:
    form, maximum = reply.problem["form"], reply.problem["maximum"]
    if form == "rubric":
        try:
            return str(read_scores(reply.reply, Rubric("How good is it?", maximum)).total)
        except ValueError as error:
            return str(error)
    return str(_task("mathbench" if form == "opinion" else "sudoku").parse_fitness(reply.reply))


_OPINIONS: dict[str, Callable[[Judged], str]] = {"judge": _judgment, "fitness": _fitness}
"""Replies that grade: a judge's verdict on two responses, a score of one by a prompt of `form`."""
