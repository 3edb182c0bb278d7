"""From run directories to training examples and counts."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from evorun.runs.paths import display
from evorun.runs.schema import Manifest
from evorun.traces.counts import Counts, Outcomes, RunTally
from evorun.traces.fragments import fragments, usable_manifest
from evorun.traces.kinds import Settings
from evorun.traces.selection import Selection


class Traces(NamedTuple):
    """Fine-tuning data, and what was kept and dropped for it."""

    examples: list[bytes]
    """JSON, one a line; see `evorun.traces.selection.Example`."""
    counts: Counts


def collect(folders: Sequence[Path], settings: Settings) -> Traces:
    """Select training examples from completed runs.

    Raises RunDirectoryError for a run that does not fit, DataError and JournalError for records that cannot be used.
    """
    manifests = [usable_manifest(folder, settings) for folder in folders]  # all, before the first is read
    selection = Selection(settings)
    for folder, manifest in zip(folders, manifests, strict=True):
        for fragment in fragments(folder, manifest):
            selection.offer(fragment)
    examples = selection.examples()
    outcomes = selection.outcomes
    counts = Counts(
        kind=settings.name,
        top=float(settings.top) if settings.kind.ranked else None,
        parsed_only=settings.parsed_only,
        total=outcomes.tally(),
        by_operator={operator: outcomes.tally(operator=operator) for operator in outcomes.operators},
        runs=[
            _of_run(display(folder), manifest, outcomes) for folder, manifest in zip(folders, manifests, strict=True)
        ],
    )
    return Traces(examples, counts)


def _of_run(run: str, manifest: Manifest, outcomes: Outcomes) -> RunTally:
    split = manifest.config.get("task", {}).get("split")
    return RunTally(
        run=run,
        task=manifest.task,
        split=split if isinstance(split, str) else None,
        method=manifest.method,
        model=manifest.models["policy"].id,
        simulated=manifest.simulated,
        provenance=manifest.provenance.digest,
        responses=outcomes.tally(run=run),
    )
