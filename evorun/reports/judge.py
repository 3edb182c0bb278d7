"""Judge diagnostics, counted duel by duel: its decisiveness, its bias to a position, and its agreement with grades."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from evorun.runs.candidates import CandidateId
from evorun.runs.results import mean_score
from evorun.runs.schema import ComparisonRecord, Metric
from evorun.runs.scores import Score
from evorun.runs.statistics import Proportion


@dataclass
class JudgeDiagnostics:
    """Proportions over the duels of a run, for a verdict on its judge."""

    decisive: Proportion = field(default_factory=Proportion)
    """Duels with an outcome, among all duels."""
    decisive_by_step: dict[int, Proportion] = field(default_factory=lambda: defaultdict(Proportion))
    position_a: Proportion = field(default_factory=Proportion)
    """Verdicts A among verdicts A or B. Pairs are shown both ways round or in random order, so an unbiased judge
    gives 0.5."""
    agreement: Proportion = field(default_factory=Proportion)
    """Won by the better candidate (the right one), among decisive duels between two that are not equally good."""
    tie: Proportion = field(default_factory=Proportion)
    """Verdicts T, among all verdicts."""
    invalid: Proportion = field(default_factory=Proportion)
    """Verdicts that could not be parsed, among all verdicts."""

    def add(self, duel: ComparisonRecord, utilities: Mapping[tuple[str, CandidateId], float]) -> None:
        """Count one duel; `utilities` has, by (problem, candidate), a value of which more is better, where known."""
        is_decisive = duel.outcome is not None
        self.decisive.add(is_decisive)
        self.decisive_by_step[duel.step].add(is_decisive)
        for verdict in duel.verdicts:
            self.tie.add(verdict == "T")
            self.invalid.add(verdict == "invalid")
            if verdict in ("A", "B"):
                self.position_a.add(verdict == "A")
        # between two equally good candidates either winner is right, which says nothing about the judge
        first, second = utilities.get((duel.problem, duel.first)), utilities.get((duel.problem, duel.second))
        if is_decisive and first is not None and second is not None and first != second:
            self.agreement.add((duel.outcome == "first") == (first > second))


def judge_warning(judge: JudgeDiagnostics) -> str | None:
    """Return a sentence on the consequences when no duel was decisive; None when some were."""
    if judge.decisive.successes:
        return None
    meaning = "no duel decided anything: the posterior stays the prior, and the ranking says nothing about quality."
    # in both orders the same letter: each duel was a draw, and nothing was learned from any of them
    if judge.position_a.value in (0, 1):
        position = "A" if judge.position_a.value else "B"
        return (
            f"Position bias 100 %: whenever the judge chose, it named {position}, whoever was shown there, so {meaning}"
        )
    return f"None of the {judge.decisive.n} duels was decisive: {meaning}"


@dataclass(frozen=True)
class Bin:
    """Candidates whose posterior means lie in [low, high], and their mean score."""

    low: float
    high: float
    figure: Metric
    """The mean of their measure: of right and wrong, the share that is right."""


def calibration(graded: list[tuple[float, float]], measure: Score, bins: int = 8) -> list[Bin]:
    """Cut candidates, given as (posterior mean, value), into at most `bins` groups of about equal size by mean.

    Candidates with equal means share a group, so groups can be fewer.
    """
    # equal numbers, not equal widths: posterior means crowd around the prior, and outer bins would be nearly empty
    ordered = sorted(graded)
    groups: list[Bin] = []
    start = 0
    while start < len(ordered):
        remaining = max(bins - len(groups), 1)
        end = start + max(1, (len(ordered) - start) // remaining)
        # equal means cannot be told apart by any cut
        while end < len(ordered) and ordered[end][0] == ordered[end - 1][0]:
            end += 1
        members = ordered[start:end]
        figure = mean_score(measure, [value for _, value in members])
        groups.append(Bin(members[0][0], members[-1][0], figure))
        start = end
    return groups
