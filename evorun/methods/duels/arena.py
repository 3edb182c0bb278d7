"""The arena of Duel-Evolve: candidates, their duels so far, and the belief drawn from these."""

from array import array
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, overload

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from evorun.ratings import bradley_terry, elo, win_rate
from evorun.runs.archive import Archive
from evorun.runs.candidates import Candidate, Comparison
from evorun.tasks.capabilities import Explanation, Letter, ScoredResponse


class Member(msgspec.Struct):
    """A candidate, and what judges said of it in the last duel that it won, and in the last that it lost."""

    candidate: Candidate
    win: Explanation = Explanation()
    loss: Explanation = Explanation()


class Members(Sequence[Candidate]):
    """Candidates in the order of their arrival; who is looked at is in memory until the next `keep`."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._in_memory: dict[int, Member] = {}
        self._places = array("q")
        """Of each, its place in the archive; -1 while it has none."""

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...

    @overload
    def __getitem__(self, index: slice) -> list[Candidate]: ...

    def __getitem__(self, index: int | slice) -> Candidate | list[Candidate]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        member = self._in_memory.get(index)
        return (member or self.member(index)).candidate

    def append(self, candidate: Candidate) -> None:
        """Add a candidate, in memory."""
        self._in_memory[len(self)] = Member(candidate)
        self._places.append(-1)

    def member(self, index: int) -> Member:
        """Return a member, which stays in memory and may be changed until the next `keep`."""
        index = range(len(self))[index]  # from the end, and IndexError, as lists have it
        if index not in self._in_memory:
            self._in_memory[index] = self._archived(index)
        return self._in_memory[index]

    def read(self, index: int) -> Candidate:
        """Return a candidate, and leave it where it is."""
        member = self._in_memory.get(index)
        return (member or self._archived(index)).candidate

    def indices_by_id(self) -> dict[str, int]:
        """Return the index of each candidate in memory by its id."""
        return {member.candidate.id: index for index, member in self._in_memory.items()}

    def keep(self, indices: Collection[int]) -> None:
        """Keep these in memory and put the others into the archive."""
        for index in self._in_memory.keys() - set(indices):
            self._places[index] = self._archive.put(self._in_memory.pop(index))

    def _archived(self, index: int) -> Member:
        return self._archive.get(self._places[index], Member)


RATINGS = ("posterior", "win_rate", "elo")
POOL_RANKS = ("mean", "upper", "lower")

ELO_K = 0.7 * elo.SCALE
"""Elo's K, 120 points: in logits 0.7, so that a first win counts about as much as in the posterior at prior_sd 1."""


class Survivors(NamedTuple):
    """The candidates that may still be best, and the number of those that were dropped."""

    indices: NDArray[np.intp]
    """In order."""
    pruned: int
    """Dropped by the confidence rule."""
    capped: int
    """Dropped by the limit, though the rule spared them."""

    def diagnostics(self) -> dict[str, float]:
        """Return the counts that a step reports."""
        return {"pruned": self.pruned, "capped": self.capped}


