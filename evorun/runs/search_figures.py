"""Figures that show why a search fails: no right response was proposed, recognized, or readable."""

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from pathlib import Path

import numpy as np

from evorun.runs.candidates import REFUSED, CandidateId
from evorun.runs.counting import ChoiceCounter, CountedCandidate, count_candidates, count_comparisons
from evorun.runs.rating_figures import rating_figures
from evorun.runs.schema import ComparisonRecord, Metric, PredictionRecord, StepRecord
from evorun.runs.scores import Score, find_better, primary_score
from evorun.runs.statistics import Proportion, mean_interval, pooled_share


@dataclass
class _Pool:
    """A problem's candidates, reduced to what the figures need: a long run has too many to keep."""

    covered: bool = False
    """True when one of them is right."""
    right: "array[float]" = field(default_factory=lambda: array("d"))
    """The method's ratings (`mean`) of right candidates; `wrong`: of wrong ones."""
    wrong: "array[float]" = field(default_factory=lambda: array("d"))
    utilities: dict[CandidateId, float] = field(default_factory=dict)

    def add(self, candidate: CountedCandidate, measure: Score) -> None:
        """Add a candidate; `measure` says how good it is."""
        self.covered |= bool(candidate.correct)
        if candidate.mean is not None and candidate.correct is not None:
            (self.right if candidate.correct else self.wrong).append(candidate.mean)
        if (value := measure.value_in(candidate)) is not None:
            self.utilities[candidate.id] = measure.utility(value)


class SearchPools:
    """Counts a run's responses by problem."""

    def __init__(self, measure: Score) -> None:
        """measure: says how good a candidate is."""
        self.measure = measure
        self.by_problem: dict[str, _Pool] = defaultdict(_Pool)
        self.choice = ChoiceCounter()
        self.candidates = self.unparsed = 0

    def add(self, candidate: CountedCandidate) -> None:
        """Count a candidate; a system prompt or a rubric has nothing to grade or to parse."""
        self.choice.add(candidate)
        if candidate.kind == "response":
            self.by_problem[candidate.problem].add(candidate, self.measure)
            self.candidates += 1
            self.unparsed += candidate.error is not None

    @property
    def covered(self) -> list[str]:
        """Problems with a right candidate."""
        return [problem for problem, pool in self.by_problem.items() if pool.covered]

    @cached_property
    def areas(self) -> dict[str, float]:
        """By problem, the share of pairs in which a right candidate is rated above a wrong one; ask when all are in."""
        both = {name: pool for name, pool in self.by_problem.items() if pool.right and pool.wrong}
        if not both or not self.measure.is_correctness:
            return {}
        from scipy.stats import mannwhitneyu  # takes half a second to import

        # U counts pairs in which the right one is higher, ties half; the area under the ROC curve is their share
        return {
            name: float(mannwhitneyu(pool.right, pool.wrong, method="asymptotic").statistic)
            / (len(pool.right) * len(pool.wrong))
            for name, pool in both.items()
        }


class DuelCounter:
    """Counts a run's verdicts and outcomes by problem; takes in its duels after its candidates."""

    def __init__(self, pools: SearchPools) -> None:
        """pools: with the run's candidates."""
        self.pools = pools
        names = ("decisive_rate", "position_a_rate", "tie_rate", "invalid_rate", "judge_agreement", "refused_rate")
        self._shares: dict[str, dict[str, Proportion]] = {name: defaultdict(Proportion) for name in names}

    def add(self, duel: ComparisonRecord) -> None:
        """Count a duel."""
        shares = self._shares
        shares["decisive_rate"][duel.problem].add(duel.outcome is not None)
        for verdict, reason in zip_longest(duel.verdicts, duel.reasons[: len(duel.verdicts)], fillvalue=""):
            unanswered = verdict == "invalid" and reason.startswith(REFUSED)
            shares["refused_rate"][duel.problem].add(unanswered)
            if unanswered:
                continue
            shares["tie_rate"][duel.problem].add(verdict == "T")
            shares["invalid_rate"][duel.problem].add(verdict == "invalid")
            if verdict in ("A", "B"):
                shares["position_a_rate"][duel.problem].add(verdict == "A")
        pool = self.pools.by_problem.get(duel.problem)
        utilities = pool.utilities if pool is not None else {}
        better = find_better(utilities.get(duel.first), utilities.get(duel.second))
        if duel.outcome is not None and better is not None:
            shares["judge_agreement"][duel.problem].add(duel.outcome == better)

    @property
    def agreement(self) -> Mapping[str, Proportion]:
        """Decisive duels of unequal candidates that the better one won, by problem."""
        return self._shares["judge_agreement"]

    def figures(self) -> tuple[dict[str, Metric], dict[str, int]]:
        """Return the figures, none without a duel, and the counts."""
        counted = {name: sum(share.successes for share in shares.values()) for name, shares in self._shares.items()}
        duels = sum(share.n for share in self._shares["decisive_rate"].values())
        refused = counted["refused_rate"]
        shown = [name for name in self._shares if duels and (refused or name != "refused_rate")]
        counts = {"comparisons": duels, "invalid_judgments": counted["invalid_rate"]}
        figures = {name: pooled_share(list(self._shares[name].values())) for name in shown}
        return figures, {**counts, "refused_judgments": refused} if refused else counts


