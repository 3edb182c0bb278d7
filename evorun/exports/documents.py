"""The content of reports as JSON documents for other programs."""

from pathlib import Path
from typing import Any

import msgspec

from evorun.reports.comparison import ComparedRuns
from evorun.reports.comparison.findings import describe_finding
from evorun.reports.comparison.tables import make_data_tables
from evorun.reports.facts import list_warnings
from evorun.reports.overview import load_outcome
from evorun.runs.directory import REPORT


def run_document(run: Path) -> dict[str, Any]:
    """Return a run's figures: those of results.json, or of its records so far, with what identifies it."""
    outcome = load_outcome(run)
    manifest = outcome.manifest
    return {
        "run": str(run),
        "status": manifest.status,
        "method": manifest.method,
        "task": manifest.task,
        "seed": manifest.seed,
        "models": msgspec.to_builtins(manifest.models),
        "regime": manifest.regime,
        "simulated": manifest.simulated,
        "primary": outcome.primary.name,
        "problems_ended": len(outcome.predictions),
        "metrics": msgspec.to_builtins(outcome.metrics),
        "by_stratum": msgspec.to_builtins(outcome.by_stratum),
        "cost": msgspec.to_builtins(outcome.cost),
        "counts": outcome.counts,
        "warnings": list_warnings(outcome),
        "page": str(run / REPORT),
    }


def comparison_document(comparison: ComparedRuns, page: Path) -> dict[str, Any]:
    """Return the tables of a comparison as lists of records by name, and its findings, a sentence for each pair.

    Under `study` is the study file that states the runs, with what they deviate from and answer; null without one. The
    tables are `arms`, `runs`, `strata`, `roles`, `pairs`, `strata_pairs` and `level_pairs`.
    """
    tables = {
        table.name: [dict(zip(table.fields or table.headings, row, strict=True)) for row in table.rows]
        for table in make_data_tables(comparison)
    }
    findings = [describe_finding(pair) for pair in comparison.pairs.main_pairs]
    study = msgspec.to_builtins(comparison.study)
    return {**tables, "findings": findings, "study": study, "warnings": list(comparison.warnings), "page": str(page)}
