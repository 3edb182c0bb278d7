"""aggregates.json: counts of candidates and duels for a run's report page, made once at the end of the run.

Reading gigabytes of records again takes longer than the rest of the page. The file is valid while it and the records
match the manifest's checksums; otherwise the records are counted again.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from evorun.runs.call_keys import parse_call_key
from evorun.runs.candidates import SHARED
from evorun.runs.checksums import is_unchanged
from evorun.runs.counting import CountedCandidate, count_candidates, count_comparisons
from evorun.runs.manifest import Manifest
from evorun.runs.reading import read_json
from evorun.runs.roles import GENERATORS
from evorun.runs.schema import ComparisonRecord, Metric
from evorun.runs.scores import Score
from evorun.runs.search_figures import DuelCounter, SearchPools
from evorun.runs.statistics import Proportion, clustered_mean, pooled_share

AGGREGATES = "aggregates.json"


class Rated(NamedTuple):
    """A candidate that has a posterior and a grade."""

    problem: str
    mean: float
    """Of its posterior."""
    value: float
    """Of the run's measure."""


@dataclass(frozen=True)
class Bin:
    """Candidates whose posterior means are near one another."""

    mean: float
    """Mean of their posterior means."""
    figure: Metric
    """The mean of their scores; for right and wrong, the share that is right. Its interval is over problems."""


@dataclass(frozen=True)
class Placed:
    """A program in a grid."""

    length: float
    """In characters."""
    difference: float
    """From the programs seen first."""
    fitness: float
    """In [0, 100]."""
    held: bool
    """True where an island holds it at the end."""


@dataclass
class Aggregates:
    """Counts and scores of a run's candidates and duels, without their texts."""

    responses: int = 0
    unparsable: Proportion = field(default_factory=Proportion)
    """Responses without an answer, after their retry."""
    retried: Proportion = field(default_factory=Proportion)
    bred: int | None = None
    """Responses that a model wrote in view of earlier ones; null where an earlier version did not count them."""
    by_problem: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Responses, in the order of the records."""
    shared: int = 0
    """Candidates that serve all problems."""
    calibration: list[Bin] = field(default_factory=list)
    """Of the responses with a posterior and a grade."""
    decisive_by_step: dict[int, Metric] = field(default_factory=dict)
    agreement: dict[str, Proportion] = field(default_factory=dict)
    """Decisive duels of unequal candidates that the better one won, by problem."""
    covered: list[str] = field(default_factory=list)
    """Problems with a right candidate."""
    areas: dict[str, float] = field(default_factory=dict)
    """By problem that has both, the share of pairs in which a right candidate is rated above a wrong one."""
    by_generator: dict[str, Metric] = field(default_factory=dict)
    """Mean scores of the responses of each of several generators, by call role."""
    placed: dict[str, list[Placed]] = field(default_factory=dict)
    """The programs that a grid placed, by problem; empty without a grid."""


def read_aggregates(run_dir: Path, manifest: Manifest) -> Aggregates | None:
    """Read aggregates.json; None where it is missing or has changed. Raises DataError.

    The caller checks the records.
    """
    return read_json(run_dir / AGGREGATES, Aggregates) if is_unchanged(run_dir, manifest, AGGREGATES) else None


class DecisiveDuels:
    """Counts a run's duels with a winner, by step."""

    def __init__(self) -> None:
        self._shares: dict[int, dict[str, Proportion]] = defaultdict(lambda: defaultdict(Proportion))

    def add(self, duel: ComparisonRecord) -> None:
        """Count a duel."""
        self._shares[duel.step][duel.problem].add(duel.outcome is not None)

    def figures(self) -> dict[int, Metric]:
        """Return the shares by step; intervals resample problems."""
        return {step: pooled_share(list(shares.values())) for step, shares in sorted(self._shares.items())}


