"""CPU, memory and disk per call, against problems, generations and concurrency: a benchmark that fails where one grows.

Simulated runs, each in a process of its own. A cost per call is marginal: what a larger run takes beyond the next
smaller one, by their calls, so that what every run takes once is no part of it. CPU seconds of all threads and bytes
depend little on what else the machine does; where one of them is more per call at the end of a curve than at its
beginning, beyond `ALLOWED`, `measure` raises.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from dry_run import problems as written
from dry_run import run
from evorun_bench import Row, peak_mib

TINY = {"problems": 20, "generations": 8, "concurrency": 8, "strict": 0}
ALLOWED = {"cpu": 1.5, "memory": 1.5, "disk": 1.2}
"""Cost per call at a curve's end over that at its beginning, at most. `ours`."""
UNITS = {"cpu": ("us/call", 1e6), "memory": ("bytes/call", 1.0), "disk": ("bytes/call", 1.0)}
NO_LESS = {"cpu": 20e-6, "memory": 200.0, "disk": 20.0}
"""Costs below these count as these: a ratio of two that are nearly nothing says nothing. `ours`."""


class Point(NamedTuple):
    """One run of a curve."""

    size: int
    calls: int
    cpu: float
    """Seconds."""
    memory: float
    """Bytes at the peak."""
    disk: float
    """Bytes of all files."""


def measure(problems: int = 10_000, generations: int = 150, concurrency: int = 1_000, strict: int = 1) -> list[Row]:
    """Run the three curves up to these sizes. Raises RuntimeError where a cost grows, unless `strict` is 0."""
    one_call = {"method": "zero_shot"}
    curves: dict[str, list[tuple[int, int, dict[str, Any]]]] = {
        "problems": [(number, number, one_call) for number in (problems // 20, problems // 4, problems)],
        "generations": [
            (number, 4, {"method.generations": number}) for number in (generations // 8, generations // 3, generations)
        ],
        "concurrency": [
            (number, problems // 10, {**one_call, "run.concurrency": number})
            for number in sorted({8, min(64, concurrency), concurrency})
        ],
    }
    rows: list[Row] = []
    grown: list[str] = []
    for name, runs in curves.items():
        points = [_measured(size, count, overrides) for size, count, overrides in runs]
        costs = marginal(points) if points[0].calls < points[-1].calls else plain(points)
        for what, per_call in costs.items():
            unit, factor = UNITS[what]
            rows += [
                Row(f"{name}, {what} at {size:,}", factor * cost, unit, "", None)
                for size, cost in zip([point.size for point in points][-len(per_call) :], per_call, strict=True)
            ]
            ratio = growth(per_call, NO_LESS[what])
            rows.append(
                Row(f"... {name}, {what}: last over first", ratio, "x", f"<= {ALLOWED[what]}", ratio <= ALLOWED[what])
            )
            if ratio > ALLOWED[what]:
                grown.append(f"{what} per call against {name} is {ratio:.2f} times as much at the end")
    if grown and strict:
        raise RuntimeError("; ".join(grown))
    return rows


def marginal(points: Sequence[Point]) -> Mapping[str, list[float]]:
    """Return the costs of a call more, between each point and the next."""
    return {
        what: [max(0.0, getattr(b, what) - getattr(a, what)) / max(1, b.calls - a.calls) for a, b in pairwise(points)]
        for what in UNITS
    }


def plain(points: Sequence[Point]) -> Mapping[str, list[float]]:
    """Return the costs of a call at each point, of runs that make the same calls."""
    return {what: [getattr(point, what) / point.calls for point in points] for what in UNITS}


def growth(per_call: Sequence[float], no_less: float) -> float:
    """Return the last cost over the first."""
    return max(per_call[-1], no_less) / max(per_call[0], no_less)


def _measured(size: int, problems: int, overrides: Mapping[str, Any]) -> Point:
    # A process for each, whose peak of memory is its own; forked, since imports take longer than a small run.
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(_carry_out, (size, problems, overrides))


def _carry_out(size: int, problems: int, overrides: Mapping[str, Any]) -> Point:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        data = written(Path(folder) / "data", problems)
        started = time.process_time()
        measured = run(path, {**data, **overrides})
        cpu = time.process_time() - started
        disk = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
        return Point(size, measured.calls, cpu, 2**20 * peak_mib(), disk)
