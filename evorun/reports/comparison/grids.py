"""The tables of a comparison, cell by cell: the same on the page and in a terminal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from evorun.reports import text
from evorun.reports.comparison.comparison import Comparison, shared_facts
from evorun.reports.comparison.names import shared
from evorun.reports.comparison.notes import primary_words
from evorun.reports.comparison.paired import Interval, PairedScores
from evorun.reports.comparison.pairs import Pair
from evorun.reports.comparison.rows import Row
from evorun.reports.comparison.runs import ANSWERED
from evorun.reports.scores import score_cells
from evorun.runs.reading import read_training
from evorun.runs.scores import Score
from evorun.runs.spending import GOLD

_SEARCH = {
    ANSWERED: "candidates\nanswered",
    "parsable_rate": "texts\nthat parse",
    "pool_coverage": "pool\ncoverage",
    "choice_given_coverage": "choice given\ncoverage",
    "judge_agreement": "judge\nagreement",
    "posterior_auc": "posterior\nAUC",
}
"""Figures of results.json, and the headings of their columns."""

_TOTAL = "total"
_OVER_BOTH = "over seeds\nand problems"


@dataclass(frozen=True)
class Grid:
    """A table of texts."""

    columns: Sequence[str]
    """Headings; a line break is where a narrow one may break."""
    words: frozenset[int]
    """Positions of the columns that hold words; the others hold figures."""
    rows: list[list[str]] = field(default_factory=list)


def main_grid(
    comparison: Comparison,
    rows: Sequence[Row],
    strata: Sequence[str],
    scores: Sequence[Score],
    *,
    with_cost: bool = True,
) -> Grid:
    """Return the primary score, other scores and cost, a line for each arm or run.

    What all of them share or have in their names has no column, except for the information regime.
    """
    # the regime has its column even so: figures with and without labels must never be compared unawares
    told = [*shared_facts(rows), *shared([dict.fromkeys(row.parts, "") for row in rows])] if rows else []
    facts = [name for row in rows[:1] for name in row.facts if name not in told]
    columns = ["run", *facts, "n"]
    over_both = {primary.name for primary in comparison.primaries if any(primary.name in row.over_both for row in rows)}
    for primary in comparison.primaries:
        columns += [text.label(primary), "95 % interval", *([_OVER_BOTH] if primary.name in over_both else [])]
    information = len(columns)
    columns += ["information", *strata, *(score.name.replace("_", "\n") for score in scores)]
    words = frozenset([*range(len(facts) + 1), information])
    if with_cost:
        columns += ["calls per\nproblem", "tokens per\nproblem"]
    if comparison.has_reported:
        columns += ["reported", "difference"]
    grid = Grid(columns, words)
    for row in rows:
        cells = [row.name, *(row.facts[name] or text.MISSING for name in facts), row.n]
        for primary in comparison.primaries:
            metric = row.figure(primary.name)
            cells += [text.value(primary, metric.value), text.value_interval(primary, metric.ci95)]
            both = row.over_both.get(primary.name)
            cells += [text.value_interval(primary, both)] if primary.name in over_both else []
        by_stratum = [row.by_stratum.get(stratum) for stratum in strata]
        cells += [row.regime]
        cells += [text.value(row.primary, metric.value if metric else None) for metric in by_stratum]
        cells += [text.value(score, row.figure(score.name).value) for score in scores]
        if with_cost:
            total = row.cost.get(_TOTAL)
            cells += [text.number(total.calls), text.compact(total.tokens)] if total else [text.MISSING] * 2
        if comparison.has_reported:
            reported = row.reported_figure(row.primary.name)
            cells += [text.value(row.primary, reported), text.difference(row.primary, row.above_reported)]
        grid.rows.append(cells)
    return grid


def search_grid(rows: Sequence[Row], step: str = "generation") -> Grid:
    """Return the step that was reached, and shares that tell a search that failed from a choice that did.

    step: the word for the rows' steps.
    """
    found = [name for name in _SEARCH if any(row.figure(name).value is not None for row in rows)]
    evolved = any(row.generation > 0 for row in rows)
    columns = [*([f"{step}\nreached"] if evolved else []), *(_SEARCH[name] for name in found)]
    grid = Grid(["run", *columns], frozenset({0}))
    for row in rows if columns else []:
        short = row.planned is not None and 0 < row.generation < row.planned
        of_planned = f" of {text.count(row.planned)}" if short else ""
        whole = row.generation == int(row.generation)
        mean = (text.count if whole else text.number)(row.generation or None)
        reached = [f"{mean}{of_planned}"] if evolved else []
        grid.rows.append([row.name, *reached, *(text.percent(row.figure(name).value) for name in found)])
    return grid


def scores_grid(rows: Sequence[Row]) -> Grid:
    """Return the means of the other scores with their intervals, beside the reported ones where there are any."""
    with_reported = any(row.reported_figure(score.name) is not None for row in rows for score in row.scores[1:])
    over_both = [_OVER_BOTH] if any(score.name in row.over_both for row in rows for score in row.scores[1:]) else []
    columns = ["run", "score", "mean", "95 % interval", *over_both, "n"]
    grid = Grid([*columns, *(["reported", "difference"] if with_reported else [])], frozenset({0, 1}))
    for row in rows:
        name = row.name
        for score in row.scores[1:]:
            metric, reported = row.figure(score.name), row.reported_figure(score.name)
            above = text.difference(score, row.above(metric.value, reported))
            beside = [text.value(score, reported), above] if with_reported else []
            mean, interval, _ = score_cells(score, metric)
            both = [text.value_interval(score, row.over_both.get(score.name))] if over_both else []
            trials = row.trials.get(score.name, text.MISSING)
            grid.rows.append([name, text.label(score), mean, interval, *both, trials, *beside])
            name = ""
    return grid


def strata_grid(comparison: Comparison, rows: Sequence[Row], *, with_intervals: bool) -> Grid:
    """Return the primary score by stratum, a line for each arm or run."""
    strata = comparison.strata
    grid = Grid(["run", *strata], frozenset({0}))
    for row in rows:
        shown = [score_cells(row.primary, row.by_stratum.get(stratum)) for stratum in strata]
        with_interval = [with_intervals and interval != text.MISSING for _, interval, _ in shown]
        joined = [
            f"{mean} [{interval}]" if both else mean
            for both, (mean, interval, _) in zip(with_interval, shown, strict=True)
        ]
        grid.rows.append([row.name, *joined])
    return grid


def reported_strata_grid(comparison: Comparison) -> Grid:
    """Return measured beside reported figures, for the strata that a paper reports."""
    grid = Grid(["run", "stratum", primary_words(comparison), "reported", "difference"], frozenset({0, 1}))
    for row in comparison.rows:
        name = row.name
        for stratum, metric in row.by_stratum.items():
            reported = row.reported_of_stratum(stratum)
            if reported is not None:
                figures = [text.value(row.primary, metric.value), text.value(row.primary, reported)]
                above = text.difference(row.primary, row.above(metric.value, reported))
                grid.rows.append([name, stratum, *figures, above])
                name = ""  # a run is named in the first of its lines only
    return grid


def reported_steps_grid(comparison: Comparison) -> Grid:
    """Return training figures beside those that a paper reports of the same steps."""
    grid = Grid(["run", "figure", "step", "measured", "reported"], frozenset({0, 1}))
    for run in comparison.runs:
        name = run.name
        for figure, points in run.reported.steps.items() if run.reported else ():
            measured = {one.step: one.figures.get(figure) for one in read_training(run.outcome.run_dir)}
            for step, value in points:
                cells = [text.count(step), text.precise(measured.get(step)), text.precise(value)]
                grid.rows.append([name, text.words(figure), *cells])
                name = ""
    return grid


def pairs_grid(pairs: Sequence[Pair]) -> Grid:
    """Return each arm or run beside the reference of its group, group after group."""
    lead = _lead(pairs)
    gains = ["gained", "lost"] if any(pair.primary.rate for pair in pairs) else ["better", "worse"]
    tests = ["p", "p (Holm)"] if any(pair.p is not None for pair in pairs) else []
    intervals = _intervals([pair.compared for pair in pairs])
    columns = [*lead, "run", "n", "difference", *intervals, *gains, *tests]
    # a column of dashes says nothing: those of p and of remarks appear with their first entry
    with_remarks = any(pair.remark for pair in pairs)
    grid = Grid([*columns, *(["remark"] if with_remarks else [])], frozenset({*range(len(lead) + 1), len(columns)}))
    named = ""
    for pair in pairs:
        reference = [pair.reference if pair.reference != named else ""] if lead else []
        named = pair.reference
        remark = [pair.remark] if with_remarks else []
        p_values = [text.MISSING if p is None else text.p_value(p) for p in (pair.p, pair.p_holm)] if tests else []
        compared = pair.compared
        figures = [
            text.trials(compared.sizes or [compared.n]),
            text.difference(pair.primary, compared.difference),
            *(text.difference_interval(pair.primary, interval_of(compared)) for interval_of in intervals.values()),
            text.count(pair.gained),
            text.count(pair.lost),
        ]
        grid.rows.append([*reference, pair.name, *figures, *p_values, *remark])
    return grid


def score_pairs_grid(pairs: Sequence[Pair]) -> Grid:
    """Return the scores of each arm or run beside those of the reference of its group."""
    lead = _lead(pairs)
    intervals = _intervals([compared for pair in pairs for compared in pair.others.values()])
    columns = [*lead, "run", "score", "n", "difference", *intervals, "higher", "lower"]
    grid = Grid(columns, frozenset(range(len(lead) + 2)))
    named = ""
    for pair in pairs:
        name = pair.name
        for score, compared in pair.others.items():
            reference = [pair.reference if pair.reference != named else ""] if lead else []
            named = pair.reference
            trials, difference = (
                text.trials(compared.sizes or [compared.n]),
                text.difference(score, compared.difference),
            )
            ends = [text.difference_interval(score, interval_of(compared)) for interval_of in intervals.values()]
            counts = [text.count(compared.higher), text.count(compared.lower)]
            grid.rows.append([*reference, name, text.words(score.name), trials, difference, *ends, *counts])
            name = ""
    return grid


def _intervals(compared: Sequence[PairedScores]) -> Mapping[str, Callable[[PairedScores], Interval]]:
    """Return the columns of intervals that differences have, the one over seeds first, and where each finds its own."""
    found: dict[str, Callable[[PairedScores], Interval]] = {}
    if any(one.over_seeds for one in compared):
        found["95 % interval\nover seeds"] = lambda one: one.over_seeds
    seeded = any(one.sizes for one in compared)
    found["over\nproblems" if found else "95 % interval\nover problems" if seeded else "95 % interval"] = lambda one: (
        one.ci95
    )
    if any(one.over_both for one in compared):
        found["over\nboth"] = lambda one: one.over_both
    return found


def _lead(pairs: Sequence[Pair]) -> list[str]:
    """Return the column that names the references, where there are several."""
    return ["reference"] if len({pair.reference for pair in pairs}) > 1 else []


def run_cost_grid(comparison: Comparison) -> Grid:
    """Return the calls, tokens, model time and wall-clock time of whole runs, over several seeds the mean of a run."""
    grid = Grid(["run", "calls", "tokens", "model time", "wall-clock time"], frozenset({0}))
    for arm in comparison.arms:
        totals = [run.outcome.cost[_TOTAL] for run in arm.runs if _TOTAL in run.outcome.cost]
        columns: list[list[float | None]] = [
            [total.calls for total in totals],
            [total.tokens for total in totals],
            [total.seconds for total in totals],
            [run.manifest.seconds for run in arm.runs],
        ]
        means = [fmean(known) if (known := [v for v in one if v is not None]) else None for one in columns]
        calls, tokens, model, wall = means
        shown = [text.MISSING if tokens is None else text.compact(tokens), text.duration(model), text.duration(wall)]
        grid.rows.append([arm.name, text.count(calls), *shown])
    return grid


def cost_grid(comparison: Comparison) -> Grid:
    """Return the mean cost per problem by run and role."""
    grid = Grid(["run", "role", "calls", "prompt tokens", "completion tokens"], frozenset({0, 1}))
    for row in comparison.rows:
        # with one role the total would repeat it
        roles = [role for role in row.cost if role != _TOTAL or len(row.cost.keys() - {GOLD}) > 2]
        for index, role in enumerate(roles):
            cost = row.cost[role]
            figures = [text.number(cost.calls), text.count(cost.prompt_tokens), text.count(cost.completion_tokens)]
            grid.rows.append([row.name if index == 0 else "", text.role_words(role), *figures])
    return grid
