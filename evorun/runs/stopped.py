"""Ends that a rule of stopping would have given to recorded searches, and their figures over problems."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import inf

import msgspec
import numpy as np

from evorun.runs.candidates import CandidateId
from evorun.runs.reselected import average_by_problem, average_difference, measure
from evorun.runs.schema import Metric, StepRecord
from evorun.runs.scores import Score
from evorun.runs.statistics import MIN_PROBLEMS

STOPS = "stops.jsonl"
"""In the folder of a reselection."""


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """A line of stops.jsonl: a recorded search, ended by a probability that its answer is the best of the pool."""

    problem: str
    stop_probability: float | None
    """None: no stop, the recorded search."""
    ended: bool
    """False where the probability was never reached."""
    step: int
    """The last step."""
    candidate: CandidateId | None
    """The answer after that step; None without a candidate that parses."""
    calls: int
    recorded_calls: int
    score: float | None
    """The primary score of the answer."""
    recorded_score: float | None
    """That of the recorded search's answer."""
    even_score: float | None = None
    """The score after as many calls as the run's problems take on average with the stop; between two steps,
    interpolated."""


class Course(msgspec.Struct, frozen=True):
    """A recorded search of one problem."""

    steps: Sequence[StepRecord]
    """In order; at least one."""
    best_probabilities: Sequence[float]
    """After each step; 0 before the first duel."""
    calls: int
    """All calls: those after the last step included."""

    def end(self, stop_probability: float | None, score: Score) -> Stopped:
        """Return the search as it ends at the first step with such a probability; `even_score` is not known yet."""
        limit = inf if stop_probability is None else stop_probability
        place = next((place for place, known in enumerate(self.best_probabilities) if known >= limit), None)
        last = self.steps[-1 if place is None else place]
        return Stopped(
            problem=last.problem,
            stop_probability=stop_probability,
            ended=place is not None,
            step=last.step,
            candidate=last.best.id if last.best else None,
            calls=self.calls if place is None else count_calls(last),
            recorded_calls=self.calls,
            score=_get_score(last, score),
            recorded_score=_get_score(self.steps[-1], score),
        )

    def score_after(self, calls: float, score: Score) -> float | None:
        """Return the score after so many calls, interpolated between two steps; None where any score is unknown."""
        values = [value for step in self.steps if (value := _get_score(step, score)) is not None]
        if len(values) < len(self.steps):
            return None
        return float(np.interp(calls, [count_calls(step) for step in self.steps], values))


def _get_score(step: StepRecord, score: Score) -> float | None:
    return 0.0 if score.is_correctness and step.best is None else score.value_in(step)


def count_calls(step: StepRecord) -> int:
    """Return the calls of a problem up to a step."""
    return sum(spent.calls for spent in step.cost.values())


def end_all(courses: Sequence[Course], stop_probability: float | None, score: Score) -> list[Stopped]:
    """Return all searches of a run, ended by the rule; see `Course.end`."""
    stopped = [course.end(stop_probability, score) for course in courses]
    mean_calls = sum(stop.calls for stop in stopped) / len(stopped)
    return [
        msgspec.structs.replace(stop, even_score=course.score_after(mean_calls, score))
        for stop, course in zip(stopped, courses, strict=True)
    ]


class StopFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table of stops: a threshold, over the problems of one or several runs."""

    stop_probability: float | None
    """None: no stop."""
    n: int
    """Searches."""
    ended: int
    """Those that ended early."""
    ended_score: Metric
    """Mean score of those that ended early."""
    calls: float
    """Mean calls of a search."""
    saved: float | None
    """Share of the recorded calls; None where none were made."""
    score: Metric
    difference: Metric
    """From the recorded answers."""
    even_difference: Metric
    """From the answers of all searches after the same mean number of calls."""


def summarise_stops(stops: Iterable[Stopped], score: Score) -> list[StopFigures]:
    """Return a row per threshold, in their order.

    In scores, a problem of several runs counts once, with its mean. Intervals are over problems, and there is none for
    fewer than `MIN_PROBLEMS`.
    """
    by_threshold: dict[float | None, list[Stopped]] = defaultdict(list)
    for stop in stops:
        by_threshold[stop.stop_probability].append(stop)
    return [_describe(threshold, group, score) for threshold, group in by_threshold.items()]


def _describe(threshold: float | None, stops: Sequence[Stopped], score: Score) -> StopFigures:
    ended = [stop for stop in stops if stop.ended]
    calls, recorded = sum(stop.calls for stop in stops), sum(stop.recorded_calls for stop in stops)

    def average(members: Sequence[Stopped]) -> Metric:
        return _drop_interval(measure(score, average_by_problem((stop.problem, stop.score) for stop in members)))

    return StopFigures(
        stop_probability=threshold,
        n=len(stops),
        ended=len(ended),
        ended_score=average(ended),
        calls=calls / len(stops),
        saved=1 - calls / recorded if recorded else None,
        score=average(stops),
        difference=_drop_interval(average_difference((s.problem, s.score, s.recorded_score) for s in stops)),
        even_difference=_drop_interval(average_difference((s.problem, s.score, s.even_score) for s in stops)),
    )


def _drop_interval(metric: Metric) -> Metric:
    return metric if metric.n >= MIN_PROBLEMS else Metric(metric.value, None, metric.n)
