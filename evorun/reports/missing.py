"""Records that are missing from a run's files by its own counts, of which its figures must warn."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from evorun.errors import DataError
from evorun.runs.files import open_regular
from evorun.runs.manifest import Manifest
from evorun.runs.reading import read_records
from evorun.runs.schema import PredictionRecord, Results

_CONSEQUENCES = {
    "results.json": "figures come from the other files",
    "metrics.jsonl": "curves come from steps.jsonl",
}


class _Counted(msgspec.Struct):
    """A record without its texts."""

    problem: str
    kind: str = "response"


def find_missing_records(
    run_dir: Path, manifest: Manifest, results: Results | None, predictions: Sequence[PredictionRecord]
) -> list[str]:
    """Return a line for each file that is missing, has too few records, or ends within one."""
    lines = []
    if results is None and manifest.status == "completed":
        lines.append(f"results.json is missing: {_CONSEQUENCES['results.json']}")
    if results is not None and not (run_dir / "metrics.jsonl").exists():
        lines.append(f"metrics.jsonl is missing: {_CONSEQUENCES['metrics.jsonl']}")
    ended = {prediction.problem for prediction in predictions}
    for name, expected in _count_expected(results, predictions).items():
        path = run_dir / f"{name}.jsonl"
        found = len(predictions) if name == "predictions" else _count(path, ended if results is None else None)
        if found < expected and not path.exists():
            lines.append(f"{path.name} is missing; it had {expected:,} {name}")
        elif found < expected:
            lines.append(f"{path.name} has {found:,} of {expected:,} {name}")
        elif manifest.status != "running" and _ends_within_a_record(path):
            lines.append(f"{path.name} ends within a record, which is omitted")
    return lines


def _count_expected(results: Results | None, predictions: Iterable[PredictionRecord]) -> Mapping[str, int]:
    """Return the number of records that each file should have; in an unfinished run, for ended problems."""
    per_problem = {
        "steps": sum(prediction.steps for prediction in predictions),
        "candidates": sum(prediction.candidates for prediction in predictions),
    }
    if results is None:
        return per_problem
    counted = {"predictions": "problems", "candidates": "candidates", "comparisons": "comparisons"}
    return {**per_problem, **{name: results.counts[key] for name, key in counted.items() if key in results.counts}}


def _count(path: Path, problems: set[str] | None) -> int:
    """Count the records of these problems, or of all; among candidates only responses."""
    return sum(
        record.kind == "response" and (problems is None or record.problem in problems)
        for record in read_records(path, _Counted)
    )


def _ends_within_a_record(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            file.seek(max(size - 1, 0))
            return file.read(1) not in (b"", b"\n")
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
