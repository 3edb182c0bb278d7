"""The arms of a comparison: what ran with one set-up, whatever the seed, and its means over the seeds."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from evorun.reports.axes import Axis
from evorun.reports.comparison.names import (
    BASELINE,
    METHOD,
    PAPER,
    SEED,
    TASK,
    drop_parts,
    find_shared_parts,
    join_parts,
    read_typed_settings,
)
from evorun.reports.comparison.runs import Run
from evorun.runs.crossed import CrossedMean, crossed_mean, tabulate
from evorun.runs.schema import Metric
from evorun.runs.scores import Score
from evorun.runs.statistics import MIN_SEEDS, clip_interval, t_interval


@dataclass(frozen=True)
class Point:
    """A point of a curve."""

    step: int
    x: float
    """Position on the figure's horizontal axis."""
    value: float
    ci95: tuple[float, float] | None
    """Over problems of a single run's, over seeds of a mean's."""


@dataclass(frozen=True)
class Arm:
    """The runs of one set-up, which differ by their seeds; mostly one method with one set of settings on one task."""

    runs: Sequence[Run]
    """In the order of their seeds; several are all finished."""
    known_by_paper: bool = False
    """True when no other arm on its task has the paper's name that it has."""

    @property
    def parts(self) -> Mapping[str, str]:
        """The parts of the name, by aspect."""
        return find_shared_parts([run.parts for run in self.runs])

    @property
    def name(self) -> str:
        """A name that no other arm has."""
        return join_parts(self.parts)

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings that the commands of all its runs have, as typed."""
        return find_shared_parts([read_typed_settings(run.manifest) for run in self.runs])

    @property
    def method_parts(self) -> Mapping[str, str]:
        """The parts of the name without task, seed and baseline."""
        return drop_parts(self.parts, TASK, BASELINE, SEED)

    @property
    def method(self) -> str:
        """The name of these parts in figures: what has one colour in all of them."""
        return join_parts(drop_parts(self._drawn_parts, TASK, BASELINE, SEED))

    @property
    def label(self) -> str:
        """The name in a figure of one task."""
        return join_parts(drop_parts(self._drawn_parts, TASK))

    @property
    def legend(self) -> str:
        """The name of its colour and dashes in all figures."""
        return join_parts(drop_parts(self._drawn_parts, TASK, SEED))

    @property
    def _drawn_parts(self) -> Mapping[str, str]:
        """The parts that figures have room for: beside a paper's name that tells the arm apart, the method alone."""
        if not self.known_by_paper:
            return self.parts
        return {aspect: word for aspect, word in self.parts.items() if aspect in (PAPER, METHOD, TASK, SEED)}

    @property
    def task(self) -> str:
        """The task of all its runs."""
        return self.runs[0].manifest.task

    @property
    def is_baseline(self) -> bool:
        """True when the model answered at random."""
        return self.runs[0].is_baseline

    @property
    def primary(self) -> Score:
        """The score by which it is ranked."""
        return self.runs[0].primary

    @property
    def rank(self) -> tuple[bool, float, float]:
        """Greater is better; random baselines come last."""
        primary, second = zip(*(run.rank for run in self.runs), strict=True)
        return not self.is_baseline, fmean(primary), fmean(second)

    @property
    def started(self) -> tuple[str, int]:
        """The place of its first run in the order in which runs began."""
        return min(run.started for run in self.runs)

    def curve(self, score: Score, axis: Axis) -> list[Point]:
        """Return a score's curve: the single run's, or the mean over the seeds."""
        curves = [curve for run in self.runs if (curve := run_curve(run, score, axis))]
        return mean_curve(curves, score, axis) if len(self.runs) > 1 else [point for curve in curves for point in curve]

    def rename(self, name: str) -> "Arm":
        """Return the arm by another name, with task and seeds where its own has them."""
        runs = [
            replace(run, parts={METHOD: name, **{key: run.parts[key] for key in (TASK, SEED) if key in run.parts}})
            for run in self.runs
        ]
        return Arm(runs)

    def restrict_to(self, stratum: str) -> "Arm":
        """Return the arm on the problems of one stratum, with the primary score alone."""
        return replace(self, runs=[run.restrict_to(stratum) for run in self.runs])

    def two_way_interval(self, score: Score) -> tuple[float, float] | None:
        """Return the 95 % interval of the final score's mean for other seeds and problems.

        None with a single seed, where all values are equal, and where it would be the whole range.
        """
        found = self._crossed_mean(score)
        return None if found is None else clip_interval(found.interval(), score.low, score.high)

    def seed_share(self, score: Score) -> float | None:
        """Return the share of the seeds in the variance of that interval, in [0, 1]; None without it."""
        return None if (found := self._crossed_mean(score)) is None else found.seed_weight

    def _crossed_mean(self, score: Score) -> CrossedMean | None:
        seeds = [values for run in self.runs if (values := run.values(score))]
        return crossed_mean(tabulate(seeds)) if len(seeds) > 1 else None


