"""Reads a run directory's files, whether the run is completed, running, interrupted or failed."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from evorun.errors import DataError
from evorun.runs.candidates import SHARED
from evorun.runs.files import MAX_RECORD, bounded_lines, open_regular, read_regular
from evorun.runs.schema import (
    CandidateRecord,
    MetricPoint,
    PredictionRecord,
    PromptScore,
    RatingRecord,
    Results,
    ReturnedCandidate,
    RolloutRecord,
    SpeedRecord,
    StepRecord,
    TrainingRecord,
)

T = TypeVar("T")


def read_results(run_dir: Path) -> Results | None:
    """Read results.json; None while the run has not written it."""
    # the last file that a run writes: while it is missing, the others may end anywhere
    return read_json(run_dir / "results.json", Results)


def read_predictions(run_dir: Path) -> list[PredictionRecord]:
    """Read predictions.jsonl, which has one record per problem that has ended."""
    return list(read_records(run_dir / "predictions.jsonl", PredictionRecord))


def read_metrics(run_dir: Path) -> list[MetricPoint]:
    """Read metrics.jsonl."""
    return list(read_records(run_dir / "metrics.jsonl", MetricPoint))


def read_candidates(run_dir: Path) -> Iterator[CandidateRecord]:
    """Read candidates.jsonl; what serves all problems has its last rating of ratings.jsonl, not its first."""
    last = {rating.candidate: rating for rating in read_records(run_dir / "ratings.jsonl", RatingRecord)}
    for record in read_records(run_dir / "candidates.jsonl", CandidateRecord):
        rating = last.get(record.id) if record.problem == SHARED else None
        if rating is None:
            yield record
        else:
            yield msgspec.structs.replace(record, mean=rating.mean, sd=rating.sd, survivor=rating.survivor)


def read_training(run_dir: Path) -> list[TrainingRecord]:
    """Read training.jsonl, which only runs that train have."""
    return list(read_records(run_dir / "training.jsonl", TrainingRecord))


def read_speed(run_dir: Path) -> dict[int, dict[str, float]]:
    """Read speed.jsonl, which only runs that train a real model have; return the figures of each step.

    A resume repeats a step without its update while it already samples for later ones: such a line does not count.
    """
    found: dict[int, dict[str, float]] = {}
    for record in read_records(run_dir / "speed.jsonl", SpeedRecord):
        if "training_seconds" in record.figures or record.step not in found:
            found[record.step] = record.figures
    return found


def read_rollouts(run_dir: Path) -> list[RolloutRecord]:
    """Read rollouts.jsonl, which only runs that play rollouts have."""
    return list(read_records(run_dir / "rollouts.jsonl", RolloutRecord))


def read_prompt_scores(run_dir: Path) -> list[PromptScore]:
    """Read prompt_scores.jsonl, which only runs that test several prompts at a step have."""
    return list(read_records(run_dir / "prompt_scores.jsonl", PromptScore))


def read_artifact(run_dir: Path, name: str, kind: type[T]) -> T | None:
    """Read a file of artifacts/ as JSON of a type; None where the run has none. Raises DataError."""
    return read_json(run_dir / "artifacts" / name, kind)


def read_steps_without_texts(run_dir: Path) -> list[StepRecord]:
    """Read steps.jsonl without the texts of the best candidates, which would fill the memory of a long run."""
    known: dict[tuple[str, ReturnedCandidate], ReturnedCandidate] = {}

    def without_text(step: StepRecord) -> StepRecord:
        if step.best is None:
            return step
        best = msgspec.structs.replace(step.best, text="")
        # usually the same as in the previous step
        return msgspec.structs.replace(step, best=known.setdefault((step.problem, best), best))

    return list(map(without_text, read_records(run_dir / "steps.jsonl", StepRecord)))


def read_json(path: Path, kind: type[T]) -> T | None:
    """Read a file that holds one JSON value of a type; None where there is none. Raises DataError."""
    try:
        content = read_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    return _decode(content, msgspec.json.Decoder(kind), path, 1)


def read_records(path: Path, record: type[T]) -> Iterator[T]:
    """Decode a JSONL file line by line.

    A missing file is an empty one. A last line without its newline is still being written, or was cut off by a kill,
    and is left out. Raises DataError naming the file and the line for any other malformed line.
    """
    decoder = msgspec.json.Decoder(record)  # made once: building it takes longer than decoding a line
    for number, _, line in _lines(path):
        yield _decode(line, decoder, path, number)


class _ProblemId(msgspec.Struct):
    problem: str


def read_records_by_problem(path: Path, record: type[T], problems: Iterable[str]) -> Iterator[list[T]]:
    """Yield each problem's records of a JSONL file, in the order of `problems`; other problems are skipped.

    Only one problem's records are in memory at a time. Raises DataError as `read_records` does.
    """
    places: dict[str, list[tuple[int, int]]] = {problem: [] for problem in problems}
    decoder = msgspec.json.Decoder(_ProblemId)
    for number, offset, line in _lines(path):
        spans = places.get(_decode(line, decoder, path, number).problem)
        if spans is not None:
            spans.append((number, offset))
    record_decoder = msgspec.json.Decoder(record)
    for line_places in places.values():
        records = []
        if line_places:
            with open_regular(path) as file:
                for number, offset in line_places:
                    file.seek(offset)
                    records.append(_decode(file.readline(), record_decoder, path, number))
        yield records


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield the number, offset and bytes of each complete line that is not blank. Raises DataError."""
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    offset = 0
    with file:
        for number, line in enumerate(bounded_lines(file), start=1):
            if len(line) == MAX_RECORD and not line.endswith(b"\n"):
                raise DataError(
                    f"{path}, line {number}: expected a record of this file, got {MAX_RECORD:,} bytes and more"
                )
            if line.endswith(b"\n") and not line.isspace():
                yield number, offset, line
            offset += len(line)


def _decode(line: bytes, decoder: msgspec.json.Decoder[T], path: Path, number: int) -> T:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}, line {number}: expected a record of this file, got one with: {error}") from error
