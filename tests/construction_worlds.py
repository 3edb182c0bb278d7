"""Runs on 10 circles whose simulated programs run in this process, without the sandbox: equal scores in less time."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from building import composed
from evorun.runner.settings import check
from evorun.runs.candidates import Response
from evorun.tasks.base import Problem, Tools
from evorun.tasks.constructions.construction import Construction, Evaluation
from evorun.testing.runs import Run, carry_out


@contextmanager
def programs_in_this_process() -> Iterator[None]:
    """Evaluate the programs of the simulated model and the seed, which are known, without the sandbox."""

    async def evaluate(self: Construction, problem: Problem, response: Response, tools: Tools) -> Evaluation:
        namespace: dict[str, Any] = {}
        exec(response.answer or "def build(*_): ...", namespace)
        built = json.loads(json.dumps(namespace["build"](*self.arguments(problem))))
        try:
            return Evaluation(self.measure(problem, built))
        except ValueError as error:
            return Evaluation(None, str(error))

    with mock.patch.object(Construction, "evaluate", evaluate):
        yield


def pack_circles(folder: Path, *words: str) -> Run:
    """Carry out a run on one problem of 10 circles, all of whose difficulty is the simulated model's skill."""
    words = (
        "engine=simulated",
        "task=circle_packing",
        "task.circles=[10]",
        "engine.spread=0",
        "evorun.progress=off",
        *words,
    )
    with programs_in_this_process():
        return carry_out(check(composed(*words)), folder)


def sum_of_radii(run: Run) -> float:
    """Return the run's score."""
    value: float = run.json("results.json")["metrics"]["sum_of_radii"]["value"]
    return value
