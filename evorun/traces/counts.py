"""Counts of responses kept and dropped, by operator, by reason and by run."""

from collections import Counter

import msgspec

KEPT = "kept"

REASONS = {
    "symbolic": "no model wrote it",
    "refused": "refused",
    "truncated": "cut short",
    "unparsable": "unparsable",
    "not_fitter": "not fitter",
    "duplicate": "duplicate",
    "answered": "not the first answer",
    "below_top": "below the top share",
}
"""Reasons to drop a response, in words; the first one that holds counts."""


class Tally(msgspec.Struct, frozen=True):
    """Counts of the outcomes of some responses."""

    found: int
    kept: int
    dropped: dict[str, int]
    """Counts by reason; a reason that never held has no entry."""


class RunTally(msgspec.Struct, frozen=True, kw_only=True):
    """A run, and the outcomes of its responses."""

    run: str
    task: str
    split: str | None
    """None where the task has no splits."""
    method: str
    model: str
    """Id of the model that wrote the responses."""
    simulated: bool
    provenance: str
    """Digest of the run's problems."""
    responses: Tally


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of the counts file."""

    kind: str
    top: float | None
    """None where the kind has no top share."""
    parsed_only: bool
    total: Tally
    by_operator: dict[str, Tally]
    runs: list[RunTally]


class Outcomes:
    """Counts outcomes as they arrive: `kept` or a reason, by run and operator."""

    def __init__(self) -> None:
        self._counter: Counter[tuple[str, str, str]] = Counter()

    def note(self, run: str, operator: str, outcome: str) -> None:
        """Count one response."""
        self._counter[run, operator, outcome] += 1

    @property
    def operators(self) -> list[str]:
        """The operators that made any response, in alphabetical order."""
        return sorted({operator for _, operator, _ in self._counter})

    def tally(self, *, run: str | None = None, operator: str | None = None) -> Tally:
        """Return the counts of one run or operator, or of all (None)."""
        outcomes: Counter[str] = Counter()
        for (in_run, by_operator, outcome), count in self._counter.items():
            if run in (None, in_run) and operator in (None, by_operator):
                outcomes[outcome] += count
        dropped = {reason: outcomes[reason] for reason in REASONS if outcomes[reason]}
        return Tally(outcomes.total(), outcomes[KEPT], dropped)
