"""results.json and metrics.jsonl: a run's figures, computed from its record files, never from memory."""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import TypeVar

from msgspec.structs import replace

from evorun.models.base import Wasted
from evorun.runs.aggregates import AGGREGATES, AggregateCounter, DecisiveDuels
from evorun.runs.budget import Usage, sum_usages
from evorun.runs.counting import count_candidates, count_comparisons
from evorun.runs.prices import POLICY, UNKNOWN, Rates, find_rate, oldest_date, price_calls, to_dollars
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
from evorun.runs.search_figures import DuelCounter, SearchPools, search_figures
from evorun.runs.selection import Agreements, Searches, selection_series
from evorun.runs.sequential import SequentialTokens
from evorun.runs.spending import GOLD, TRAINING
from evorun.runs.statistics import RESAMPLES, Proportion, mean_interval

TRAINING_PREFIX = "training/"
"""Prefix of the names of series over training steps."""

TEXT_COUNTS = ("texts", "unparsable_texts", "rejected_requests", "truncated_texts")
"""Step diagnostics that are summed over the run."""
OVERLONG, SHORTENED, UNSURE = RARE_COUNTS = ("overlong_texts", "shortened_texts", "unsure_texts")
"""Counts that results name only where they are not 0: most engines honour `max_tokens`, and most tasks show whole
texts."""

SPENT = ("calls", "prompt_tokens", "completion_tokens", "cached_tokens", "tool_calls")
SAVED = ("saved_calls", "saved_tokens")
"""Step diagnostics of methods that end calls early, summed over the run likewise."""
REPEATS = "duplicates"
"""Step diagnostic of methods that draw repeated answers again, summed likewise."""

RESAMPLES_PER_POINT = 1_999
"""Resamples for a score along the run (ours): its band is plotted, so two figures suffice."""

_Cost = tuple[float, float, float | None, float | None]
"""Calls, tokens, price and sequential tokens, as a `MetricPoint` has them."""

K = TypeVar("K", bound=str)
T = TypeVar("T")


def mean_score(score: Score, values: Iterable[float | None], resamples: int = RESAMPLES) -> Metric:
    """Return the mean of a score over the known values; the interval is Wilson's for a rate, else bootstrap."""
    known = [value for value in values if value is not None]
    if score.rate:
        return Proportion(sum(map(bool, known)), len(known)).metric()
    if not known:
        return Metric(None, None, 0)
    return Metric(sum(known) / len(known), mean_interval(known, resamples=resamples), len(known))


def mean_over_problems(score: Score, values: Iterable[Sequence[float | None]]) -> Metric:
    """Return the mean over problems of a score's mean over each problem's responses; `values` are by problem.

    Every problem has the same weight. The interval is over problems, since responses to one problem are not
    independent.
    """
    known = [[value for value in scored if value is not None] for scored in values]
    if all(len(scored) <= 1 for scored in known):
        return mean_score(score, (value for scored in known for value in scored))
    return mean_score(mean_of_samples(score), [sum(scored) / len(scored) for scored in known if scored])


