"""The end of a problem as soon as its best answer is sure enough (ours; in the manner of best-arm identification).

The guarantee is the posterior's: as good as the judge is a noisy observer of quality. Errors that a judge repeats in
every duel make it sure of a wrong answer.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from evorun.fields import Checked
from evorun.methods.context import Context
from evorun.ratings.best import probability_of_best
from evorun.ratings.bradley_terry import Posterior
from evorun.runs.candidates import Candidate, CandidateId, Comparison


class RatedStep(NamedTuple):
    """A step of a search as far as ratings depend on it."""

    added: Sequence[Candidate]
    """Candidates that it added to those that are rated."""
    comparisons: Sequence[Comparison]
    best: CandidateId | None = None
    """The candidate that the method would return after it."""


@dataclass(kw_only=True)
class StopSettings(Checked):
    """The early end of a problem: part of the configuration of methods with a posterior."""

    section = "method"

    stop_probability: Annotated[float, Meta(gt=0, lt=1)] | None
    """End a problem once its answer is the best of the pool with this probability; None: never."""

    def follow_ratings(self, steps: Iterable[RatedStep]) -> Iterator[Posterior]:
        """Yield the ratings, of shape (candidates,), by which the method would end a problem after each step."""
        raise NotImplementedError


def iterate_best_probabilities(
    settings: StopSettings, steps: Sequence[RatedStep], answers: Sequence[str]
) -> Iterator[float]:
    """Yield the probability after each step that the best candidate's answer is the best; 0 before the first duel.

    answers: the signatures of all candidates, in the order in which the steps added them.
    """
    places: dict[CandidateId, int] = {}
    judged = False
    for step, rated in zip(steps, settings.follow_ratings(steps), strict=True):
        places |= {candidate.id: len(places) + place for place, candidate in enumerate(step.added)}
        judged = judged or bool(step.comparisons)
        best = None if step.best is None else places.get(step.best)
        yield 0.0 if best is None or not judged else _best_probability(rated, answers[: len(places)], best)


def _best_probability(rated: Posterior, answers: Sequence[str], best: int) -> float:
    same = [answer == answers[best] for answer in answers]
    return round(probability_of_best(rated.mean, rated.sd, same), 9)


class StoppingRule:
    """Follows the answers of rated candidates, in the order of their ratings."""

    def __init__(self, settings: StopSettings, ctx: Context) -> None:
        self._limit = settings.stop_probability
        self._ctx = ctx
        self._answers: list[str] = []

    def add(self, candidates: Sequence[Candidate]) -> None:
        """Take in candidates as they are rated; without a rule, nothing is kept."""
        if self._limit is not None:
            task, problem = self._ctx.task, self._ctx.problem
            self._answers += [task.signature(problem, candidate) for candidate in candidates]

    def diagnostics(self, mean: NDArray[np.float64], sd: NDArray[np.float64], best: int | None) -> dict[str, float]:
        """Return `best_probability` for a step's report: that the best candidate's answer is the best of the pool.

        mean, sd: of the posterior, of shape (candidates,).
        """
        if self._limit is None or best is None:
            return {}
        return {"best_probability": _best_probability(Posterior(mean, sd, 0), self._answers, best)}

    def ends(self, figures: dict[str, float], judged: bool) -> bool:
        """Return whether a problem with these figures has ended; a pool that nobody has judged has not."""
        return self._limit is not None and judged and figures.get("best_probability", 0.0) >= self._limit
