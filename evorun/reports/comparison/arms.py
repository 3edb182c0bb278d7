"""The arms of a comparison: what ran with one set-up, whatever the seed, and its means over the seeds."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import msgspec

from evorun.reports.comparison.names import FLOOR, SEED, TASK, joined, setup, shared, without
from evorun.reports.comparison.runs import Run
from evorun.reports.drawing import XAxis
from evorun.runs.schema import Metric
from evorun.runs.scores import Score
from evorun.runs.statistics import t_interval


@dataclass(frozen=True)
class Point:
    """A point of a curve."""

    x: float
    value: float
    ci95: tuple[float, float] | None
    """Over problems of a single run's, over seeds of a mean's."""


@dataclass(frozen=True)
class Arm:
    """The runs of one set-up, which differ by their seeds; mostly one method with one set of settings on one task."""

    runs: Sequence[Run]
    """In the order of their seeds; of several all are finished."""

    @property
    def parts(self) -> Mapping[str, str]:
        """The parts of the name, by aspect."""
        return shared([run.parts for run in self.runs])

    @property
    def name(self) -> str:
        """A name that no other arm has."""
        return joined(self.parts)

    @property
    def method(self) -> str:
        """The name but for task, seed and floor: what has one colour in all figures."""
        return joined(without(self.parts, TASK, FLOOR, SEED))

    @property
    def label(self) -> str:
        """The name in a figure of one task."""
        return joined(without(self.parts, TASK))

    @property
    def legend(self) -> str:
        """The name of its colour and dashes in all figures."""
        return joined(without(self.parts, TASK, SEED))

    @property
    def task(self) -> str:
        """The task of all its runs."""
        return self.runs[0].manifest.task

    @property
    def floor(self) -> bool:
        """True when the model answered at random."""
        return self.runs[0].floor

    @property
    def primary(self) -> Score:
        """The score by which it is ranked."""
        return self.runs[0].primary

    @property
    def rank(self) -> tuple[bool, float, float]:
        """The greater, the better; floors come last."""
        primary, second = zip(*(run.rank for run in self.runs), strict=True)
        return not self.floor, fmean(primary), fmean(second)

    def curve(self, score: Score, x: XAxis) -> list[Point]:
        """Return a score along its runs: the single run's curve, or the mean over the seeds."""
        curves = [curve for run in self.runs if (curve := run_curve(run, score, x))]
        return mean_curve(curves, score) if len(self.runs) > 1 else [point for curve in curves for point in curve]


def arms_of(runs: Sequence[Run]) -> list[Arm]:
    """Group runs that differ in nothing but the seed, and in what the seed decides; by task, the best first."""
    groups: dict[bytes, list[Run]] = defaultdict(list)
    for index, run in enumerate(runs):
        manifest = run.manifest
        source = manifest.provenance.source
        # a run under way covers other problems than its siblings
        alone = None if run.outcome.finished else index
        same = (manifest.method, manifest.task, manifest.models, manifest.simulated, source, setup(manifest), alone)
        groups[msgspec.json.encode(same, order="deterministic")].append(run)
    arms = []
    for members in groups.values():
        members.sort(key=lambda run: run.manifest.seed)
        one_seed = len({run.manifest.seed for run in members}) == 1  # a run and its copy are no two draws
        arms += [Arm([run]) for run in members] if one_seed else [Arm(members)]
    tasks = list(dict.fromkeys(run.manifest.task for run in runs))
    return sorted(sorted(arms, key=lambda arm: arm.rank, reverse=True), key=lambda arm: tasks.index(arm.task))


def run_curve(run: Run, score: Score, x: XAxis) -> list[Point]:
    """Return a score along a run."""
    points = run.curves.get(score.name, ())
    return [Point(getattr(point, x), point.value, point.ci95) for point in points if point.value is not None]


def mean_curve(curves: Sequence[Sequence[Point]], score: Score) -> list[Point]:
    """Return the mean of curves over all the places at which any of them has a point, from where all have begun.

    A curve that has ended counts with its last value, as a problem that has ended does in `metric_series`. The
    interval is that of `over_seeds`.
    """
    if not curves:
        return []
    begun = max(curve[0].x for curve in curves)
    places = [[point.x for point in curve] for curve in curves]
    points = []
    for x in sorted({x for xs in places for x in xs if x >= begun}):
        values = [curve[bisect_right(xs, x) - 1].value for curve, xs in zip(curves, places, strict=True)]
        mean = over_seeds([Metric(value, None, 1) for value in values], score)
        points.append(Point(x, fmean(values), mean.ci95))
    return points


def over_seeds(figures: Iterable[Metric], score: Score) -> Metric:
    """Return the mean of seeds' figures and its 95 % t interval over the seeds, cut at the score's range.

    The interval is None where no two seeds differ; `n` is the trials of all seeds together.
    """
    known = [figure for figure in figures if figure.value is not None]
    if not known:
        return Metric(None, None, 0)
    values = [figure.value for figure in known if figure.value is not None]
    ci95 = t_interval(values)
    if ci95 is not None:
        low = ci95[0] if score.low is None else max(ci95[0], score.low)
        high = ci95[1] if score.high is None else min(ci95[1], score.high)
        ci95 = low, high
    return Metric(fmean(values), ci95, sum(figure.n for figure in known))