def recorded_scores(records: Iterable[Graded], declared: Sequence[Score]) -> list[Score]:
    """Return the primary score, then all other recorded scores in the grader's order."""
    # an undeclared score that a grader adds has no bounds
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
    rates: Rates = MappingProxyType({}),
    sequential: SequentialTokens | None = None,
    answered_by: Mapping[str, str] = MappingProxyType({}),
    gpu_waiting: Mapping[int, float] = MappingProxyType({}),
) -> Results:
    """Write metrics.jsonl and results.json of a run directory whose records are complete; return the results.

    declared: the task's scores. wasted: attempts without an answer, by kind. planned_steps: the last step of the
    method's own schedule. gold: the cost of the gold judge. refused: requests that the engine refused, by role. rates:
    prices by call role. sequential: the run's sequential tokens, where a journal holds its calls. answered_by: names of
    models by call role, where there are several. gpu_waiting: share of the run in which each GPU had no work.
    """
    steps, training = read_steps_without_texts(path), read_training(path)
    series = metric_series(steps, declared, rates=rates, sequential=sequential)
    whole = [point for point in series if point.name == declared[0].name]
    measure = primary_score(declared)
    searches, pools, aggregates = Searches(steps, measure), SearchPools(measure), AggregateCounter(measure)
    count_candidates(path, searches, pools, aggregates)
    agreements, duels, decisive = Agreements(searches), DuelCounter(pools), DecisiveDuels()
    count_comparisons(path, agreements, duels, decisive)
    selection = selection_series(path, searches, agreements, whole)
    write_records(path / "metrics.jsonl", [*training_series(training), *series, *selection])
    predictions = read_predictions(path)
    search, search_counts = search_figures(path, steps, predictions, declared, (pools, duels))
    metrics, by_stratum = outcome_metrics(predictions, declared)
    cost = add_training(cost_by_role(steps, seconds_by_role) | _gold_cost(gold), training)
    cost = with_prices(cost, rates)
    counted = (*TEXT_COUNTS, *RARE_COUNTS, *SAVED, REPEATS)
    totals = {name: int(sum(step.extra.get(name, 0) for step in steps)) for name in counted}
    results = Results(
        metrics={**metrics, **search},
        by_stratum=by_stratum,
        cost=cost,
        cost_by_model=sum_by_model(cost, answered_by),
        counts={
            "problems": len(predictions),
            "stopped_by_budget": sum(p.stop == "budget" for p in predictions),
            "without_answer": sum(p.answer is None for p in predictions),
            **{name: sum_usages for name, sum_usages in totals.items() if sum_usages or name in TEXT_COUNTS},
            **search_counts,
        },
        wasted=dict(sorted(wasted.items())),
        planned_steps=planned_steps,
        reached=_reached(predictions, steps),
        refused={**dict(sorted(refused.items())), **({GOLD: gold.refused} if gold and gold.refused else {})},
        price_date=oldest_date(rates),
        gpu_waiting={gpu: round(share, 4) for gpu, share in gpu_waiting.items()},
    )
    write_json(path / AGGREGATES, aggregates.finish(decisive, duels))
    write_json(path / "results.json", results)
    return results


def outcome_metrics(
    predictions: Sequence[PredictionRecord], declared: Sequence[Score]
) -> tuple[dict[str, Metric], dict[str, dict[str, Metric]]]:
    """Return the mean of each score over the predictions that have it, the primary score first, and by stratum."""

    def means(members: Sequence[PredictionRecord]) -> dict[str, Metric]:
        scores = recorded_scores(members, declared)
        return {score.name: mean_score(score, map(score.value_in, members)) for score in scores}

    # scores by stratum too: a task's strata may have different scores
    by_stratum = _group((p.stratum, p) for p in predictions)
    return means(predictions), {stratum: means(members) for stratum, members in sorted(by_stratum.items())}


def _reached(predictions: Sequence[PredictionRecord], steps: Iterable[StepRecord]) -> dict[Stop, Reached]:
    """Return the last steps of problems by what ended them; problems without a step are left out."""
    last = {step.problem: step.step for step in steps}  # later records overwrite
    ended = _group((p.stop, last[p.problem]) for p in predictions if p.problem in last)
    return {
        stop: Reached(len(numbers), min(numbers), sum(numbers) / len(numbers), max(numbers))
        for stop, numbers in sorted(ended.items())
    }


def training_series(records: Iterable[TrainingRecord]) -> Iterator[MetricPoint]:
    """Yield each figure of each training step; `calls` and `tokens` are totals of the run."""
    for record in records:
        for name, value in record.figures.items():
            yield MetricPoint(record.step, f"{TRAINING_PREFIX}{name}", value, None, 1, record.calls, record.tokens)


def metric_series(
    steps: Iterable[StepRecord],
    declared: Sequence[Score],
    *,
    after: int = -1,
    until: float = math.inf,
    rates: Rates = MappingProxyType({}),
    sequential: SequentialTokens | None = None,
) -> list[MetricPoint]:
    """Return each step's means of the primary score (overall, by stratum), of the other scores, and of diagnostics.

    Only the steps in (`after`, `until`] are returned.

    A problem that stopped early counts with its last state in all later steps, so that every point is over the same
    problems. `calls` and `tokens` are means per problem up to that step, over all roles.
    So are the price by `rates`, and `sequential` tokens.
    """
    spending = partial(_mean_cost, rates=rates, sequential=sequential)
    series: list[MetricPoint] = []
    for number, states, resamples in _iterate_states(steps, after, until):
        reached = [record for record in states if record.step == number]
        primary, *others = recorded_scores(states, declared)
        cost = spending(states, number)
        by_stratum = sorted(_group((state.stratum, state) for state in states).items())
        series.append(_point(number, primary.name, primary, states, resamples, cost))
        series += [
            _point(number, f"{primary.name}/{name}", primary, members, resamples, spending(members, number))
            for name, members in by_stratum
        ]
        series += [_point(number, score.name, score, states, resamples, cost) for score in others]
        scored = {primary.name, *(score.name for score in others)}
        # not over all states, which would count an ended problem's last diagnostics again
        series += _diagnostics(number, reached, scored, cost)
    return series


