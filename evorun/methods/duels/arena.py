"""The arena of Duel-Evolve: candidates, their duels so far, and the posterior from these."""

from array import array
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from evorun.ratings import bradley_terry, elo, win_rate
from evorun.runs.archive import Archive, ArchivedCandidates, CandidatesOnDemand
from evorun.runs.candidates import Candidate, Comparison
from evorun.tasks.capabilities import Explanation, Letter, ScoredResponse


class Member(msgspec.Struct):
    """A candidate with the judges' explanations of the last duel that it won and the last that it lost."""

    candidate: Candidate
    win: Explanation = Explanation()
    loss: Explanation = Explanation()


class Members(CandidatesOnDemand):
    """Candidates in the order of their arrival; an accessed candidate stays in memory until the next `keep`."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._in_memory: dict[int, Member] = {}
        self._offsets = array("q")
        """Each candidate's offset in the archive; -1 before it has been archived."""

    def __len__(self) -> int:
        return len(self._offsets)

    def at(self, index: int) -> Candidate:
        return self.member(index).candidate

    def append(self, candidate: Candidate) -> None:
        """Add a candidate, in memory."""
        self._in_memory[len(self)] = Member(candidate)
        self._offsets.append(-1)

    def member(self, index: int) -> Member:
        """Return a member, which stays in memory and may be changed until the next `keep`."""
        member = self._in_memory.get(index)
        if member is None:
            member = self._in_memory[index] = self._load(index)
        return member

    def read(self, index: int) -> Candidate:
        """Return a candidate without loading it into memory for later."""
        member = self._in_memory.get(index)
        return (member or self._load(index)).candidate

    def indices_by_id(self) -> dict[str, int]:
        """Return the index of each candidate in memory by its id."""
        return {member.candidate.id: index for index, member in self._in_memory.items()}

    def keep(self, indices: Collection[int]) -> None:
        """Keep these in memory and move the others to the archive."""
        for index in self._in_memory.keys() - set(indices):
            self._offsets[index] = self._archive.put(self._in_memory.pop(index))

    def _load(self, index: int) -> Member:
        return self._archive.get(self._offsets[index], Member)


RATINGS = ("posterior", "win_rate", "elo")
POOL_RANKS = ("mean", "upper", "lower")

ELO_K = 0.7 * elo.SCALE
"""Elo's K: 0.7 logits (120 points), so that a first win counts about as much as in the posterior at prior_sd 1."""


class Survivors(NamedTuple):
    """The candidates that may still be best, and the numbers of those dropped."""

    indices: NDArray[np.intp]
    """In order."""
    pruned: int
    """Dropped by the confidence rule."""
    capped: int
    """Dropped by the limit on the pool, though the rule spared them."""

    def diagnostics(self) -> dict[str, float]:
        """Return the counts that a step reports."""
        return {"pruned": self.pruned, "capped": self.capped}