class AggregateCounter:
    """Counts a run's candidates for its aggregates, holding no texts."""

    def __init__(self, measure: Score) -> None:
        """measure: says how good a candidate is."""
        self._measure = measure
        self._aggregates = Aggregates()
        self._bred = 0
        self._rated: list[Rated] = []
        self._by_generator: dict[str, list[Rated]] = defaultdict(list)
        self._names: dict[str, str] = {}

    def add(self, candidate: CountedCandidate) -> None:
        """Count a candidate; system prompts and rubrics have no answer to grade."""
        aggregates = self._aggregates
        aggregates.shared += candidate.problem == SHARED
        if candidate.kind != "response":
            return
        aggregates.responses += 1
        aggregates.unparsable.add(candidate.answer is None)
        aggregates.retried.add(candidate.attempts > 1)
        self._bred += candidate.is_bred
        aggregates.by_problem[candidate.problem] += 1
        if candidate.features is not None and candidate.fitness is not None:
            programs = aggregates.placed.setdefault(candidate.problem, [])
            programs.append(Placed(*candidate.features, candidate.fitness, candidate.survivor))
        value = self._measure.value_in(candidate)
        if value is None:
            return
        rated = Rated(self._names.setdefault(candidate.problem, candidate.problem), candidate.mean or 0.0, value)
        if candidate.mean is not None:
            self._rated.append(rated)
        call = None if candidate.call is None else parse_call_key(candidate.call)
        if call is not None and call.role.startswith(GENERATORS):
            self._by_generator[call.role].append(rated)

    def finish(self, decisive: DecisiveDuels, duels: DuelCounter) -> Aggregates:
        """Return the aggregates of the candidates and of the run's duels."""
        self._aggregates.calibration = calibration(self._rated, self._measure)
        self._aggregates.bred = self._bred
        self._aggregates.decisive_by_step = decisive.figures()
        self._aggregates.agreement = dict(duels.agreement)
        self._aggregates.covered = duels.pools.covered
        self._aggregates.areas = duels.pools.areas
        self._aggregates.by_generator = {
            role: _pooled(rated, self._measure) for role, rated in sorted(self._by_generator.items())
        }
        return self._aggregates


def count_aggregates(run_dir: Path, measure: Score) -> Aggregates:
    """Count candidates and duels; `measure` says how good a candidate is. Raises DataError."""
    counter, pools = AggregateCounter(measure), SearchPools(measure)
    count_candidates(run_dir, counter, pools)
    count_comparisons(run_dir, decisive := DecisiveDuels(), duels := DuelCounter(pools))
    return counter.finish(decisive, duels)


def calibration(rated: Iterable[Rated], measure: Score, bins: int = 8) -> list[Bin]:
    """Cut candidates into at most `bins` groups by posterior mean, as equal in size as ties allow.

    Candidates with equal means share a group, so groups can be fewer.
    """
    # equal numbers, not equal widths: posterior means crowd around the prior, and outer bins would be nearly empty
    ordered = sorted(rated, key=lambda candidate: candidate.mean)
    n = len(ordered)
    # no cut can separate candidates with equal means
    candidate_cuts = [i for i in range(1, n) if ordered[i].mean > ordered[i - 1].mean]
    cuts = {
        min(candidate_cuts, key=lambda i: abs(i - wanted * n / bins)) for wanted in range(1, bins) if candidate_cuts
    }
    edges = sorted({0, n, *cuts})
    groups = [ordered[start:end] for start, end in pairwise(edges)]
    return [Bin(fmean(member.mean for member in members), _pooled(members, measure)) for members in groups]


def _pooled(members: Sequence[Rated], measure: Score) -> Metric:
    """Return the mean score; candidates of one problem are not independent, so problems are resampled."""
    by_problem: dict[str, list[float]] = defaultdict(list)
    for member in members:
        by_problem[member.problem].append(member.value)
    if measure.rate:
        return pooled_share([Proportion(sum(map(bool, values)), len(values)) for values in by_problem.values()])
    sums, counts = [sum(values) for values in by_problem.values()], [len(values) for values in by_problem.values()]
    alike = len({member.value for member in members}) == 1
    return Metric(sum(sums) / len(members), None if alike else clustered_mean(sums, counts), len(members))
