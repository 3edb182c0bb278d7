"""Reads a run directory's files, of a run that is finished, running, interrupted or failed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from evorun.errors import DataError, RunDirectoryError
from evorun.reports.records import Manifest, MetricPoint, Prediction, Results, StepRecord

T = TypeVar("T")


def read_manifest(run_dir: Path) -> Manifest:
    """Read manifest.json. Raises RunDirectoryError when `run_dir` has none."""
    manifest = _read_object(run_dir / "manifest.json", Manifest)
    if manifest is None:
        raise RunDirectoryError(f"{run_dir}: expected a run directory with a manifest.json, found none; give its path")
    return manifest


def read_results(run_dir: Path) -> Results | None:
    """Read results.json; None while the run has not written it."""
    return _read_object(run_dir / "results.json", Results)


def read_predictions(run_dir: Path) -> list[Prediction]:
    """Read predictions.jsonl, one record for each problem that has ended."""
    return list(lines(run_dir / "predictions.jsonl", msgspec.json.Decoder(Prediction)))


def read_metrics(run_dir: Path) -> list[MetricPoint]:
    """Read metrics.jsonl."""
    return list(lines(run_dir / "metrics.jsonl", msgspec.json.Decoder(MetricPoint)))


def read_steps(run_dir: Path) -> list[StepRecord]:
    """Read steps.jsonl without the candidates' texts."""
    return list(lines(run_dir / "steps.jsonl", msgspec.json.Decoder(StepRecord)))


def lines(path: Path, decoder: msgspec.json.Decoder[T]) -> Iterator[T]:
    """Decode a JSONL file line by line.

    A missing file is an empty one. A last line without its newline is still being written, or was cut off by a kill,
    and is left out. Raises DataError naming the file and the line for any other malformed line.
    """
    for number, line in raw_lines(path):
        yield decode(line, decoder, path, number)


def raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the number (from 1) and bytes of each complete, non-blank line of a file; nothing for a missing file."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n") and not line.isspace():
                yield number, line


def decode(line: bytes, decoder: msgspec.json.Decoder[T], path: Path, number: int) -> T:
    """Decode one line; texts with lone surrogates come back with `?` in their place. Raises DataError."""
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as first:
        try:
            return decoder.decode(_without_lone_surrogates(line))
        except (ValueError, msgspec.DecodeError):
            raise DataError(f"{path}, line {number}: expected a record of this file, got one with: {first}") from first


def _without_lone_surrogates(line: bytes) -> bytes:
    return json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace")


def _read_object(path: Path, kind: type[T]) -> T | None:
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return decode(content, msgspec.json.Decoder(kind), path, 1)
