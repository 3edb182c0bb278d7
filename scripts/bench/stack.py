"""Calls per second through the whole stack with an engine that answers at once, and effects per second of a replay."""

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

from dry_run import pin_to_one_core, run
from evorun.models.base import Reply, Request, Sampling
from evorun.runs.effects import JournaledModel, Traffic
from evorun.runs.journal import Journal
from evorun_bench import Row

ROUNDS = 3
SIZE = {"engine": "simulated", "task.limit": 64, "method.generations": 5}
EFFECTS = 20_000
PROMPT_CHARACTERS = 2_000


class InstantModel:
    """Answers at once."""

    name = "instant"

    async def complete(self, request: Request) -> Reply:
        """Return a reply of a usual size."""
        from evorun.models.base import Completion

        completion = Completion(text="x" * 400, finish_reason="stop", tokens=100)
        return Reply(completions=(completion,), prompt_tokens=500, seconds=0.0)

    async def close(self) -> None:
        """Nothing to release."""


def measure() -> list[Row]:
    """Return the rows of both measurements, each the median of a few rounds on one core."""
    pin_to_one_core()
    rates, resumes = [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            first = run(Path(folder) / "run", SIZE)
            again = run(Path(folder) / "run", SIZE)
            rates.append(first.calls / first.seconds)
            resumes.append(again.calls / again.seconds)
    replays = [asyncio.run(_replay()) for _ in range(ROUNDS)]
    stack, replay = median(rates), median(replays)
    return [
        Row("whole stack, engine of zero latency, journal on, one core", stack, "calls/s", ">= 2,000", stack >= 2_000),
        Row("replay from the journal, one core", replay, "effects/s", ">= 20,000", replay >= 20_000),
        Row("a finished run resumed, whole stack, one core", median(resumes), "calls/s", "", None),
    ]


async def _replay() -> float:
    with tempfile.TemporaryDirectory() as folder:
        requests = [
            Request(
                messages=({"role": "user", "content": f"{i} " + "x" * PROMPT_CHARACTERS},),
                sampling=Sampling(temperature=0.7, max_tokens=1024),
                seed=i,
            )
            for i in range(EFFECTS)
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
    return EFFECTS / seconds
