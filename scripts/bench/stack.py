"""Calls per second through the whole stack with an engine that answers at once, and effects per second of a replay."""

import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median

from dry_run import one_core, reopen, run
from dry_run import problems as written
from evorun.models.base import Completion, Reply, Request, Sampling
from evorun.runs.effects import JournaledModel, Traffic
from evorun.runs.journal import Journal
from evorun_bench import Row

TINY = {"problems": 2, "generations": 2, "effects": 100, "rounds": 1}
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


def measure(problems: int = 10, generations: int = 100, effects: int = 20_000, rounds: int = 3) -> list[Row]:
    """Return the rows of both measurements on one core, those of the replay being medians of so many rounds."""
    with one_core():
        with tempfile.TemporaryDirectory() as folder:
            size = {**written(Path(folder) / "data", problems), "method.generations": generations}
            path = Path(folder) / "run"
            first = run(path, size)
            reopen(path)
            again = run(path, size)
        replay = median(asyncio.run(_replay(effects)) for _ in range(rounds))
    stack, of = first.calls / first.seconds, f"{problems} problems x {generations} generations, one core"
    return [
        Row(f"{of}, engine of zero latency", stack, "calls/s", ">= 2,000", stack >= 2_000),
        Row("... the whole run replayed from its journal", again.calls / again.seconds, "calls/s", "", None),
        Row(
            f"replay of {effects:,} calls from the journal, one core",
            replay,
            "effects/s",
            ">= 20,000",
            replay >= 20_000,
        ),
    ]


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
