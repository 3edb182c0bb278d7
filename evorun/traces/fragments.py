"""Splits a run into fragments: each response, the call that wrote it, and its parents' fitness."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec

from evorun.errors import DataError, JournalError, RunDirectoryError
from evorun.models.base import Completion, Message, Reply
from evorun.models.encoding import RecordedRequest
from evorun.runs.directory import load_manifest
from evorun.runs.journal_reader import JournalReader
from evorun.runs.manifest import Manifest
from evorun.runs.paths import display
from evorun.runs.reading import read_records
from evorun.runs.recording import open_effects
from evorun.runs.schema import CandidateRecord
from evorun.traces.kinds import Settings

SYMBOLIC = ("external_crossover", "external_mutation")
"""Lyria's operators that call no model."""
PENALISED_SCORE = "penalised_score"


_REQUEST = msgspec.json.Decoder(RecordedRequest)
_REPLY = msgspec.json.Decoder(Reply)


class Exchange(NamedTuple):
    """A model call that wrote one response."""

    messages: tuple[Message, ...]
    completion: Completion

    @property
    def chat(self) -> tuple[Message, ...]:
        """The whole chat; the last turn is the model's."""
        asked = (Message(role=message["role"], content=message["content"]) for message in self.messages)
        return (*asked, Message(role="assistant", content=self.completion.text))


class Fragment(NamedTuple):
    """A response of a run (section 5.1: a reasoning trace fragment)."""

    run: str
    """The run's directory, as the program shows it."""
    task: str
    record: CandidateRecord
    parents_fitness: tuple[float, ...]
    """Fitness, in [0, 100], of both parents or of the original."""
    exchange: Exchange | None
    """None for the output of a symbolic operator."""

    @property
    def fitness(self) -> float | None:
        """The method's fitness; without one, the oracle's penalised score."""
        return self.record.scores.get(PENALISED_SCORE) if self.record.fitness is None else self.record.fitness


def load_usable_manifest(folder: Path, settings: Settings) -> Manifest:
    """Return the manifest of a run. Raises RunDirectoryError unless the run is complete and its method fits."""
    manifest = load_manifest(folder)
    shown = display(folder)
    if manifest.method not in settings.kind.methods:
        fitting = " or ".join(settings.kind.methods)
        raise RunDirectoryError(
            f"{shown}: kind={settings.name} needs runs of {fitting}, this is one of {manifest.method}"
        )
    if "policy" not in manifest.models:
        raise RunDirectoryError(f"{shown}: expected the model that wrote the responses, its manifest names none")
    if manifest.status != "completed":
        raise RunDirectoryError(
            f"{shown}: expected a completed run, this one is {manifest.status}; wait for its end, or continue it with: "
            f"evorun resume {shown}"
        )
    return manifest


def read_fragments(folder: Path, manifest: Manifest) -> Iterator[Fragment]:
    """Yield the fragments of a run in the order of candidates.jsonl, where parents come before their children.

    Raises DataError for records that contradict each other, JournalError for calls that the journal lacks.
    """
    file = folder / "candidates.jsonl"
    fitness: dict[tuple[str, str], float | None] = {}
    with closing(open_effects(folder)) as journal:
        numbers = {key: number for number, (key, _) in enumerate(journal.index())}
        for record in read_records(file, CandidateRecord):
            if record.kind != "response":
                continue
            subject = f"candidate '{record.id}' of problem '{record.problem}'"
            # Ids are only unique within a problem.
            fitness[record.problem, record.id] = record.fitness
            # Parents come before their children in the file, so one pass knows their fitness.
            known = [fitness.get((record.problem, name)) for name in (*record.parents, record.id)]
            if record.parents and None in known:
                raise DataError(
                    f"{file}: expected the fitness of {subject} and earlier that of its parents; one is missing"
                )
            if record.call is None and record.operator not in SYMBOLIC:
                raise DataError(f"{file}: {subject} names no model call, so an old evorun made this run; make it again")
            yield Fragment(
                run=display(folder),
                task=manifest.task,
                record=record,
                parents_fitness=tuple(value for value in known[:-1] if value is not None),
                exchange=None if record.call is None else _exchange(journal, numbers.get(record.call), record.call),
            )


def _exchange(journal: JournalReader, number: int | None, call: str) -> Exchange:
    if number is None:
        raise JournalError(f"{journal.path} does not hold the call '{call}' that candidates.jsonl names")
    effect = journal.effect(number)
    try:
        return Exchange(_REQUEST.decode(effect.request).messages, _REPLY.decode(effect.result).completions[0])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError) as error:
        raise JournalError(f"{journal.path}: cannot read the call '{call}': {error}") from error
