"""The pace of a run from end to end: CPU time per call in each tenth of its calls, the journal's thread apart.

    python scripts/bench/run.py pace                                            10 problems, some 20,000 calls
    python scripts/bench/run.py pace --size problems=60 --size generations=12

CPU time depends less than wall time on what else the machine does; even so it differs by a tenth from run to run.
"""

import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

from dry_run import problems as written
from dry_run import run
from evorun.simulation.engine import SimulatedModel
from evorun_bench import Row

TINY = {"problems": 2, "generations": 2, "rounds": 1}
PARTS = 10
ALLOWED = 1.25
"""Cost of a call in the last tenth over the others', at most: what ends a problem, its candidates' grades and records,
falls there. `ours`."""


class Mark(NamedTuple):
    """A moment of a run, in seconds."""

    calls: int
    wall: float
    cpu: float
    """Of all threads."""
    journal: float
    """CPU time of the journal's thread."""


class Clock:
    """The moments at which the simulated model was called: of each `every`-th call."""

    def __init__(self, every: int) -> None:
        self.calls = 0
        self.marks: list[Mark] = []
        self._every = every

    def counting(self, complete: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Return the method with a clock."""

        async def counted(model: SimulatedModel, request: Any) -> Any:
            if self.calls % self._every == 0:
                self.marks.append(Mark(self.calls, time.perf_counter(), time.process_time(), _journal_seconds()))
            self.calls += 1
            return await complete(model, request)

        return counted

    def tenths(self) -> list[Mark]:
        """Return what each tenth of the calls took."""
        ends = [self.marks[round(part * (len(self.marks) - 1) / PARTS)] for part in range(PARTS + 1)]
        return [
            Mark(b.calls - a.calls, b.wall - a.wall, b.cpu - a.cpu, b.journal - a.journal) for a, b in pairwise(ends)
        ]


def measure(problems: int = 10, generations: int = 33, rounds: int = 5) -> list[Row]:
    """Return CPU time per call by tenth, medians of so many runs, and the last tenth's over the others'."""
    runs = [_tenths(problems, generations) for _ in range(rounds)]
    calls = sum(part.calls for part in runs[0])
    journal = [[1e6 * part.journal / part.calls for part in parts] for parts in runs]
    others = [[1e6 * (part.cpu - part.journal) / part.calls for part in parts] for parts in runs]
    return [
        Row(f"{problems} problems x {generations} generations: model calls", calls, "", "", None),
        *_rows("CPU per call without the journal's thread", others),
        *_rows("CPU per call of the journal's thread", journal),
    ]


def _tenths(problems: int, generations: int) -> list[Mark]:
    clock = Clock(every=problems)
    with tempfile.TemporaryDirectory() as folder:
        size = {**written(Path(folder) / "data", problems), "method.generations": generations}
        with patch.object(SimulatedModel, "complete", clock.counting(SimulatedModel.complete)):
            run(Path(folder) / "run", size)
    return clock.tenths()


def _rows(name: str, runs: Sequence[Sequence[float]]) -> list[Row]:
    tenths = [median(costs) for costs in zip(*runs, strict=True)]
    last = tenths[-1] / max(median(tenths[:-1]), 1e-9)
    return [
        *(Row(f"{name}, tenth {part}", cost, "us", "", None) for part, cost in enumerate(tenths, 1)),
        Row(f"... {name}, last over the others", last, "x", f"<= {ALLOWED}", last <= ALLOWED),
    ]


def _journal_seconds() -> float:
    threads = (thread.ident for thread in threading.enumerate() if thread.name == "journal")
    return sum(time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in threads if ident is not None)
