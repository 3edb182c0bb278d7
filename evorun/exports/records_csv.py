"""All records of runs as CSV files, one for each kind of record, for spreadsheets and R."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from evorun.reports.tables import escape_formula
from evorun.runs.reading import read_records

RUN = "run"
"""The first column: the run's folder, by name."""


def tables_of_records(runs: Mapping[str, Path]) -> dict[str, bytes]:
    """Return the CSV files by name: for each record file of any run, the lines of all runs.

    runs: folders by name. Fields of groups have the names of both, `cost.judge.calls`; lists are JSON; null is empty.
    Texts that a spreadsheet would take for a formula begin with a quote.
    """
    names = sorted({file.name for folder in runs.values() for file in folder.glob("*.jsonl")})
    return {name.replace(".jsonl", ".csv"): _table(name, runs).encode("utf-8", "replace") for name in names}


def _table(name: str, runs: Mapping[str, Path]) -> str:
    # read twice, so that only the columns' names are in memory together, not the records
    columns = dict.fromkeys(key for record in _records(name, runs) for key in record)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(columns))
    writer.writeheader()
    writer.writerows(_records(name, runs))
    return buffer.getvalue()


def _records(name: str, runs: Mapping[str, Path]) -> Iterable[dict[str, Any]]:
    for run, folder in runs.items():
        for record in read_records(folder / name, dict[str, Any]):
            yield {RUN: run, **flatten(record)}


def flatten(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a record's values by the keys that lead to them, joined by dots."""
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            flat[f"{prefix}{key}"] = escape_formula(msgspec.json.encode(value).decode())
        else:
            flat[f"{prefix}{key}"] = escape_formula(value)
    return flat


def names_of(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the folders by their shortest last parts that tell them apart."""
    resolved = [folder.resolve() for folder in folders]
    for length in range(1, 1 + max(len(folder.parts) for folder in resolved)):
        names = ["/".join(folder.parts[-length:]) for folder in resolved]
        if len(set(names)) == len(names):
            break
    return dict(zip(names, folders, strict=True))
