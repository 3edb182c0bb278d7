"""The form of a benchmark: a module with `measure(**sizes) -> list[Row]`, and `TINY`, sizes that take a second.

The defaults of `measure` are the sizes that the targets are for. As a program, this module prints the rows of one
benchmark as JSON: `evorun_bench.py FOLDER NAME SIZES`, the sizes as a JSON object. So each benchmark has a process of
its own, in which evorun is the one that PYTHONPATH names.
"""

import importlib
import inspect
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec


class Row(NamedTuple):
    """One measured number beside its target."""

    name: str
    value: float
    unit: str
    target: str
    """In words (`>= 2000`); empty for a number that is there for comparison."""
    met: bool | None
    """None when there is no target."""


def peak_mib() -> float:
    """Return the most memory that this process has held, in MiB (Linux)."""
    # Not getrusage's figure, which remembers what the process held before it became this program.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def best_ms(repeats: int, call: Callable[[], object]) -> float:
    """Return the shortest time of `repeats` calls, in milliseconds: the one that other processes disturbed least."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return 1e3 * min(seconds)


def main(folder: str, name: str, sizes: str) -> None:
    """Measure and print the rows; of the sizes, a benchmark takes those that it has."""
    sys.path.insert(0, folder)
    benchmark = importlib.import_module(name)
    given: dict[str, int] = msgspec.json.decode(sizes)
    if given.pop("tiny", 0):
        given = {**benchmark.TINY, **given}
    known = inspect.signature(benchmark.measure).parameters
    rows = benchmark.measure(**{size: number for size, number in given.items() if size in known})
    print(msgspec.json.encode(rows).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