def group_into_arms(runs: Sequence[Run]) -> list[Arm]:
    """Group runs that differ in nothing but the seed, and in what the seed decides; by task, the best first."""
    groups: dict[tuple[bytes, int | None], list[Run]] = defaultdict(list)
    for index, run in enumerate(runs):
        # an unfinished run covers other problems than its siblings
        groups[run.arm_key, None if run.outcome.finished else index].append(run)
    arms = []
    for members in groups.values():
        members.sort(key=lambda run: run.manifest.seed)
        # a run and its copy are not two samples
        draws = {run.manifest.seed: run for run in reversed(members)}
        copies = [run for run in members if run is not draws[run.manifest.seed]]
        arms += [Arm([draws[seed] for seed in sorted(draws)]), *(Arm([run]) for run in copies)]
    named = Counter((arm.task, arm.parts[PAPER]) for arm in arms if PAPER in arm.parts)
    arms = [replace(arm, known_by_paper=named[arm.task, arm.parts.get(PAPER, "")] == 1) for arm in arms]
    tasks = list(dict.fromkeys(run.manifest.task for run in runs))
    return sorted(sorted(arms, key=lambda arm: arm.rank, reverse=True), key=lambda arm: tasks.index(arm.task))


def run_curve(run: Run, score: Score, axis: Axis) -> list[Point]:
    """Return a score during a run."""
    points = run.curves.get(score.name, ())
    return [
        Point(point.step, axis.locate(point, run.problems_per_cost), point.value, point.ci95)
        for point in points
        if point.value is not None
    ]


def mean_curve(curves: Sequence[Sequence[Point]], score: Score, axis: Axis) -> list[Point]:
    """Return the mean curve, step by step from where all curves have begun: of places on the axis as of scores.

    It has no point at each cost of any curve, since between its own points a curve has no score. A curve that has ended
    counts with its last point, as an ended problem does in `metric_series`. The interval is that of
    `average_over_seeds`, and of no width where as many seeds agree.
    """
    if not curves:
        return []
    steps = [[point.step for point in curve] for curve in curves]
    begun = max(numbers[0] for numbers in steps)
    points = []
    for step in sorted({step for numbers in steps for step in numbers if step >= begun}):
        states = [curve[bisect_right(own, step) - 1] for curve, own in zip(curves, steps, strict=True)]
        mean = average_over_seeds([Metric(state.value, None, 1) for state in states], score)
        agreed = len(states) >= MIN_SEEDS and len({state.value for state in states}) == 1
        ci95 = (states[0].value, states[0].value) if agreed else mean.ci95
        x = step if axis.name == "step" else fmean(state.x for state in states)
        points.append(Point(step, x, fmean(state.value for state in states), ci95))
    return points


def shared_mean_curve(curves: Sequence[Sequence[Point]], score: Score, axis: Axis) -> list[Point]:
    """Return the mean curve at the steps that all curves have; empty without any.

    For figures of training and of rubrics: a run that has made no third rubric says nothing about one.
    """
    shared = set[int].intersection(*({point.step for point in curve} for curve in curves)) if curves else set()
    return (
        mean_curve([[point for point in curve if point.step in shared] for curve in curves], score, axis)
        if shared
        else []
    )


def average_over_seeds(figures: Iterable[Metric], score: Score) -> Metric:
    """Return the mean of seeds' figures and its 95 % t interval over the seeds, cut at the score's range.

    The interval is None below `MIN_SEEDS` seeds, where all of them agree, and where it would be the whole range; `n` is
    the trials of all seeds together.
    """
    known = [figure for figure in figures if figure.value is not None]
    if not known:
        return Metric(None, None, 0)
    values = [figure.value for figure in known if figure.value is not None]
    trials = sum(figure.n for figure in known)
    ci95 = t_interval(values) if len(values) >= MIN_SEEDS else None
    return Metric(fmean(values), clip_interval(ci95, score.low, score.high), trials)
