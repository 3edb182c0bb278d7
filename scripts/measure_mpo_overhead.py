"""Print what a run costs beside its baseline, in calls, tokens and time (MPO, table 8: 11 % of PPO's time).

    python scripts/measure_mpo_overhead.py PPO_RUN MPO_RUN

Both are run directories of completed runs, with equal steps and batches. `model seconds` are those that the engines
worked; of them, those of refinement go by beside updates. `beyond the update` is how long refinements went on when the
update beside them had ended, the part that makes a run longer; `run seconds` are those of the clock.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from evorun.runs.directory import load_manifest
from evorun.runs.journal_reader import read_journal

REFINEMENT = ("analyse", "refine", "merge", "calibrate", "rescore")
BEYOND, UPDATE = "beyond_update", "update"


class Overhead(NamedTuple):
    """The cost of a run; `refinement` is the part that only MPO has."""

    calls: int
    calls_of_refinement: int
    tokens: int
    tokens_of_refinement: int
    model_seconds: float
    model_seconds_of_refinement: float
    update_seconds: float
    seconds_beyond_the_update: float
    run_seconds: float


def overhead(run: Path) -> Overhead:
    """Return the cost of a run from its journal and manifest."""
    calls, tokens, seconds = defaultdict[str, int](int), defaultdict[str, int](int), defaultdict[str, float](float)
    for effect in read_journal(run / "journal.sqlite"):
        role = effect.key.rsplit("|", 3)[1]
        seconds[role] += effect.seconds
        if effect.usage is not None:  # of a model call
            calls[role] += 1
            tokens[role] += sum(msgspec.json.decode(effect.usage).values())
    return Overhead(
        calls=sum(calls.values()),
        calls_of_refinement=sum(calls[role] for role in REFINEMENT),
        tokens=sum(tokens.values()),
        tokens_of_refinement=sum(tokens[role] for role in REFINEMENT),
        model_seconds=sum(seconds[role] for role in calls),
        model_seconds_of_refinement=sum(seconds[role] for role in REFINEMENT),
        update_seconds=seconds[UPDATE],
        seconds_beyond_the_update=seconds[BEYOND],
        run_seconds=load_manifest(run).seconds or 0.0,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("baseline", type=Path, metavar="PPO_RUN")
    parser.add_argument("run", type=Path, metavar="MPO_RUN")
    arguments = parser.parse_args()
    baseline, run = overhead(arguments.baseline), overhead(arguments.run)
    table = Table("", "baseline", "run", "ratio")
    for name, first, second in zip(Overhead._fields, baseline, run, strict=True):
        ratio = f"{second / first:.3f}" if first else ""
        table.add_row(name.replace("_", " "), f"{first:,.10g}", f"{second:,.10g}", ratio)
    Console().print(table)


if __name__ == "__main__":
    main()