class Arena:
    """Candidates, all their duels that count, and the belief in their utilities (Duel-Evolve paper, Eq. 4)."""

    def __init__(
        self, prior_sd: float, *, rating: str = "posterior", half_wins: bool = False, archive: Archive | None = None
    ) -> None:
        """Hold nobody yet.

        rating: the estimate of a utility (`mean`), one of RATINGS; `sd` is the posterior's whichever it is. half_wins:
        count a tie as half a win of each, which else says nothing. archive: takes the candidates that are not kept;
        None: one of its own.
        """
        self.prior_sd = prior_sd
        archive = archive or Archive()
        self.candidates = Members(archive)
        self._lost = Members(archive)
        self.mean: NDArray[np.float64] = np.zeros(0)
        self.sd: NDArray[np.float64] = np.zeros(0)
        self._rating = rating
        self._half_wins = half_wins
        self._waiting: dict[int, None] = {}  # a set in the order of arrival
        self._winners = array("q")
        self._losers = array("q")
        self._scores = array("d")

    def __len__(self) -> int:
        return len(self.candidates)

    @property
    def waiting(self) -> list[int]:
        """The indices of the candidates that no judge has seen yet, the earliest arrival first."""
        return list(self._waiting)

    def add(self, candidates: Sequence[Candidate]) -> None:
        """Add candidates; until they have duelled, the belief in them is the prior."""
        for candidate in candidates:
            self._waiting[len(self.candidates)] = None
            self.candidates.append(candidate)
        self.mean = np.concatenate([self.mean, np.zeros(len(candidates))])
        self.sd = np.concatenate([self.sd, np.full(len(candidates), self.prior_sd)])

    def update(self, comparisons: Sequence[Comparison]) -> None:
        """Add the comparisons to the history and update the belief, starting from the last one."""
        indices = self.candidates.indices_by_id()
        for comparison in comparisons:
            self._remember(comparison, indices[comparison.first], indices[comparison.second])
        history = self._winners, self._losers, self._scores
        # From the last mean: most duels are old, so the fit has almost converged already.
        posterior = bradley_terry.fit(
            len(self),
            self._winners,
            self._losers,
            scores=self._scores if self._half_wins else None,
            prior_sd=self.prior_sd,
            init=self.mean,
        )
        self.sd = posterior.sd
        if self._rating == "posterior":
            self.mean = posterior.mean
        elif self._rating == "win_rate":
            # As much as the prior knows: the logit of a rate under Beta(a, a) has a variance of about 2 / a.
            self.mean = win_rate.log_odds(len(self), *history, pseudo_count=2 / self.prior_sd**2)
        else:
            self.mean = elo.rate(len(self), *history, k=ELO_K, initial=0) / elo.SCALE

    def _remember(self, comparison: Comparison, first: int, second: int) -> None:
        """Add a comparison of two candidates, given by their indices, to the history, if it is evidence."""
        self._waiting.pop(first, None)
        self._waiting.pop(second, None)
        winner, loser = (second, first) if comparison.outcome == "second" else (first, second)
        if comparison.outcome is not None:
            # Each keeps the explanation in which it was shown as A; judged once, the second was B in the only one.
            letter: Letter = "A" if len(comparison.reasons) > 1 else "B"
            own, others = comparison.reasons[0], comparison.reasons[-1]
            reason_of = {first: Explanation(reason=own), second: Explanation(reason=others, letter=letter)}
            self.candidates.member(winner).win = reason_of[winner]
            self.candidates.member(loser).loss = reason_of[loser]
        elif not self._half_wins or "invalid" in comparison.verdicts:
            return
        self._winners.append(winner)
        self._losers.append(loser)
        self._scores.append(0.5 if comparison.outcome is None else 1.0)

    def survivors(self, width: float, limit: int, rank: str = "mean", due: Sequence[int] = ()) -> Survivors:
        """Find the candidates whose upper confidence bound reaches the best lower bound (section 2.3.3).

        Bounds are mean +- width x sd. Who waits for a first duel is not pruned: the prior's upper bound says nothing
        about a candidate, and once a front-runner is well ahead it would rule every newcomer out unseen. At most
        `limit` candidates survive: those that are `due` to duel, then the highest by `rank` (one of POOL_RANKS: by the
        mean or a bound), the latest of equals.
        """
        if not self.candidates:
            return Survivors(np.zeros(0, dtype=np.intp), 0, 0)
        upper, lower = self.mean + width * self.sd, self.mean - width * self.sd
        unpruned = upper >= np.max(lower)
        unpruned[list(self._waiting)] = True
        alive = np.flatnonzero(unpruned)
        worth = {"mean": self.mean, "upper": upper, "lower": lower}[rank].copy()
        worth[list(due)] = np.inf
        # lexsort's last key is its first criterion: by worth, the latest of equals before the others.
        best_first = alive[np.lexsort((-alive, -worth[alive]))]
        kept = np.sort(best_first[:limit])
        return Survivors(kept, len(self) - len(alive), len(alive) - len(kept))

    def best(self) -> int | None:
        """Return the index of the highest posterior mean, the earliest of equals; None when there are no candidates."""
        return int(np.argmax(self.mean)) if self.candidates else None

    def scored(self, index: int) -> ScoredResponse:
        """Return a candidate as the evolution prompt shows it: with its posterior mean and what judges said of it."""
        member = self.candidates.member(index)
        return ScoredResponse(
            response=member.candidate, score=float(self.mean[index]), win=member.win, loss=member.loss
        )

    def note_lost(self, candidates: Iterable[Candidate]) -> None:
        """Add candidates that were paid for but never come in: they are unparsable or repeated."""
        for candidate in candidates:
            self._lost.append(candidate)

    def keep(self, survivors: NDArray[np.intp]) -> None:
        """Keep the texts of these in memory; the others are read from the archive when they are looked at."""
        self.candidates.keep(survivors.tolist())
        self._lost.keep(())

    def rated(self, survivors: NDArray[np.intp]) -> "RatedCandidates":
        """Return all candidates with the current belief in them, and behind them those that are lost."""
        return RatedCandidates(self.candidates, self._lost, self.mean, self.sd, survivors)


class RatedCandidates(Sequence[Candidate]):
    """Candidates with the belief in them at one moment, each put together when it is looked at.

    The pool of a long run grows to thousands, and all of its members are looked at only once, at the end.
    """

    def __init__(
        self,
        candidates: Members,
        lost: Members,
        mean: NDArray[np.float64],
        sd: NDArray[np.float64],
        survivors: NDArray[np.intp],
    ) -> None:
        """Rate the candidates, as many as there are means; those that are lost by now stay as they are."""
        self._candidates = candidates
        self._lost = lost
        self._length = len(mean) + len(lost)
        self._mean = mean
        self._sd = sd
        self._survivors = frozenset(survivors.tolist())

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Candidate: ...

    @overload
    def __getitem__(self, index: slice) -> list[Candidate]: ...

    def __getitem__(self, index: int | slice) -> Candidate | list[Candidate]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]  # from the end, and IndexError, as lists have it
        if index >= len(self._mean):
            return self._lost.read(index - len(self._mean))
        # Nine digits: the last ones of a fit differ between machines and BLAS builds, and records must not.
        mean, sd = round(float(self._mean[index]), 9), round(float(self._sd[index]), 9)
        return replace(self._candidates.read(index), mean=mean, sd=sd, survivor=index in self._survivors)
