"""A run's course in fragments: each response with the call that wrote it and the fitness of what it was made from."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from evorun.errors import DataError, RunDirectoryError
from evorun.runs.directory import load_manifest
from evorun.runs.paths import display
from evorun.runs.reading import read_records
from evorun.runs.schema import CandidateRecord, Manifest
from evorun.traces.exchanges import Exchange, Exchanges
from evorun.traces.kinds import Settings

SYMBOLIC = ("external_crossover", "external_mutation")
"""Lyria's operators without a model."""
PENALISED_SCORE = "penalised_score"


class Fragment(NamedTuple):
    """A response of a run (section 5.1: a reasoning trace fragment)."""

    run: str
    """The run's directory, as the program shows it."""
    task: str
    record: CandidateRecord
    parents_fitness: tuple[float, ...]
    """In [0, 100], of both parents or of the original."""
    exchange: Exchange | None
    """None for what a symbolic operator made."""

    @property
    def fitness(self) -> float | None:
        """What the method held it for; where that has no fitness, the penalised score, which is what an oracle says."""
        return self.record.scores.get(PENALISED_SCORE) if self.record.fitness is None else self.record.fitness


def usable_manifest(folder: Path, settings: Settings) -> Manifest:
    """Return the manifest of a run. Raises RunDirectoryError unless it is complete and of a method that fits."""
    manifest = load_manifest(folder)
    shown = display(folder)
    if manifest.method not in settings.kind.methods:
        fitting = " or ".join(settings.kind.methods)
        raise RunDirectoryError(
            f"{shown}: kind={settings.name} needs runs of {fitting}, this is one of {manifest.method}"
        )
    if manifest.status != "completed":
        raise RunDirectoryError(
            f"{shown}: expected a completed run, this one is {manifest.status}; wait for its end, or continue it with: "
            f"evorun resume {shown}"
        )
    return manifest


def fragments(folder: Path, manifest: Manifest) -> Iterator[Fragment]:
    """Yield the fragments of a run in the order of candidates.jsonl, where parents stand before their children.

    Raises DataError for records that do not fit together, JournalError for calls that the journal does not hold.
    """
    file = folder / "candidates.jsonl"
    fitness: dict[tuple[str, str], float | None] = {}
    with Exchanges(folder) as exchanges:
        for record in read_records(file, CandidateRecord):
            if record.kind != "response":
                continue
            fitness[record.problem, record.id] = record.fitness
            yield Fragment(
                run=display(folder),
                task=manifest.task,
                record=record,
                parents_fitness=_parents_fitness(file, record, fitness),
                exchange=_exchange(file, record, exchanges),
            )


def _parents_fitness(
    file: Path, record: CandidateRecord, fitness: dict[tuple[str, str], float | None]
) -> tuple[float, ...]:
    known = [fitness.get((record.problem, name)) for name in (*record.parents, record.id)]
    if record.parents and None in known:
        raise DataError(
            f"{file}: expected the fitness of candidate '{record.id}' of problem '{record.problem}' and, before it, "
            "of its parents; one is missing"
        )
    return tuple(value for value in known[:-1] if value is not None)


def _exchange(file: Path, record: CandidateRecord, exchanges: Exchanges) -> Exchange | None:
    if record.call is not None:
        return exchanges.of(record.call)
    if record.operator in SYMBOLIC:
        return None
    raise DataError(
        f"{file}: candidate '{record.id}' of problem '{record.problem}' names no model call; an evorun that recorded "
        "none made this run: make it again"
    )
