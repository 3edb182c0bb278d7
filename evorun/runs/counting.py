"""One pass over candidates.jsonl, and one over comparisons.jsonl, for all that counts: long runs have long files."""

from pathlib import Path
from typing import Protocol

import msgspec

from evorun.runs.candidates import CandidateId, Kind
from evorun.runs.reading import read_records
from evorun.runs.schema import ComparisonRecord


class CountedCandidate(msgspec.Struct):
    """A candidate's record without its texts."""

    problem: str
    id: CandidateId
    generation: int
    kind: Kind = "response"
    parents: tuple[CandidateId, ...] = ()
    answer: str | None = None
    error: str | None = None
    attempts: int = 1
    call: str | None = None
    mean: float | None = None
    sd: float | None = None
    fitness: float | None = None
    features: tuple[float, float] | None = None
    survivor: bool = False
    correct: bool | None = None
    scores: dict[str, float | None] = {}

    @property
    def is_bred(self) -> bool:
        """True for a response that a model wrote in view of earlier ones."""
        return self.kind == "response" and bool(self.parents) and self.call is not None


class CandidateCounter(Protocol):
    """Takes in one candidate after another."""

    def add(self, candidate: CountedCandidate) -> None:
        """Count a candidate, of whatever kind."""


class ChoiceCounter:
    """Counts what shows whether a run chooses among its responses to a problem."""

    def __init__(self) -> None:
        self._prompts = self._rated = 0

    def add(self, candidate: CountedCandidate) -> None:
        """Count a candidate."""
        self._prompts += candidate.kind == "system_prompt"
        self._rated += candidate.kind == "response" and (candidate.mean, candidate.fitness) != (None, None)

    def chooses(self, run_dir: Path) -> bool:
        """Return whether an answer in `run_dir` is one of several; ask when all candidates are in.

        Not where a method trains, or compares system prompts and rates no response: it answers each problem again under
        new weights or another prompt, and the last answer counts.
        """
        return not (run_dir / "training.jsonl").exists() and bool(self._rated or not self._prompts)


def count_candidates(run_dir: Path, *counters: CandidateCounter) -> None:
    """Show each candidate of a run to all counters. Raises DataError for malformed records."""
    for candidate in read_records(run_dir / "candidates.jsonl", CountedCandidate):
        for counter in counters:
            counter.add(candidate)


class ComparisonCounter(Protocol):
    """Takes in one duel after another."""

    def add(self, duel: ComparisonRecord) -> None:
        """Count a duel."""


def count_comparisons(run_dir: Path, *counters: ComparisonCounter) -> None:
    """Show each duel of a run to all counters. Raises DataError for malformed records."""
    for duel in read_records(run_dir / "comparisons.jsonl", ComparisonRecord):
        for counter in counters:
            counter.add(duel)
