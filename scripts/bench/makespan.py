"""The makespan of a run over its lower bound, at which a server's slots are always busy."""

import sqlite3
import tempfile
from pathlib import Path

import msgspec

from dry_run import run
from evorun_bench import Row

SLOTS = 64
SECONDS_PER_TOKEN = 0.002
SIZE = {
    "engine": "simulated",
    "engine.slots": SLOTS,
    "engine.seconds_per_token": SECONDS_PER_TOKEN,
    "task.limit": 64,
    "method.generations": 5,
}


class _Usage(msgspec.Struct):
    completion_tokens: int


def measure() -> list[Row]:
    """Run 64 problems for 5 generations against 64 simulated slots, each call as long as its completion."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        seconds = run(path, SIZE).seconds
        with sqlite3.connect(path / "journal.sqlite") as journal:
            usages = [
                msgspec.json.decode(text, type=_Usage) for (text,) in journal.execute("SELECT usage FROM effects")
            ]
    bound = sum(usage.completion_tokens for usage in usages) * SECONDS_PER_TOKEN / SLOTS
    ratio = seconds / bound
    return [
        Row("makespan, 64 problems x 5 generations, 64 slots", seconds, "s", "", None),
        Row("lower bound: all slots busy all the time", bound, "s", "", None),
        Row("makespan over lower bound", ratio, "x", "<= 1.10", ratio <= 1.10),
    ]
