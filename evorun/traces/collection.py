"""Turns run directories into training examples and counts."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from evorun.runs.paths import display
from evorun.traces.counts import Counts, RunTally
from evorun.traces.fragments import load_usable_manifest, read_fragments
from evorun.traces.kinds import Settings
from evorun.traces.selection import Selection


class Traces(NamedTuple):
    """Fine-tuning data, with counts of the responses kept and dropped."""

    examples: list[bytes]
    """JSON lines; see `evorun.traces.selection.Example`."""
    counts: Counts


def collect(folders: Sequence[Path], settings: Settings) -> Traces:
    """Select training examples from completed runs.

    Raises RunDirectoryError for a run that does not fit, DataError and JournalError for records that cannot be used.
    """
    manifests = [
        load_usable_manifest(folder, settings) for folder in folders
    ]  # check all runs before reading the first
    # One selection for all runs, which may repeat each other's answers.
    selection = Selection(settings)
    for folder, manifest in zip(folders, manifests, strict=True):
        for fragment in read_fragments(folder, manifest):
            selection.offer(fragment)
    examples = selection.examples()
    outcomes = selection.outcomes
    runs = []
    for folder, manifest in zip(folders, manifests, strict=True):
        task = manifest.config.get("task")
        split = task.get("split") if isinstance(task, dict) else None
        tally = RunTally(
            run=display(folder),
            task=manifest.task,
            split=split if isinstance(split, str) else None,
            method=manifest.method,
            model=manifest.models["policy"].id,
            simulated=manifest.simulated,
            provenance=manifest.provenance.digest,
            responses=outcomes.tally(run=display(folder)),
        )
        runs.append(tally)
    counts = Counts(
        kind=settings.name,
        top=float(settings.top) if settings.kind.ranked else None,
        parsed_only=settings.parsed_only,
        total=outcomes.tally(),
        by_operator={operator: outcomes.tally(operator=operator) for operator in outcomes.operators},
        runs=runs,
    )
    return Traces(examples, counts)
