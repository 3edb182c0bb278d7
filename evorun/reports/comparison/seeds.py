"""Runs of one set-up that differ by their seeds."""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from evorun.reports.comparison.runs import Run, setup


def seed_groups(runs: Sequence[Run]) -> list[list[Run]]:
    """Return the finished runs that differ in nothing but the seed, and in what the seed decides."""
    groups: dict[bytes, list[Run]] = defaultdict(list)
    for run in runs:
        manifest = run.manifest
        source = manifest.provenance.source
        same = (manifest.method, manifest.task, manifest.models, manifest.simulated, source, setup(manifest))
        # a run under way covers other problems than its siblings
        if run.outcome.finished:
            groups[msgspec.json.encode(same, order="deterministic")].append(run)
    return [members for members in groups.values() if len({run.manifest.seed for run in members}) > 1]


def name_over_seeds(members: Sequence[Run]) -> str:
    """Name runs that differ by their seeds by what their names share."""
    return f"{common_name([run.name for run in members])}, {len(members)} runs"


def common_name(names: Sequence[str]) -> str:
    """Return the parts that names share; empty when they share none."""
    parts = [name.split(", ") for name in names]
    return ", ".join(part for part in parts[0] if all(part in other for other in parts))