class Arena:
    """Candidates, their duels that count as evidence, and the posterior of their utilities (Duel-Evolve, Eq. 4)."""

    def __init__(
        self, prior_sd: float, *, rating: str = "posterior", half_wins: bool = False, archive: Archive | None = None
    ) -> None:
        """Make an empty arena.

        rating: the estimate of utilities (`mean`), one of RATINGS; `sd` is always the posterior's. half_wins: count a
        tie as half a win for each side; otherwise ties are no evidence. archive: holds the candidates that are not kept
        in memory; None: a new one.
        """
        self.prior_sd = prior_sd
        archive = archive or Archive()
        self.candidates = Members(archive)
        self._lost = ArchivedCandidates(archive)
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
    def judged(self) -> bool:
        """True once a candidate has duelled."""
        return len(self._waiting) < len(self.candidates)

    @property
    def waiting(self) -> list[int]:
        """Indices of the candidates that no judge has seen yet, in order of arrival."""
        return list(self._waiting)

    def add(self, candidates: Sequence[Candidate]) -> None:
        """Add candidates; until they have duelled, their belief is the prior."""
        for candidate in candidates:
            self._waiting[len(self.candidates)] = None
            self.candidates.append(candidate)
        self.mean = np.concatenate([self.mean, np.zeros(len(candidates))])
        self.sd = np.concatenate([self.sd, np.full(len(candidates), self.prior_sd)])

    def update(self, comparisons: Sequence[Comparison]) -> None:
        """Add comparisons to the history and update the beliefs, starting from the previous ones."""
        indices = self.candidates.indices_by_id()
        for comparison in comparisons:
            self._remember(comparison, indices[comparison.first], indices[comparison.second])
        history = self._winners, self._losers, self._scores
        # Starts from the previous mean: most duels are old, so the fit has almost converged.
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
            # Matches the prior: the logit of a rate under Beta(a, a) has a variance of about 2 / a.
            self.mean = win_rate.log_odds(len(self), *history, pseudo_count=2 / self.prior_sd**2)
        else:
            self.mean = elo.rate(len(self), *history, k=ELO_K, initial=0) / elo.SCALE

    def _remember(self, comparison: Comparison, first: int, second: int) -> None:
        """Add a comparison of two candidates, given by their indices, to the history, if it is evidence."""
        self._waiting.pop(first, None)
        self._waiting.pop(second, None)
        winner, loser = (second, first) if comparison.outcome == "second" else (first, second)
        if comparison.outcome is not None:
            # Each keeps the explanation in which it was shown as A; after a single judgment the second was B.
            letter: Letter = "A" if len(comparison.reasons) > 1 else "B"
            explanations = {
                first: Explanation(reason=comparison.reasons[0]),
                second: Explanation(reason=comparison.reasons[-1], letter=letter),
            }
            self.candidates.member(winner).win = explanations[winner]
            self.candidates.member(loser).loss = explanations[loser]
        elif not self._half_wins or "invalid" in comparison.verdicts:
            return
        self._winners.append(winner)
        self._losers.append(loser)
        self._scores.append(0.5 if comparison.outcome is None else 1.0)

    def survivors(self, width: float, limit: int, rank: str = "mean", due: Sequence[int] = ()) -> Survivors:
        """Find the candidates whose upper confidence bound reaches the best lower bound (section 2.3.3).

        Bounds are mean +- width x sd. Candidates that wait for a first duel are not pruned: their upper bound is only
        the prior's, and once a front-runner is well ahead, it would rule out every newcomer unseen. At most `limit`
        candidates survive: first those that are `due` to duel, then the highest by `rank` (one of POOL_RANKS: by the
        mean or a bound), the latest first among equals.
        """
        if not self.candidates:
            return Survivors(np.zeros(0, dtype=np.intp), 0, 0)
        upper, lower = self.mean + width * self.sd, self.mean - width * self.sd
        unpruned = upper >= np.max(lower)
        unpruned[list(self._waiting)] = True
        alive = np.flatnonzero(unpruned)
        rank_values = {"mean": self.mean, "upper": upper, "lower": lower}[rank].copy()
        rank_values[list(due)] = np.inf
        # lexsort's last key is its first criterion: rank, then the latest arrival.
        best_first = alive[np.lexsort((-alive, -rank_values[alive]))]
        surviving = np.sort(best_first[:limit])
        return Survivors(surviving, len(self) - len(alive), len(alive) - len(surviving))

    def best(self) -> int | None:
        """Return the index of the highest posterior mean, the earliest of equals; None when there are no candidates."""
        return int(np.argmax(self.mean)) if self.candidates else None

    def scored(self, index: int) -> ScoredResponse:
        """Return a candidate as the evolution prompt shows it: with its posterior mean and the judges' explanations."""
        member = self.candidates.member(index)
        return ScoredResponse(
            response=member.candidate, score=float(self.mean[index]), win=member.win, loss=member.loss
        )

    def note_lost(self, candidates: Iterable[Candidate]) -> None:
        """Add candidates that were paid for but cannot compete, because they are unparsable or repeated."""
        self._lost.extend(candidates)

    def keep(self, survivors: NDArray[np.intp]) -> None:
        """Keep these in memory; the others are read from the archive when they are accessed."""
        self.candidates.keep(survivors.tolist())

    def rated(self, survivors: NDArray[np.intp]) -> "RatedCandidates":
        """Return all candidates with their current beliefs, followed by the lost ones."""
        return RatedCandidates(self.candidates, self._lost, self.mean, self.sd, survivors)


class RatedCandidates(CandidatesOnDemand):
    """Candidates with their beliefs at one moment, each built when it is accessed.

    The pool of a long run grows to thousands, and all of them are accessed only once, at the end.
    """

    def __init__(
        self,
        candidates: Members,
        lost: ArchivedCandidates,
        mean: NDArray[np.float64],
        sd: NDArray[np.float64],
        survivors: NDArray[np.intp],
    ) -> None:
        """Combine the first `len(mean)` candidates with their beliefs; lost candidates have none."""
        self._candidates = candidates
        self._lost = lost
        self._length = len(mean) + len(lost)
        self._mean = mean
        self._sd = sd
        self._survivors = frozenset(survivors.tolist())

    def __len__(self) -> int:
        return self._length

    def at(self, index: int) -> Candidate:
        if index >= len(self._mean):
            return self._lost.at(index - len(self._mean))
        # Nine decimals: later ones differ between machines and BLAS builds, and records must not.
        mean, sd = round(float(self._mean[index]), 9), round(float(self._sd[index]), 9)
        return replace(self._candidates.read(index), mean=mean, sd=sd, survivor=index in self._survivors)