def score_series(steps: Iterable[StepRecord], declared: Sequence[Score], name: str) -> list[MetricPoint]:
    """Return each step's mean of one score over all strata: some points of `metric_series` in a fraction of its time.

    Prices and sequential tokens are left out.
    """
    return [
        _point(number, name, score, states, resamples, _mean_cost(states, number, {}, None))
        for number, states, resamples in _iterate_states(steps)
        for score in recorded_scores(states, declared)
        if score.name == name
    ]


def _iterate_states(
    steps: Iterable[StepRecord], after: int = -1, until: float = math.inf
) -> Iterator[tuple[int, list[StepRecord], int]]:
    """Yield each step in (`after`, `until`] with all problems' states in it and the resamples of its intervals."""
    by_problem: dict[str, list[StepRecord]] = defaultdict(list)
    for step in steps:
        by_problem[step.problem].append(step)
    numbers = sorted({record.step for records in by_problem.values() for record in records})
    for number in numbers:
        if not after < number <= until:
            continue
        # the last point repeats the figure of results.json, with the same interval
        resamples = RESAMPLES if number == numbers[-1] else RESAMPLES_PER_POINT
        # each problem's last record up to this step, or its first one if it has none yet; bisect, since scanning all
        # records at each step would be quadratic in the length of the run
        states = [
            records[max(bisect_right(records, number, key=lambda record: record.step) - 1, 0)]
            for records in by_problem.values()
        ]
        yield number, states, resamples


def _diagnostics(number: int, reached: Sequence[StepRecord], scored: set[str], cost: _Cost) -> Iterator[MetricPoint]:
    """Yield the means of a step's diagnostics, over the problems that took the step."""
    # one series per name: a diagnostic does not hide the task's score of the same name
    for name in sorted({name for state in reached for name in state.extra} - scored):
        values = [state.extra[name] for state in reached if name in state.extra]
        yield MetricPoint(number, name, sum(values) / len(values), None, len(values), *cost)
    # pooled over the problems' duels, like the figure in results.json; a mean of problems' shares would differ
    duels = sum(int(state.extra.get("duels", 0)) for state in reached)
    if duels:
        decisive = sum(state.extra["decisive"] for state in reached if "decisive" in state.extra)
        yield MetricPoint(number, "decisive_rate", decisive / duels, None, duels, *cost)


def _point(number: int, name: str, score: Score, states: list[StepRecord], resamples: int, cost: _Cost) -> MetricPoint:
    values = [
        # without an answer a problem counts as wrong, so that a run's first points are over all problems too
        float(bool(state.correct)) if score.is_correctness and state.best is None else score.value_in(state)
        for state in states
    ]
    figure = mean_score(score, values, resamples)
    return MetricPoint(number, name, figure.value, figure.ci95, figure.n, *cost)


def _mean_cost(states: list[StepRecord], number: int, rates: Rates, sequential: SequentialTokens | None) -> _Cost:
    """Return the mean calls, tokens, price in dollars and sequential tokens up to a step, all roles together."""
    spent = [role for state in states for role in state.cost.values()]
    price = None
    if rates:
        prices = [price_calls(rates, state.cost) for state in states]
        known = [price for price in prices if price is not None]
        price = to_dollars(sum(known)) if len(known) == len(prices) else None
    return (
        sum(s.calls for s in spent) / len(states),
        sum(s.tokens for s in spent) / len(states),
        None if price is None else price / len(states),
        None if sequential is None else fmean(sequential.up_to(state.problem, number) for state in states),
    )


