"""The arena of Duel-Evolve: candidates, their duels so far, and the Bradley-Terry belief drawn from these."""

from array import array
from collections.abc import Sequence
from typing import overload

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from evorun.ratings import bradley_terry
from evorun.runs.candidates import Candidate, Comparison
from evorun.tasks.capabilities import ScoredResponse


class Arena:
    """Candidates, all their decisive duels, and the posterior over their utilities (Duel-Evolve paper, Eq. 4)."""

    def __init__(self, prior_sd: float) -> None:
        self.prior_sd = prior_sd
        self.candidates: list[Candidate] = []
        self.mean: NDArray[np.float64] = np.zeros(0)
        self.sd: NDArray[np.float64] = np.zeros(0)
        self._index: dict[str, int] = {}
        self._winners = array("q")
        self._losers = array("q")
        self._win_reasons: dict[int, str] = {}
        self._loss_reasons: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.candidates)

    def add(self, candidates: Sequence[Candidate]) -> None:
        """Add candidates; until they have duelled, the belief in them is the prior."""
        for candidate in candidates:
            self._index[candidate.id] = len(self.candidates)
            self.candidates.append(candidate)
        self.mean = np.concatenate([self.mean, np.zeros(len(candidates))])
        self.sd = np.concatenate([self.sd, np.full(len(candidates), self.prior_sd)])

    def update(self, comparisons: Sequence[Comparison]) -> None:
        """Add the decisive comparisons to the history and update the posterior, starting from the last one."""
        for comparison in comparisons:
            if comparison.outcome is None:
                continue
            first, second = self._index[comparison.first], self._index[comparison.second]
            winner, loser = (first, second) if comparison.outcome == "first" else (second, first)
            self._winners.append(winner)
            self._losers.append(loser)
            # Of the two explanations, each candidate keeps the one in which it was shown as A.
            reason_of = {first: comparison.reasons[0], second: comparison.reasons[-1]}
            self._win_reasons[winner] = reason_of[winner]
            self._loss_reasons[loser] = reason_of[loser]
        # From the last posterior mean: most duels are old, so the fit has almost converged already.
        posterior = bradley_terry.fit(
            len(self.candidates), self._winners, self._losers, prior_sd=self.prior_sd, init=self.mean
        )
        self.mean, self.sd = posterior.mean, posterior.sd

    def survivors(self, width: float, limit: int, newcomers: Sequence[int] = ()) -> NDArray[np.intp]:
        """Return, in order, the indices whose upper confidence bound reaches the best lower bound (section 2.3.3).

        Bounds are mean +- width x sd. Newcomers, whom no duel has placed yet, always survive: the prior's upper bound
        says nothing about them, and once a front-runner is well ahead it would rule every one of them out unseen. At
        most `limit` candidates survive: the newcomers, then those with the highest upper bounds, the latest of equals.
        """
        if not self.candidates:
            return np.zeros(0, dtype=np.intp)
        upper = self.mean + width * self.sd
        upper[list(newcomers)] = np.inf  # so that they also come before others when `limit` cuts
        alive = np.flatnonzero(upper >= np.max(self.mean - width * self.sd))
        # lexsort's last key is its first criterion: by upper bound, the latest of equals before the others.
        by_bound = alive[np.lexsort((-alive, -upper[alive]))]
        return np.sort(by_bound[:limit])

    def best(self) -> int | None:
        """Return the index of the highest posterior mean, the earliest of equals; None when there are no candidates."""
        return int(np.argmax(self.mean)) if self.candidates else None

    def scored(self, index: int) -> ScoredResponse:
        """Return a candidate as the evolution prompt shows it: with its posterior mean and what judges said of it."""
        return ScoredResponse(
            response=self.candidates[index],
            score=float(self.mean[index]),
            win_reason=self._win_reasons.get(index, ""),
            loss_reason=self._loss_reasons.get(index, ""),
        )

    def rated(self, survivors: NDArray[np.intp], unrated: Sequence[Candidate] = ()) -> "RatedCandidates":
        """Return all candidates with the current belief in them, and behind them those that never came in."""
        return RatedCandidates([*self.candidates, *unrated], self.mean, self.sd, survivors)


class RatedCandidates(Sequence[Candidate]):
    """Candidates with the belief in them at one moment, each put together when it is looked at.

    The pool of a long run grows to thousands, and all of its members are looked at only once, at the end.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        mean: NDArray[np.float64],
        sd: NDArray[np.float64],
        survivors: NDArray[np.intp],
    ) -> None:
        """Rate the first of the candidates, as many as there are means; the others stay as they are."""
        self._candidates = candidates
        self._mean = mean
        self._sd = sd
        self._survivors = frozenset(survivors.tolist())

    def __len__(self) -> int:
        return len(self._candidates)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...

    @overload
    def __getitem__(self, index: slice) -> list[Candidate]: ...

    def __getitem__(self, index: int | slice) -> Candidate | list[Candidate]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]  # from the end, and IndexError, as lists have it
        if index >= len(self._mean):
            return self._candidates[index]
        # Nine digits: the last ones of a fit differ between machines and BLAS builds, and records must not.
        mean, sd = round(float(self._mean[index]), 9), round(float(self._sd[index]), 9)
        return replace(self._candidates[index], mean=mean, sd=sd, survivor=index in self._survivors)
