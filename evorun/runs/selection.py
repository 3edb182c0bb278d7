"""Selection along a run: what an oracle would choose among the candidates so far, and what the method returned.

Series of metrics.jsonl over the steps of a search; a problem that ended early keeps its last state.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from evorun.runs.candidates import CandidateId
from evorun.runs.counting import ChoiceCounter, CountedCandidate
from evorun.runs.schema import ComparisonRecord, Metric, MetricPoint, StepRecord
from evorun.runs.scores import Score, find_better
from evorun.runs.statistics import Proportion, mean_interval

SEARCH_PREFIX = "search/"
"""Prefix of the names of these series."""

_RESAMPLES = 1_999
"""Resamples for a point (ours): its band is plotted, so two figures suffice."""


@dataclass
class _Generation:
    """The candidates of a problem's generation, reduced to what the series need."""

    best: float = -math.inf
    """Utility of the best one."""
    answers: set[str] = field(default_factory=set)
    answered: int = 0
    """Candidates with an answer."""

    def add(self, other: "_Generation") -> None:
        self.best = max(self.best, other.best)
        self.answers |= other.answers
        self.answered += other.answered


@dataclass
class _Search:
    """A problem, advanced step by step."""

    steps: list[StepRecord]
    """In order."""
    generations: dict[int, _Generation] = field(default_factory=lambda: defaultdict(_Generation))
    utilities: dict[CandidateId, float] = field(default_factory=dict)
    best: float = -math.inf
    """Utility of the best candidate so far."""

    def __post_init__(self) -> None:
        self._next_step = self._next_generation = 0

    def advance(self, number: int, measure: Score) -> "_State":
        """Return the state after a step; `number` rises from call to call."""
        while self._next_step < len(self.steps) and self.steps[self._next_step].step <= number:
            self._next_step += 1
        own, numbers = _Generation(), sorted(self.generations)
        while self._next_generation < len(numbers) and numbers[self._next_generation] <= number:
            own.add(self.generations[numbers[self._next_generation]])
            self._next_generation += 1
        record = self.steps[max(self._next_step - 1, 0)]
        value = 0.0 if measure.is_correctness and record.best is None else measure.value_in(record)
        returned = None if value is None else measure.utility(value)
        self.best = max(self.best, own.best, -math.inf if returned is None else returned)
        return _State(record, returned, self.best, own if record.step == number else _Generation())


class _State(NamedTuple):
    """A problem after a step."""

    record: StepRecord
    returned: float | None
    """Utility of the returned candidate."""
    best: float
    """That of the best one so far; minus infinity where none has a score."""
    own: _Generation
    """The candidates that the step added."""


class Searches:
    """The searches of a run by problem, which take in its candidates."""

    def __init__(self, steps: Sequence[StepRecord], measure: Score) -> None:
        """measure: the score that compares two responses."""
        self.measure = measure
        self.choice = ChoiceCounter()
        self.by_problem: dict[str, _Search] = {}
        for step in steps:
            self.by_problem.setdefault(step.problem, _Search([])).steps.append(step)

    def add(self, candidate: CountedCandidate) -> None:
        """Count a response to a problem that has steps."""
        self.choice.add(candidate)
        search = self.by_problem.get(candidate.problem)
        if candidate.kind != "response" or search is None:
            return
        generation = search.generations[candidate.generation]
        if candidate.answer is not None:
            generation.answers.add(candidate.answer)
            generation.answered += 1
        if (value := self.measure.value_in(candidate)) is not None:
            search.utilities[candidate.id] = self.measure.utility(value)
            generation.best = max(generation.best, search.utilities[candidate.id])


class Agreements:
    """Counts by step how often the better of two candidates won; takes in a run's duels after its candidates."""

    def __init__(self, searches: Searches) -> None:
        """searches: with the run's candidates."""
        self._searches = searches.by_problem
        self._shares: dict[int, Proportion] = defaultdict(Proportion)

    def add(self, duel: ComparisonRecord) -> None:
        """Count a decisive duel of two candidates that are not equally good."""
        utilities = self._searches[duel.problem].utilities if duel.problem in self._searches else {}
        better = find_better(utilities.get(duel.first), utilities.get(duel.second))
        if duel.outcome is not None and better is not None:
            self._shares[duel.step].add(duel.outcome == better)

    def figures(self) -> dict[int, Metric]:
        """Return the shares, without intervals: duels of one problem are not independent."""
        return {step: Metric(share.value, None, share.n) for step, share in self._shares.items()}


def selection_series(
    path: Path, counted: Searches, agreements: Agreements, points: Sequence[MetricPoint]
) -> Iterator[MetricPoint]:
    """Yield the series of a run in `path`; none where it chooses among no earlier answers (`ChoiceCounter.chooses`).

    counted: with the run's candidates. agreements: with its duels. points: those of the primary score over all
    problems, whose steps and costs the series take. Utilities are in [0, 1], 1 being best, where the score has both
    bounds.

    - `search/oracle`: the mean utility of the best candidate so far (of right and wrong: the coverage of the pool);
    - `search/regret`: the mean by which the returned candidate falls short of it;
    - `search/step_oracle`: the mean utility of the best of the step's own candidates (pass@N of the step);
    - `search/distinct_answers`: the share of the step's own answers that differ in their text, a mean over problems;
    - `search/belief_auc`: the probability that the belief in the returned answer is higher on a problem answered right
      than on one answered wrong, equal ones counting half;
    - `search/judge_agreement`: the share of the step's decisive duels of unequal candidates that the better one won.
    """
    if not counted.choice.chooses(path):
        return
    searches, measure = counted.by_problem, counted.measure
    if not any(search.generations for search in searches.values()):
        return
    agreement = agreements.figures()
    for point in points:
        states = [search.advance(point.step, measure) for search in searches.values()]
        scored = [(state.best, state.returned) for state in states if state.returned is not None]
        figures = {
            "oracle": _mean([best for best, _ in scored], measure.rate),
            "regret": _mean([best - returned for best, returned in scored], measure.rate),
            "step_oracle": _mean([state.own.best for state in states if state.own.best > -math.inf], measure.rate),
            "distinct_answers": _share_of_distinct_answers(states),
            "belief_auc": _belief_auc(states) if measure.is_correctness else None,
            "judge_agreement": agreement.get(point.step),
        }
        for name, figure in figures.items():
            if figure is not None:
                yield replace(point, name=SEARCH_PREFIX + name, value=figure.value, ci95=figure.ci95, n=figure.n)


def _mean(values: Sequence[float], rate: bool) -> Metric | None:
    """Return the mean over problems; None without any."""
    if not values:
        return None
    if rate:
        return Proportion(round(sum(values)), len(values)).metric()
    return Metric(sum(values) / len(values), mean_interval(values, resamples=_RESAMPLES), len(values))


def _share_of_distinct_answers(states: Sequence[_State]) -> Metric | None:
    shares = [len(state.own.answers) / state.own.answered for state in states if state.own.answered]
    return Metric(sum(shares) / len(shares), None, len(shares)) if shares else None


def _belief_auc(states: Sequence[_State]) -> Metric | None:
    believed = [(state.record.belief, state.record.correct) for state in states]
    right, wrong = (
        np.array(
            [belief.mean for belief, correct in believed if belief and belief.mean is not None and correct is kind]
        )
        for kind in (True, False)
    )
    if not right.size or not wrong.size:
        return None
    differences = np.subtract.outer(right, wrong)
    return Metric(float(np.mean((np.sign(differences) + 1) / 2)), None, right.size + wrong.size)
