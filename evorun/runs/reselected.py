"""Choices of selectors among recorded candidates, and their figures over problems."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from evorun.runs.candidates import CandidateId
from evorun.runs.results import mean_score
from evorun.runs.schema import Metric
from evorun.runs.scores import Score, mean_of_samples
from evorun.runs.statistics import MIN_PROBLEMS, Proportion, mean_interval
from evorun.runs.studies import RejudgedFigure

SELECTIONS = "selections.jsonl"
"""In the folder of a reselection."""
OWN = "the run"
"""Stands for the choice that the run itself made."""


class Selected(msgspec.Struct, frozen=True, kw_only=True):
    """A line of selections.jsonl: a selector's choice among the candidates of a problem."""

    problem: str
    selector: str
    candidate: CandidateId | None
    """None for an empty pool, and where chance chooses."""
    score: float | None
    """The primary score of the choice, as the run has graded it, or its expectation where chance chooses."""
    calls: int
    """Calls that the choice took beyond those of the run."""


def summarise(runs: Iterable[Sequence[Selected]], score: Score) -> list[RejudgedFigure]:
    """Return a row per selector: the mean score, and the difference from the run's own choice, paired by problem.

    runs: the choices of each run. A problem that several of them share counts once, with the means over them.
    Intervals are over problems.
    """
    pairs: dict[str, list[tuple[Selected, Selected]]] = defaultdict(list)
    for records in runs:
        own = {record.problem: record for record in records if record.selector == OWN}
        for record in records:
            pairs[record.selector].append((record, own[record.problem]))
    return [_describe(name, found, score) for name, found in pairs.items()]


def _describe(name: str, pairs: Sequence[tuple[Selected, Selected]], score: Score) -> RejudgedFigure:
    """Return the row of a selector, given its choices, each with that of the run."""
    named = [(now.candidate, then.candidate) for now, then in pairs if now.candidate is not None]
    same = Proportion(sum(now == then for now, then in named), len(named)).metric()
    difference = average_difference((now.problem, now.score, then.score) for now, then in pairs)
    return RejudgedFigure(
        by="selector",
        group=name,
        n=len(pairs),
        problems=len({now.problem for now, _ in pairs}),
        recorded=measure(score, average_by_problem((then.problem, then.score) for _, then in pairs)),
        now=measure(score, average_by_problem((now.problem, now.score) for now, _ in pairs)),
        difference=None if name == OWN else difference,
        agreement=same if named and name != OWN else None,
        rate=score.rate,
        calls=sum(now.calls for now, _ in pairs) / len(pairs),
    )


def average_by_problem(values: Iterable[tuple[str, float | None]]) -> list[float]:
    """Return the mean of the known values of each problem."""
    known: dict[str, list[float]] = defaultdict(list)
    for problem, value in values:
        if value is not None:
            known[problem].append(value)
    return [sum(found) / len(found) for found in known.values()]


def average_difference(pairs: Iterable[tuple[str, float | None, float | None]]) -> Metric:
    """Return the mean of the first score less the second over problems, of those where both are known.

    pairs: problem, first and second score.
    """
    gains = average_by_problem((p, now - then) for p, now, then in pairs if now is not None and then is not None)
    return Metric(sum(gains) / len(gains) if gains else None, mean_interval(gains), len(gains))


def measure(score: Score, values: Sequence[float]) -> Metric:
    """Return a mean with its interval: Wilson's only where all values are 0 or 1."""
    plain = all(value in (0, 1) for value in values)
    return mean_score(score if plain else mean_of_samples(score), values)


def drop_intervals(figure: RejudgedFigure) -> RejudgedFigure:
    """Return a figure of fewer problems than `MIN_PROBLEMS` without its intervals, any other as it is."""
    if figure.problems is None or figure.problems >= MIN_PROBLEMS:
        return figure
    named = ((name, getattr(figure, name)) for name in ("recorded", "now", "difference", "agreement"))
    bare = {name: Metric(metric.value, None, metric.n) for name, metric in named if metric is not None}
    return msgspec.structs.replace(figure, **bare)
