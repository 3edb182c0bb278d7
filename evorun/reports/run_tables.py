"""The tables of one run: scores and cost, as a page and a terminal show them, and figures for other programs."""

import math
from collections.abc import Collection, Sequence

from evorun.reports import text
from evorun.reports.axes import XAxes
from evorun.reports.figures import describe_figure
from evorun.reports.overview import Curves, Outcome
from evorun.reports.tables import Cell, Column, Table, figure_columns, make_data_table, word_columns
from evorun.reports.training import is_sign
from evorun.runs.prices import POLICY, UNKNOWN, Rates, find_rate
from evorun.runs.schema import Metric, MetricPoint, RoleCost
from evorun.runs.scores import Score

_FLAT = 0.1
"""Share of a score's scale that a flat curve covers at most (ours)."""


def make_primary_table(outcome: Outcome) -> Table:
    """Return the mean of the primary score by stratum, and over all problems."""
    primary, everything = outcome.primary, "all" if outcome.finished else "all so far"
    # a task without strata calls its only one `all`
    strata = {} if list(outcome.by_stratum) == ["all"] else outcome.by_stratum
    means = [(name, metrics.get(primary.name)) for name, metrics in (*strata.items(), (everything, outcome.metrics))]
    return Table(
        [*word_columns("stratum"), *figure_columns(text.label(primary), "95 % interval", "n")],
        [(name, *format_score(primary, mean)) for name, mean in means],
        title=f"{outcome.manifest.method} on {outcome.manifest.task}",
        total=len(strata),
        caption=" ".join(
            filter(
                None,
                (
                    f"These scores are of {outcome.scored_prompt}." if outcome.scored_prompt else "",
                    _explain_missing_intervals([mean for _, mean in means if mean is not None]),
                ),
            )
        ),
    )


def make_scores_table(outcome: Outcome) -> Table:
    """Return the means of all scores but the primary one, by stratum if there are several, and over all problems."""
    # the means of a single stratum are those over all problems
    strata = outcome.by_stratum if len(outcome.by_stratum) > 1 else {}
    everything = "all" if outcome.finished else "all so far"
    repeated = find_repeated_scores([outcome])
    means = [
        (name, score, metrics[score.name])
        for name, metrics in (*strata.items(), (everything, outcome.metrics))
        for score in outcome.other_scores
        if score.name in metrics and score.name not in repeated
    ]
    captions = (describe_repeated_scores([outcome]), _explain_missing_intervals([mean for *_, mean in means]))
    return Table(
        [*word_columns("stratum", "score"), *figure_columns("mean", "95 % interval", "n")],
        [(name, text.label(score), *format_score(score, mean)) for name, score, mean in means],
        title="scores",
        grouped=1,
        caption=" ".join(filter(None, captions)),
    )


def _explain_missing_intervals(means: Sequence[Metric]) -> str:
    """Say why means have no interval; nothing where each has one."""
    missing = any(mean.value is not None and mean.ci95 is None for mean in means)
    return "There is no interval where all problems have the same score." if missing else ""


