"""Run the benchmarks and print one table of their numbers beside their targets.

`python scripts/bench/run.py [NAME ...]`: all benchmarks, or those named. A benchmark is a module in a folder (this one,
unless `--folder` names another) with `measure() -> list[Row]`. Each runs in a process of its own, one after the other,
so that none sees another's memory, threads or caches.

The exit code says whether the benchmarks could be run (1: one of them raised), never whether a target was met: that
depends on the machine.
"""

import argparse
import ast
import importlib
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from evorun_bench import Row

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Run the benchmarks and print one table.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run (default: all)")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the benchmarks are")
    options = parser.parse_args()
    available = discover(options.folder)
    unknown = set(options.names) - set(available)
    if unknown:
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; choose from {', '.join(available)}")
    console = Console() if sys.stdout.isatty() else Console(width=140)  # a log has room for whole names
    table = new_table()
    failed = False
    for name in options.names or available:
        started = time.perf_counter()
        try:
            rows = measure_alone(options.folder, name)
        except Exception as error:  # whatever a benchmark raises is shown as its result, and the others still run
            failed = True
            table.add_row(name, f"[red]failed: {escape(repr(error))}", end_section=True)
        else:
            add_rows(table, name, rows)
        console.print(f"{name}: {time.perf_counter() - started:.1f} s", style="dim", highlight=False)
    console.print(table)
    return 1 if failed else 0


def discover(folder: Path) -> list[str]:
    """Return the names of the modules of a folder that define `measure`, in alphabetical order, importing none."""
    return sorted(path.stem for path in folder.glob("*.py") if _defines_measure(path))


def measure_alone(folder: Path, name: str) -> list[Row]:
    """Return a benchmark's rows, measured in a fresh process. Raises whatever the benchmark raises."""
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measure, str(folder), name).result()


def new_table() -> Table:
    """Return the table without its rows."""
    table = Table(title="evorun benchmarks", title_justify="left")
    for heading in ("benchmark", "measure"):
        table.add_column(heading)
    table.add_column("value", justify="right")
    table.add_column("target")
    table.add_column("met")
    return table


def add_rows(table: Table, benchmark: str, rows: list[Row]) -> None:
    """Append a benchmark's rows as one section."""
    marks = {True: "[green]yes", False: "[yellow]no", None: ""}
    for index, row in enumerate(rows):
        table.add_row(
            benchmark if index == 0 else "",
            escape(row.name),
            escape(f"{number(row.value)} {row.unit}"),
            escape(row.target),
            marks[row.met],
            end_section=index == len(rows) - 1,
        )


def number(value: float) -> str:
    """Format a number of any size with three significant digits or more: 12,345 or 0.00123."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _defines_measure(path: Path) -> bool:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    return any(isinstance(node, ast.FunctionDef) and node.name == "measure" for node in tree.body)


def _measure(folder: str, name: str) -> list[Row]:
    sys.path.insert(0, folder)
    rows: list[Row] = importlib.import_module(name).measure()
    return rows


if __name__ == "__main__":
    sys.exit(main())