def cost_of_calls(spent: Mapping[str, Usage]) -> dict[str, RoleCost]:
    """Return the cost by role and in total of a run that has not ended, from all calls that it has made.

    The seconds are None, as in `cost_by_role`.
    """
    without_gold = {role: usage for role, usage in sorted(spent.items()) if role != GOLD}
    if not without_gold:
        return {}
    sums = {
        **without_gold,
        "total": sum_usages(without_gold.values()),
        **({GOLD: spent[GOLD]} if GOLD in spent else {}),
    }
    return {role: RoleCost(**usage.counts(), seconds=None) for role, usage in sums.items()}


def cost_by_role(steps: Iterable[StepRecord], seconds_by_role: Mapping[str, float] | None) -> dict[str, RoleCost]:
    """Return the cost by role and in total; a problem's last step carries its whole cost.

    Without `seconds_by_role` (a run that has not ended) the seconds are None.
    """
    last: dict[str, dict[str, Spent]] = {record.problem: record.cost for record in steps}  # later records overwrite
    usages: dict[str, Usage] = defaultdict(Usage)
    for cost in last.values():
        for role, spent in cost.items():
            usage = Usage(**{name: getattr(spent, name) for name in SPENT})
            usages[role].add(usage)
            usages["total"].add(usage)
    # the driver's clock reaches the disk only when the run ends; 0 s would be wrong
    seconds = None if seconds_by_role is None else {**seconds_by_role, "total": sum(seconds_by_role.values())}
    return {
        role: RoleCost(**usages[role].counts(), seconds=None if seconds is None else round(seconds.get(role, 0.0), 3))
        for role in sorted(usages, key=lambda role: (role == "total", role))
    }


def add_training(cost: Mapping[str, RoleCost], records: Iterable[TrainingRecord]) -> dict[str, RoleCost]:
    """Return the cost with that of updates on a server, as `training` before the total; other trainers bill nothing."""
    sums = {"trained_tokens": 0, "scored_tokens": 0}
    for record in records:
        for name in sums:
            sums[name] += int(record.figures.get(name, 0))
    if not any(sums.values()):
        return dict(cost)
    spent = RoleCost(0, sums["scored_tokens"], 0, seconds=None, trained_tokens=sums["trained_tokens"])
    last = {role: cost[role] for role in ("total", GOLD) if role in cost}
    return {role: own for role, own in cost.items() if role not in last} | {TRAINING: spent} | last


def with_prices(cost: Mapping[str, RoleCost], rates: Rates) -> dict[str, RoleCost]:
    """Return the cost with the price of each role's tokens, and that of the total, which includes training."""
    of_calls = {role: spent for role, spent in cost.items() if role not in ("total", GOLD, TRAINING)}
    prices = {role: price_calls(rates, {role: spent}) for role, spent in cost.items()}
    if "total" in prices:
        prices["total"] = price_calls(rates, of_calls)
    rate = find_rate(rates, TRAINING)
    if TRAINING in cost and rate is not None:
        trained = cost[TRAINING]
        price = rate.of_training(trained.trained_tokens, trained.prompt_tokens) if rate != UNKNOWN else None
        total = prices.get("total")
        prices |= {TRAINING: price, "total": None if price is None or total is None else total + price}
    return {role: replace(spent, price=to_dollars(prices[role])) for role, spent in cost.items()}


def sum_by_model(cost: Mapping[str, RoleCost], answered_by: Mapping[str, str]) -> dict[str, RoleCost]:
    """Return the cost by model in the order of `answered_by`, without the gold judge; empty where that is empty."""
    by_model: dict[str, list[RoleCost]] = {name: [] for role, name in answered_by.items() if role != GOLD}
    for role, spent in cost.items():
        if by_model and role not in ("total", GOLD):
            by_model[answered_by.get(role, answered_by[POLICY])].append(spent)
    return {
        name: RoleCost(
            **{key: sum(getattr(role_cost, key) for role_cost in costs) for key in SPENT},
            seconds=_sum_known([role_cost.seconds for role_cost in costs]),
            price=_sum_known([role_cost.price for role_cost in costs]) if costs else None,
        )
        for name, costs in by_model.items()
    }


def _sum_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _gold_cost(spent: Usage | None) -> dict[str, RoleCost]:
    """Return the cost of grading, which the total leaves out: grading is no part of the method."""
    return {} if spent is None else {GOLD: RoleCost(**spent.counts(), seconds=round(spent.seconds, 3))}


def _group(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups
