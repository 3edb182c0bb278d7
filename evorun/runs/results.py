"""results.json and metrics.jsonl: the figures of a run, from its record files, never from the run's memory."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from evorun.models.base import Wasted
from evorun.runs.aggregates import write_aggregates
from evorun.runs.budget import Usage, total
from evorun.runs.reading import read_predictions, read_steps_without_texts, read_training
from evorun.runs.records import write_json, write_records
from evorun.runs.schema import (
    Metric,
    MetricPoint,
    PredictionRecord,
    Reached,
    Results,
    RoleCost,
    Spent,
    StepRecord,
    Stop,
    TrainingRecord,
)
from evorun.runs.scores import Graded, Score, mean_of_samples, primary_score
from evorun.runs.search_figures import search_figures
from evorun.runs.spending import GOLD
from evorun.runs.statistics import RESAMPLES, Proportion, mean_interval

TRAINING_PREFIX = "training/"
"""Prefix of the names of the series that training steps measure."""

TEXT_COUNTS = ("texts", "unparsable_texts", "rejected_requests", "truncated_texts")
"""Step diagnostics that are summed over the run."""
OVERLONG, SHORTENED = SELDOM_COUNTS = ("overlong_texts", "shortened_texts")
"""Others, named only where there are any: most engines honour `max_tokens`, and most tasks show all of a text."""

RESAMPLES_OF_A_POINT = 1_999
"""Resamples for a score along the run (ours): a band is drawn, its ends are not read off to three figures."""

K = TypeVar("K", bound=str)
T = TypeVar("T")


def mean_score(score: Score, values: Iterable[float | None], resamples: int = RESAMPLES) -> Metric:
    """Return the mean of a score over those that have a value; the interval is Wilson's for a rate, else bootstrap."""
    known = [value for value in values if value is not None]
    if score.rate:
        return Proportion(sum(map(bool, known)), len(known)).metric()
    if not known:
        return Metric(None, None, 0)
    return Metric(sum(known) / len(known), mean_interval(known, resamples=resamples), len(known))


def mean_over_problems(score: Score, values: Iterable[Sequence[float | None]]) -> Metric:
    """Return the mean over problems of a score's mean over their responses; `values` are one problem's each.

    Every problem weighs the same, and the interval is over problems: responses to one problem are not independent.
    """
    known = [[value for value in one if value is not None] for one in values]
    if all(len(one) <= 1 for one in known):
        return mean_score(score, (value for one in known for value in one))
    return mean_score(mean_of_samples(score), [sum(one) / len(one) for one in known if one])


def recorded_scores(records: Iterable[Graded], declared: Sequence[Score]) -> list[Score]:
    """Return the primary score and then all others that are recorded, in the grader's order."""
    # what a grader adds without declaring it is a score without bounds
    known = {score.name: score for score in (*declared, mean_of_samples(declared[0]))}
    names = dict.fromkeys([declared[0].name, *(name for record in records for name in record.scores)])
    return [known.get(name) or Score(name) for name in names]


def write_results(
    path: Path,
    declared: Sequence[Score],
    seconds_by_role: Mapping[str, float],
    wasted: Mapping[str, Wasted] = MappingProxyType({}),
    planned_steps: int | None = None,
    gold: Usage | None = None,
    refused: Mapping[str, int] = MappingProxyType({}),
) -> Results:
    """Write metrics.jsonl and results.json of a run directory whose records are complete; return the results.

    `declared` are the task's scores; `wasted`, attempts that gave no answer, by kind; `planned_steps`, the number of
    the step after which the method ends by itself; `gold`, the cost of the gold judge's opinions; `refused`, requests
    that the engine refused, by role.
    """
    steps = read_steps_without_texts(path)
    write_records(path / "metrics.jsonl", [*training_series(read_training(path)), *metric_series(steps, declared)])
    predictions = read_predictions(path)
    search, search_counts = search_figures(path, steps, predictions, declared)
    metrics, by_stratum = outcome_metrics(predictions, declared)
    totals = {name: int(sum(step.extra.get(name, 0) for step in steps)) for name in (*TEXT_COUNTS, *SELDOM_COUNTS)}
    results = Results(
        metrics={**metrics, **search},
        by_stratum=by_stratum,
        cost=cost_by_role(steps, seconds_by_role) | _cost_of_gold(gold),
        counts={
            "problems": len(predictions),
            "stopped_by_budget": sum(p.stop == "budget" for p in predictions),
            "without_answer": sum(p.answer is None for p in predictions),
            **{name: total for name, total in totals.items() if total or name in TEXT_COUNTS},
            **search_counts,
        },
        wasted=dict(sorted(wasted.items())),
        planned_steps=planned_steps,
        reached=_reached(predictions, steps),
        refused={**dict(sorted(refused.items())), **({GOLD: gold.refused} if gold and gold.refused else {})},
    )
    write_aggregates(path, primary_score(declared))
    write_json(path / "results.json", results)
    return results


def outcome_metrics(
    predictions: Sequence[PredictionRecord], declared: Sequence[Score]
) -> tuple[dict[str, Metric], dict[str, dict[str, Metric]]]:
    """Return the mean of each score over all predictions that have it, the primary one first, and by stratum."""

    def means(members: Sequence[PredictionRecord]) -> dict[str, Metric]:
        scores = recorded_scores(members, declared)
        return {score.name: mean_score(score, map(score.value_in, members)) for score in scores}

    # scores by stratum too: a task's strata may have scores of their own
    by_stratum = _grouped((p.stratum, p) for p in predictions)
    return means(predictions), {stratum: means(members) for stratum, members in sorted(by_stratum.items())}


def _reached(predictions: Sequence[PredictionRecord], steps: Iterable[StepRecord]) -> dict[Stop, Reached]:
    """Return the last steps of the problems by what ended them; one that never took a step is left out."""
    last = {step.problem: step.step for step in steps}  # later records overwrite
    ended = _grouped((p.stop, last[p.problem]) for p in predictions if p.problem in last)
    return {
        stop: Reached(len(numbers), min(numbers), sum(numbers) / len(numbers), max(numbers))
        for stop, numbers in sorted(ended.items())
    }


def training_series(records: Iterable[TrainingRecord]) -> Iterator[MetricPoint]:
    """Yield each figure of each training step; its `calls` and `tokens` are the run's."""
    for record in records:
        for name, value in record.figures.items():
            yield MetricPoint(record.step, f"{TRAINING_PREFIX}{name}", value, None, 1, record.calls, record.tokens)


def metric_series(steps: Iterable[StepRecord], declared: Sequence[Score]) -> list[MetricPoint]:
    """Return the means of the primary score, overall and by stratum, and of the others, and diagnostics, for each step.

    A problem that stopped early counts with its last state in all later steps, so that every point is over the same
    problems. `calls` and `tokens` are means a problem, all roles together, up to that step.
    """
    by_problem: dict[str, list[StepRecord]] = defaultdict(list)
    for step in steps:
        by_problem[step.problem].append(step)
    if not by_problem:
        return []
    series: list[MetricPoint] = []
    numbers = sorted({record.step for records in by_problem.values() for record in records})
    for number in numbers:
        # the last point is the figure that results.json has, and has its interval
        resamples = RESAMPLES if number == numbers[-1] else RESAMPLES_OF_A_POINT
        # each problem's last record up to this step, the first one where it has none yet; bisect, because scanning
        # all records at each step would be quadratic in the length of a run
        states = [
            records[max(bisect_right(records, number, key=lambda record: record.step) - 1, 0)]
            for records in by_problem.values()
        ]
        reached = [record for record in states if record.step == number]
        primary, *others = recorded_scores(states, declared)
        by_stratum = sorted(_grouped((state.stratum, state) for state in states).items())
        series.append(_point(number, primary.name, primary, states, resamples))
        series += [
            _point(number, f"{primary.name}/{name}", primary, members, resamples) for name, members in by_stratum
        ]
        series += [_point(number, score.name, score, states, resamples) for score in others]
        scored = {primary.name, *(score.name for score in others)}
        # not over all states: the last diagnostics of a problem that has ended would be counted again
        series += _diagnostics(number, reached, scored, _mean_cost(states))
    return series


def _diagnostics(
    number: int, reached: Sequence[StepRecord], scored: set[str], cost: tuple[float, float]
) -> Iterator[MetricPoint]:
    """Yield the means of a step's diagnostics, over the problems that took the step."""
    # one series a name: a diagnostic does not hide the task's score of the same name
    for name in sorted({name for state in reached for name in state.extra} - scored):
        values = [state.extra[name] for state in reached if name in state.extra]
        yield MetricPoint(number, name, sum(values) / len(values), None, len(values), *cost)
    # pooled over the problems' duels, like the figure in results.json; a mean of problems' shares would differ
    duels = sum(int(state.extra.get("duels", 0)) for state in reached)
    if duels:
        decisive = sum(state.extra["decisive"] for state in reached if "decisive" in state.extra)
        yield MetricPoint(number, "decisive_rate", decisive / duels, None, duels, *cost)


def _point(number: int, name: str, score: Score, states: list[StepRecord], resamples: int) -> MetricPoint:
    values = [
        # no answer yet is none that is right, so that the first points of a run are over all problems too
        float(bool(state.correct)) if score.is_correctness and state.best is None else score.value_in(state)
        for state in states
    ]
    figure = mean_score(score, values, resamples)
    return MetricPoint(number, name, figure.value, figure.ci95, figure.n, *_mean_cost(states))


def _mean_cost(states: list[StepRecord]) -> tuple[float, float]:
    """Return the mean calls and tokens, all roles together."""
    spent = [role for state in states for role in state.cost.values()]
    return sum(s.calls for s in spent) / len(states), sum(s.tokens for s in spent) / len(states)


def cost_of_calls(spent: Mapping[str, Usage]) -> dict[str, RoleCost]:
    """Return the cost by role of a run that has not ended, and in total, from all the calls that it has made.

    The seconds are None, as in `cost_by_role`.
    """
    own = {role: usage for role, usage in sorted(spent.items()) if role != GOLD}
    if not own:
        return {}
    sums = {**own, "total": total(own.values()), **({GOLD: spent[GOLD]} if GOLD in spent else {})}
    return {role: RoleCost(**usage.counts(), seconds=None) for role, usage in sums.items()}


def cost_by_role(steps: Iterable[StepRecord], seconds_by_role: Mapping[str, float] | None) -> dict[str, RoleCost]:
    """Return the cost by role, and in total; a problem's last step carries its whole cost.

    Without `seconds_by_role` (a run that has not ended) the seconds are None.
    """
    last: dict[str, dict[str, Spent]] = {record.problem: record.cost for record in steps}  # later records overwrite
    usages: dict[str, Usage] = defaultdict(Usage)
    for cost in last.values():
        for role, spent in cost.items():
            usage = Usage(spent.calls, spent.prompt_tokens, spent.completion_tokens)
            usages[role].add(usage)
            usages["total"].add(usage)
    # of a run that has not ended the driver's clock is not on disk, and 0 s would be wrong
    seconds = None if seconds_by_role is None else {**seconds_by_role, "total": sum(seconds_by_role.values())}
    return {
        role: RoleCost(**usages[role].counts(), seconds=None if seconds is None else round(seconds.get(role, 0.0), 3))
        for role in sorted(usages, key=lambda role: (role == "total", role))
    }


def _cost_of_gold(spent: Usage | None) -> dict[str, RoleCost]:
    """Return what grading has cost, which is beside the total: it is no part of what the method does."""
    return {} if spent is None else {GOLD: RoleCost(**spent.counts(), seconds=round(spent.seconds, 3))}


def _grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups
