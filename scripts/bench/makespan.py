"""The makespan of a run over its lower bound, at which a server's slots are always busy."""

import tempfile
from pathlib import Path

from dry_run import problems as written
from dry_run import run
from evorun_bench import Row

SECONDS_PER_TOKEN = 0.002
TINY = {"problems": 2, "generations": 1, "slots": 16}


def measure(problems: int = 64, generations: int = 5, slots: int = 64) -> list[Row]:
    """Run all problems at once against a server with so many slots, each call as long as its completion."""
    with tempfile.TemporaryDirectory() as folder:
        size = {
            **written(Path(folder) / "data", problems),
            "method.generations": generations,
            "engine.slots": slots,
            "engine.seconds_per_token": SECONDS_PER_TOKEN,
        }
        measured = run(Path(folder) / "run", size)
    bound = measured.completion_tokens * SECONDS_PER_TOKEN / slots
    ratio = measured.seconds / bound
    return [
        Row(
            f"makespan, {problems} problems x {generations} generations, {slots} slots", measured.seconds, "s", "", None
        ),
        Row("lower bound: all slots busy all the time", bound, "s", "", None),
        Row("makespan over lower bound", ratio, "x", "<= 1.10", ratio <= 1.10),
    ]