def find_repeated_scores(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Return the scores that repeat an earlier one on each problem of each run, with the name of that one.

    Scores of two values only (a format, a pass) are no repetition: they may agree by chance.
    """
    found: dict[str, list[float | None]] = {}
    for outcome in outcomes:
        for score in outcome.scores:
            found.setdefault(score.name, []).extend(score.value_in(graded) for graded in outcome.predictions)
    first: dict[tuple[float | None, ...], str] = {}
    return {
        name: before
        for name, values in found.items()
        if len(set(values)) > 2 and (before := first.setdefault(tuple(values), name)) != name
    }


def describe_repeated_scores(outcomes: Sequence[Outcome], reported: Collection[str] = ()) -> str | None:
    """Say which scores are left out because they repeat another one; None where none does.

    reported: names of scores of which a paper has figures; their means are shown beside these.
    """
    left_out: dict[str, list[str]] = {}
    shown = _name_scores(outcomes)
    for name, before in find_repeated_scores(outcomes).items():
        where = "Shown only beside reported figures" if name in reported else "Left out"
        left_out.setdefault(where, []).append(f"{shown[name]} (as {shown[before]})")
    lines = [
        f"{where}, since equal to another score on each problem: {', '.join(names)}."
        for where, names in left_out.items()
    ]
    return " ".join(lines) or None


def _name_scores(outcomes: Sequence[Outcome]) -> dict[str, str]:
    return {score.name: text.name_score(score) for outcome in outcomes for score in outcome.scores}


def find_constant_scores(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Return the scores but the primary one that have the same value on all problems of all runs, with that value."""
    found: dict[str, set[float | None]] = {}
    for outcome in outcomes:
        for score in outcome.scores[1:]:
            found.setdefault(score.name, set()).update(score.value_in(graded) for graded in outcome.predictions)
    values = {name: next(iter(values)) for name, values in found.items() if len(values) == 1}
    return {name: value for name, value in values.items() if value is not None}


def describe_constant_scores(outcomes: Sequence[Outcome], reported: Collection[str] = ()) -> str | None:
    """Say which scores are left out because they are everywhere the same; None where none is.

    reported: names of scores that are not left out, since a paper has figures of them.
    """
    names = _name_scores(outcomes)
    shown = [
        f"{names[name]} ({text.number(value)})"
        for name, value in find_constant_scores(outcomes).items()
        if name not in reported
    ]
    return f"Left out, since the same on all problems of all runs: {', '.join(shown)}." if shown else None


def make_curves_tables(curves: Curves, primary: Score, axes: XAxes) -> list[Table]:
    """Return the points of the primary score's curves by stratum, and those of the other scores, if any."""
    step, *costs = axes.values()

    def make(lead: str, mean: str, lines: Sequence[tuple[str, Score, Sequence[MetricPoint]]]) -> Table:
        figures = figure_columns(step.label, mean, "95 % interval", "n")
        return Table(
            [*word_columns(lead), *figures, *figure_columns(*(axis.label for axis in costs), format=text.number)],
            [
                (
                    name,
                    point.step,
                    *format_score(score, point),
                    *(axis.locate(point, curves.problems) for axis in costs),
                )
                for name, score, points in lines
                for point in points
            ],
        )

    strata = [(name.partition("/")[2] or "All", primary, points) for name, points in curves.series.items()]
    others = [(text.label(score), score, curves.scores[score.name]) for score in curves.others]
    return [make("stratum", text.label(primary), strata), *([make("score", "mean", others)] if others else [])]


def make_training_table(curves: Curves) -> Table:
    """Return the figures of the first and the last training step."""
    figures = [
        (describe_figure(name), points[0].value, points[-1].value)
        for name, points in curves.training.items()
        if not is_sign(name)
    ]
    columns = [*word_columns("figure"), *figure_columns("first step", "last step", format=text.number)]
    return Table(columns, list(figures))


def format_score(score: Score, mean: Metric | MetricPoint | None) -> tuple[str, str, str]:
    """Return a mean of a score, its interval and n."""
    known = mean or Metric(None, None, 0)
    return text.value(score, known.value), text.value_interval(score, known.ci95), text.count(known.n)


def is_flat(score: Score, points: Sequence[MetricPoint]) -> bool:
    """Tell whether a curve shows no change: its intervals overlap, and it covers little of the score's scale."""
    values = [point.value for point in points if point.value is not None]
    if len(values) < 2:
        return False
    scale = max(map(abs, values)) if score.low is None or score.high is None else score.high - score.low
    # at a point without an interval all problems agree
    lows, highs = zip(*(point.ci95 or (-math.inf, math.inf) for point in points), strict=True)
    return max(lows) <= min(highs) and max(values) - min(values) <= _FLAT * scale


def make_cost_table(outcome: Outcome) -> Table:
    """Return the cost of a run by role."""
    took = [] if outcome.manifest.seconds is None else [f"the run took {text.duration(outcome.manifest.seconds)}"]
    if (of_gpus := outcome.gpu_dollars) is not None:
        took.append(f"{text.dollars(of_gpus)} of GPUs at {text.dollars(outcome.gpu_hour)} an hour each")
    if outcome.sequential_tokens is not None:
        took.append(
            f"{text.count(outcome.sequential_tokens)} sequential tokens per problem (of calls at once, the longest)"
        )
    if outcome.price_date is not None:
        took.append(f"prices of {outcome.price_date}")
    cached = any(spent.cached_tokens for spent in outcome.cost.values())
    trained = any(spent.trained_tokens for spent in outcome.cost.values())
    has_tools = any(spent.tool_calls for spent in outcome.cost.values())
    rates, models = outcome.manifest.prices, outcome.manifest.answered_by
    columns = [
        *word_columns("role", format=text.role_words),
        *(word_columns("model") if models else []),
        *figure_columns("calls", *(["tool calls"] if has_tools else []), format=text.count),
        *figure_columns("prompt tokens", *(["of them cached"] if cached else []), format=text.count),
        *figure_columns("completion tokens", *(["trained tokens"] if trained else []), format=text.count),
        *(figure_columns("price", format=text.dollars) if rates else []),
        *figure_columns("model time,\nsummed over calls", format=text.duration),
    ]
    fields = [
        "role",
        *(["model"] if models else []),
        "calls",
        *(["tool_calls"] if has_tools else []),
        "prompt_tokens",
        *(["cached_tokens"] if cached else []),
        "completion_tokens",
        *(["trained_tokens"] if trained else []),
    ]

    def make_row(role: str, spent: RoleCost) -> tuple[Cell, ...]:
        of_prompt: list[Cell] = [spent.prompt_tokens, *([spent.cached_tokens] if cached else [])]
        price: list[Cell] = [_price_cell(rates, role, spent)] if rates else []
        model: list[Cell] = [None if role == "total" else models.get(role, models[POLICY])] if models else []
        of_training: list[Cell] = [spent.trained_tokens or None] if trained else []
        calls: list[Cell] = [spent.calls, *([spent.tool_calls or None] if has_tools else [])]
        return (role, *model, *calls, *of_prompt, spent.completion_tokens, *of_training, *price, spent.seconds)

    return Table(
        columns,
        [make_row(role, spent) for role, spent in outcome.cost.items()],
        title=f"cost ({', '.join(took)})" if took else "cost",
        name="cost",
        fields=(*fields, *(["price"] if rates else []), "seconds"),
        total=list(outcome.cost).index("total") if "total" in outcome.cost else None,
    )


def make_model_table(outcome: Outcome) -> Table:
    """Return the cost of a run by model, grading apart; the names are those of the cost table."""
    priced = bool(outcome.manifest.prices)
    return Table(
        [
            *word_columns("model"),
            *figure_columns("calls", "prompt tokens", "completion tokens", format=text.count),
            *(figure_columns("price", format=text.dollars) if priced else []),
        ],
        [
            (
                name,
                *(spent.calls, spent.prompt_tokens, spent.completion_tokens),
                *([spent.price] if priced else []),
            )
            for name, spent in outcome.cost_by_model.items()
            if spent.calls
        ],
        title="cost by model",
        name="cost_by_model",
    )


def _price_cell(rates: Rates, role: str, spent: RoleCost) -> float | str | None:
    """Return the price of a role; `unknown` where a vendor bills it at a price that is not known."""
    if spent.price is None and (role == "total" or find_rate(rates, role) is not None):
        return UNKNOWN
    return spent.price


def make_wasted_table(outcome: Outcome) -> Table:
    """Return the attempts of model calls that gave no answer: their outcome, their number, and the tokens lost."""
    return Table(
        [
            *word_columns("failed attempts of model calls", format=text.wasted_words),
            *figure_columns("attempts", "tokens, partly estimated", format=text.count),
        ],
        [(kind, lost.attempts, lost.tokens) for kind, lost in outcome.wasted.items()],
    )


# --- figures for other programs ---


def make_data_tables(
    outcome: Outcome, curves: Curves, settings: Sequence[tuple[str, str, str]], axes: XAxes
) -> dict[str, Table]:
    """Return the tables of a run by name; axes: the horizontal axes of its curves."""
    estimate = ("mean", "low", "high", "n")
    step, *costs = (axis.label.replace(" ", "_") for axis in axes.values())
    scores = [
        (stratum, score.name, *_list_estimate(metrics[score.name]))
        for stratum, metrics in (*outcome.by_stratum.items(), ("all", outcome.metrics))
        for score in outcome.scores
        if score.name in metrics
    ]
    scored = {score.name for score in outcome.scores}
    others = [(name, *_list_estimate(metric)) for name, metric in outcome.metrics.items() if name not in scored]
    points: list[Sequence[Cell]] = []
    for name, line in (*curves.series.items(), *curves.scores.items()):
        score_name, _, stratum = name.partition("/")
        for point in line:
            at, *spent = (axis.locate(point, curves.problems) for axis in axes.values())
            points.append((score_name, stratum or "all", at, *_list_estimate(point), *spent))
    training = [
        (name, point.step, point.value, point.calls, point.tokens)
        for name, line in curves.training.items()
        for point in line
    ]
    decides = [Column("setting", str, "code"), *word_columns("value", "decides")]
    tables = [
        make_data_table("scores", ("stratum", "score", *estimate), scores),
        make_data_table("figures", ("figure", *estimate), others),
        make_data_table("curves", ("score", "stratum", step, *estimate, *costs), points),
        make_data_table("training", ("figure", "step", "value", "calls", "tokens"), training),
        make_cost_table(outcome),
        make_model_table(outcome),
        Table(decides, list(settings), name="settings"),
    ]
    return {table.name: table for table in tables}


def list_ends(ci95: tuple[float, float] | None) -> tuple[Cell, Cell]:
    """Return the ends of an interval as cells; both are None without one."""
    return ci95 or (None, None)


def _list_estimate(figure: Metric | MetricPoint) -> tuple[Cell, ...]:
    return (figure.value, *list_ends(figure.ci95), figure.n)