def search_figures(
    path: Path,
    steps: Sequence[StepRecord],
    predictions: Sequence[PredictionRecord],
    declared: Sequence[Score],
    counted: tuple[SearchPools, DuelCounter] | None = None,
) -> tuple[dict[str, Metric], dict[str, int]]:
    """Return the figures and counts of a run's candidates and duels, without those that the run has no data for.

    - `pool_coverage`: problems with a right candidate among all that were proposed, where the method chooses among
      them (`ChoiceCounter.chooses`);
    - `choice_given_coverage`: of those, problems whose final answer is right;
    - `posterior_auc`: the probability that a right candidate's rating (posterior mean, share of votes, Elo, ...) is
      above a wrong one's of the same problem, equal ones counting half; a mean over the problems that have both;
    - `decisive_rate`: duels with a winner; `position_a_rate`: verdicts A among verdicts A and B; `tie_rate` and
      `invalid_rate`: ties, and texts without a verdict, among all texts of judges;
    - `refused_rate`: requests to judges that the engine refused; left out where there were none;
    - `judge_agreement`: duels won by the better candidate, among the decisive ones of two that are not equally good;
    - `parsable_rate`: texts that a response could be read from, retries included;
    - those of `rating_figures`.

    counted: the candidates and duels, where they were read before; None: they are read here.

    Intervals resample problems: duels and texts of one problem are not independent.
    """
    measure = primary_score(declared)
    candidates, duels = counted or _count(path, measure)
    pools = candidates.by_problem
    figures: dict[str, Metric] = {}
    if measure.is_correctness and pools:
        if candidates.choice.chooses(path):
            figures |= _coverage(pools, predictions)
        if areas := list(candidates.areas.values()):
            figures["posterior_auc"] = Metric(float(np.mean(areas)), mean_interval(areas), len(areas))
    duel_figures, duel_counts = duels.figures()
    figures |= duel_figures
    figures |= _parsable(steps)
    figures |= rating_figures(path)
    return figures, {"candidates": candidates.candidates, "unparsed_candidates": candidates.unparsed, **duel_counts}


def _count(path: Path, measure: Score) -> tuple[SearchPools, DuelCounter]:
    """Read the candidates and duels. Raises DataError."""
    count_candidates(path, pools := SearchPools(measure))
    count_comparisons(path, duels := DuelCounter(pools))
    return pools, duels


def _coverage(pools: Mapping[str, _Pool], predictions: Sequence[PredictionRecord]) -> dict[str, Metric]:
    covered, choice = Proportion(), Proportion()
    for prediction in predictions:
        is_covered = prediction.problem in pools and pools[prediction.problem].covered
        covered.add(is_covered)
        if is_covered:
            choice.add(bool(prediction.correct))
    return {"pool_coverage": covered.metric(), "choice_given_coverage": choice.metric()}


def _parsable(steps: Sequence[StepRecord]) -> dict[str, Metric]:
    by_problem: dict[str, Proportion] = defaultdict(Proportion)
    for step in steps:
        texts = int(step.extra.get("texts", 0))
        by_problem[step.problem].n += texts
        by_problem[step.problem].successes += texts - int(step.extra.get("unparsable_texts", 0))
    shares = list(by_problem.values())
    return {"parsable_rate": pooled_share(shares)} if any(share.n for share in shares) else {}
