"""Candidates, duels, and where a method stands after each step of its loop."""

from collections.abc import Sequence

import msgspec

from evorun.runs.schema import Outcome, Verdict
from evorun.tasks.base import Response


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """What evolves: one response to a problem and where it came from."""

    id: str
    """Unique within its problem."""
    generation: int
    parents: tuple[str, ...]
    operator: str
    """`init`, `evolve`, ...: the step of the algorithm that made it."""
    response: Response
    attempts: int = 1
    """Model calls that it took to get this response."""
    call: str | None = None
    """Key of the model call that wrote it, in the run's journal; None for what no model wrote."""
    fitness: float | None = None
    """In [0, 100], where the method has one."""
    errors: str = ""
    """What an error detector said of it."""


class Rated(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with the method's own belief in it."""

    candidate: Candidate
    mean: float | None
    """Posterior mean of its utility; None for one that the method could not rate."""
    sd: float | None
    survivor: bool
    """Whether the method still considers it."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One duel: two candidates, judged once or in both orders."""

    first: str
    second: str
    verdicts: tuple[Verdict, ...]
    """As said by the judge: with `first` shown as A, then, when it was asked twice, with `first` shown as B."""
    outcome: Outcome | None
    """The winner, or None when the duel was not decisive."""
    reasons: tuple[str, ...]
    """The judge's explanations, one a verdict."""


class Step(msgspec.Struct, kw_only=True):
    """What a method reports after each step of its loop."""

    step: int
    best: Rated | None
    """The candidate that the method would return now; None while it has none that parses."""
    candidates: Sequence[Rated]
    """All candidates so far, with the beliefs after this step."""
    comparisons: Sequence[Comparison] = ()
    """The duels of this step."""
    extra: dict[str, float] = {}
    """Diagnostics of this step, by name."""
    samples: Sequence[Candidate] = ()
    """Candidates of this step that stand for what the model would say: the share of correct ones is its pass rate."""
