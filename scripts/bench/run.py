"""Run the benchmarks and print a table of each one's numbers beside their targets, as soon as it is measured.

    python scripts/bench/run.py [NAME ...]             all benchmarks, or those named, at the sizes of their targets
    python scripts/bench/run.py NAME --size SIZE=N     another size, such as problems=20
    python scripts/bench/run.py --tiny                 sizes that show only that the benchmarks work
    python scripts/bench/run.py NAME --against FOLDER  another checkout of evorun too, in turns: before and after

A benchmark is a module of this folder (or of `--folder`) with `measure`; see evorun_bench. Each runs in a process of
its own, one after the other and with one thread of linear algebra, so that none sees another's memory, threads or
caches. With `--against` this checkout's benchmarks measure both: a figure is the median of the rounds, and a ratio the
median of the rounds' ratios, in which what else the machine did cancels out.

The exit code says whether the benchmarks could be run (1: one of them failed), never whether a target was met: that
depends on the machine.
"""

import argparse
import ast
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from statistics import median

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import evorun_bench
from evorun_bench import Row

HERE = Path(__file__).resolve().parent
THIS_TREE = HERE.parents[1]
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
ROUNDS_TO_COMPARE = 3


def main() -> int:
    """Run what the command line asks for."""
    options = read_command_line()
    console = Console() if sys.stdout.isatty() else Console(width=160)  # a log has room for whole names
    trees = [THIS_TREE] if options.against is None else [options.against, THIS_TREE]
    failed = False
    for name in options.names:
        started = time.perf_counter()
        table = new_table(options.against)
        measured: list[list[list[Row]]] = [[] for _ in trees]
        try:
            for _ in range(options.rounds):
                for rounds, tree in zip(measured, trees, strict=True):
                    rounds.append(measure_alone(options.folder, name, options.sizes, tree))
        except subprocess.CalledProcessError as error:  # it is shown as the result, and the others still run
            failed = True
            reason = error.stderr.strip().rpartition("\n")[2]
            where = (
                "" if len(trees) == 1 else f" after {sum(map(len, measured))} of {len(trees) * options.rounds} turns"
            )
            table.add_row(name, f"[red]failed{where}: {escape(reason)}")
        else:
            add_rows(table, name, measured)
        # Each by itself: what was measured in a quarter of an hour must not be lost with the next benchmark.
        console.print(table)
        console.print(f"{name}: {time.perf_counter() - started:.1f} s", style="dim", highlight=False)
        sys.stdout.flush()
    return 1 if failed else 0


def read_command_line() -> argparse.Namespace:
    """Return the options; ends the program for wrong ones."""
    parser = argparse.ArgumentParser(description="Run the benchmarks and print a table of each.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run (default: all)")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the benchmarks are")
    parser.add_argument("--size", action="append", default=[], metavar="SIZE=N", help="another size, for those with it")
    parser.add_argument("--tiny", action="store_true", help="the smallest sizes")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout of evorun, to compare with")
    parser.add_argument("--rounds", type=int, help=f"default: 1, or {ROUNDS_TO_COMPARE} with --against")
    options = parser.parse_args()
    available = discover(options.folder)
    unknown = set(options.names) - set(available)
    if unknown:
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; choose from {', '.join(available)}")
    if options.against is not None and not (options.against / "evorun" / "__init__.py").is_file():
        parser.error(f"--against: expected a checkout of evorun, found no package evorun in {options.against}")
    options.names = options.names or available
    options.rounds = options.rounds or (1 if options.against is None else ROUNDS_TO_COMPARE)
    options.sizes = {"tiny": int(options.tiny)}
    for given in options.size:
        name, _, number = given.partition("=")
        if not number.isdecimal():
            parser.error(f"--size: expected SIZE=N, got {given}")
        options.sizes[name] = int(number)
    return options


def discover(folder: Path) -> list[str]:
    """Return the names of the modules of a folder that define `measure`, in alphabetical order, importing none."""
    return sorted(path.stem for path in folder.glob("*.py") if _defines_measure(path))


def measure_alone(folder: Path, name: str, sizes: dict[str, int], tree: Path) -> list[Row]:
    """Return a benchmark's rows, measured in a process of its own. Raises CalledProcessError when that fails."""
    command = [sys.executable, evorun_bench.__file__, str(folder), name, msgspec.json.encode(sizes).decode()]
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(tree.resolve())}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=list[Row])


def new_table(against: Path | None) -> Table:
    """Return the table without its rows."""
    table = Table()
    for heading in ("benchmark", "measure"):
        table.add_column(heading)
    for heading in ("value",) if against is None else ("before", "after", "after / before"):
        table.add_column(heading, justify="right")
    table.add_column("target")
    table.add_column("met")
    return table


def add_rows(table: Table, benchmark: str, measured: Sequence[Sequence[Sequence[Row]]]) -> None:
    """Append a benchmark's rows; `measured` holds the rounds of each tree, this one's last."""
    marks = {True: "[green]yes", False: "[yellow]no", None: ""}
    *earlier, latest = ([{row.name: row for row in rows} for rows in rounds] for rounds in measured)
    for index, name in enumerate(latest[-1]):
        after = [rows[name] for rows in latest]
        row = sorted(after, key=attrgetter("value"))[(len(after) - 1) // 2]  # with the target of its own round
        figures = [number(row.value)]
        for rounds in earlier:
            before = [rows[name].value for rows in rounds if name in rows]
            ratios = [new.value / old for new, old in zip(after, before, strict=False) if old]
            figures = [number(median(before)) if before else "", *figures, number(median(ratios)) if ratios else ""]
        table.add_row(
            benchmark if index == 0 else "",
            escape(f"{name}, {row.unit}" if row.unit else name),
            *figures,
            escape(row.target),
            marks[row.met],
        )


def number(value: float) -> str:
    """Format a number of any size with three significant digits or more: 12,345 or 0.00123."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _defines_measure(path: Path) -> bool:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return any(isinstance(node, ast.FunctionDef) and node.name == "measure" for node in tree.body)


if __name__ == "__main__":
    sys.exit(main())
