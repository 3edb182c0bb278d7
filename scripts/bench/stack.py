"""Calls per second through the whole stack with an engine that answers at once, and what a replay takes of that."""

import asyncio
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from dry_run import Measured, command, one_core, reopen, run
from dry_run import problems as written
from evorun.models.base import Completion, Reply, Request, Sampling
from evorun.runs.effects import JournaledModel, Traffic
from evorun.runs.journal import Journal
from evorun_bench import Row

TINY = {"problems": 2, "generations": 2, "effects": 100, "rounds": 1, "commands": 0}
PROMPT_CHARACTERS = 2_000


class InstantModel:
    """Answers at once."""

    name = "instant"

    async def complete(self, request: Request) -> Reply:
        """Return a reply of a usual size."""
        completion = Completion(text="x" * 400, finish_reason="stop", tokens=100)
        return Reply(completions=(completion,), prompt_tokens=500, seconds=0.0)

    async def close(self) -> None:
        """Nothing to release."""


def measure(
    problems: int = 10, generations: int = 100, effects: int = 20_000, rounds: int = 3, commands: int = 1
) -> list[Row]:
    """Return the rows of all measurements on one core, which are medians of so many rounds.

    commands: rounds of the whole commands too, whose start and report take seconds.
    """
    with one_core():
        with tempfile.TemporaryDirectory() as folder:
            data = written(Path(folder) / "data", problems)
            run(Path(folder) / "imports", {**data, "method.generations": 1})  # they are no part of any figure
            size = {**data, "method.generations": generations}
            measured = [_round(Path(folder) / f"run_{number}", size) for number in range(rounds)]
            whole = [_by_command(Path(folder) / f"command_{number}", size) for number in range(commands)]
        looked_up = median(asyncio.run(_replay(effects)) for _ in range(rounds))
    rate = median(first.calls / first.seconds for first, _, _ in measured)
    # ratios of one round, in which what else the machine did cancels out
    replayed = median(replay.cpu / first.cpu for first, replay, _ in measured)
    resumed = median(resume.cpu / first.cpu for first, _, resume in measured)
    of = f"{problems} problems x {generations} generations, one core"
    rows = [
        Row(f"{of}, engine of zero latency", rate, "calls/s", ">= 2,000", rate >= 2_000),
        Row("engine=replay engine.run=RUN, CPU over that run's", replayed, "x", "<= 0.33", replayed <= 0.33),
        Row("its resume, CPU over that run's", resumed, "x", "", None),
        Row(f"replay of {effects:,} calls, one core", looked_up, "effects/s", ">= 20,000", looked_up >= 20_000),
    ]
    if whole:
        name = "evorun ... engine=replay engine.run=RUN, CPU over evorun ...'s, start and report included"
        rows.append(Row(name, median(whole), "x", "", None))
    return rows


def _round(path: Path, size: Mapping[str, Any]) -> tuple[Measured, Measured, Measured]:
    """Return a simulated run, its replay and its resume."""
    first = run(path, size)
    replay = run(path.with_name(f"{path.name}_replayed"), {**size, "engine": "replay", "engine.run": path})
    reopen(path)
    return first, replay, run(path, size)


def _by_command(path: Path, size: Mapping[str, Any]) -> float:
    """Return the CPU time of a replay, as a user makes it, over that of the simulated run."""
    first = command(path, size)
    return command(path.with_name(f"{path.name}_replayed"), {**size, "engine": "replay", "engine.run": path}) / first


async def _replay(effects: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        requests = [
            Request(
                messages=({"role": "user", "content": f"{i} " + "x" * PROMPT_CHARACTERS},),
                sampling=Sampling(temperature=0.7, max_tokens=1024),
                seed=i,
            )
            for i in range(effects)
        ]
        journal = Journal(Path(folder) / "journal.sqlite")
        model = JournaledModel(InstantModel(), journal, Traffic())
        await asyncio.gather(*(model.complete(f"problem|{i}|generate|0|0", r) for i, r in enumerate(requests)))
        journal.close()
        journal = Journal(Path(folder) / "journal.sqlite")
        model = JournaledModel(InstantModel(), journal, Traffic())
        started = time.perf_counter()
        for i, request in enumerate(requests):
            await model.complete(f"problem|{i}|generate|0|0", request)
        seconds = time.perf_counter() - started
        journal.close()
    return effects / seconds
