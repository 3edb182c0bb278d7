"""The tables of a comparison: as the page and a terminal show them, and figures for other programs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean

from evorun.reports import text
from evorun.reports.comparison.comparison import Comparison, shared_facts
from evorun.reports.comparison.names import shared
from evorun.reports.comparison.notes import primary_words
from evorun.reports.comparison.paired import Interval, PairedScores
from evorun.reports.comparison.pairs import Pair
from evorun.reports.comparison.rows import Row
from evorun.reports.comparison.runs import ANSWERED
from evorun.reports.run_tables import score_cells
from evorun.reports.tables import Cell, Table, data_table, figure_columns, word_columns
from evorun.runs.reading import read_training
from evorun.runs.schema import Metric
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


def main_table(
    comparison: Comparison,
    rows: Sequence[Row],
    strata: Sequence[str],
    scores: Sequence[Score],
    title: str = "",
    *,
    with_cost: bool = True,
) -> Table:
    """Return the primary score, other scores and cost, a line for each arm or run.

    What all of them share or have in their names has no column, except for the information regime.
    """
    # the regime has its column even so: figures with and without labels must never be compared unawares
    told = [*shared_facts(rows), *shared([dict.fromkeys(row.parts, "") for row in rows])] if rows else []
    facts = [name for row in rows[:1] for name in row.facts if name not in told]
    columns = [*word_columns("run", *facts), *figure_columns("n")]
    over_both = {primary.name for primary in comparison.primaries if any(primary.name in row.over_both for row in rows)}
    for primary in comparison.primaries:
        columns += figure_columns(text.label(primary), "95 % interval")
        columns += figure_columns(_OVER_BOTH) if primary.name in over_both else []
    columns += word_columns("information")
    columns += figure_columns(*strata, *(score.name.replace("_", "\n") for score in scores))
    if with_cost:
        columns += figure_columns("calls per\nproblem", "tokens per\nproblem")
    if comparison.has_reported:
        columns += figure_columns("reported", "difference")
    table = Table(columns, title=title)
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
        table.rows.append(cells)
    return table


def search_table(rows: Sequence[Row], step: str = "generation") -> Table:
    """Return the step that was reached, and shares that tell a search that failed from a choice that did.

    step: the word for the rows' steps.
    """
    found = [name for name in _SEARCH if any(row.figure(name).value is not None for row in rows)]
    evolved = any(row.generation > 0 for row in rows)
    columns = [*([f"{step}\nreached"] if evolved else []), *(_SEARCH[name] for name in found)]
    table = Table([*word_columns("run"), *figure_columns(*columns)], title="search and judge")
    for row in rows if columns else []:
        short = row.planned is not None and 0 < row.generation < row.planned
        of_planned = f" of {text.count(row.planned)}" if short else ""
        whole = row.generation == int(row.generation)
        mean = (text.count if whole else text.number)(row.generation or None)
        reached = [f"{mean}{of_planned}"] if evolved else []
        table.rows.append([row.name, *reached, *(text.percent(row.figure(name).value) for name in found)])
    return table


def scores_table(rows: Sequence[Row]) -> Table:
    """Return the means of the other scores with their intervals, beside the reported ones where there are any."""
    with_reported = any(row.reported_figure(score.name) is not None for row in rows for score in row.scores[1:])
    over_both = [_OVER_BOTH] if any(score.name in row.over_both for row in rows for score in row.scores[1:]) else []
    reported_columns = ["reported", "difference"] if with_reported else []
    columns = figure_columns("mean", "95 % interval", *over_both, "n", *reported_columns)
    table = Table([*word_columns("run", "score"), *columns], title="scores")
    for row in rows:
        name = row.name
        for score in row.scores[1:]:
            metric, reported = row.figure(score.name), row.reported_figure(score.name)
            above = text.difference(score, row.above(metric.value, reported))
            beside = [text.value(score, reported), above] if with_reported else []
            mean, interval, _ = score_cells(score, metric)
            both = [text.value_interval(score, row.over_both.get(score.name))] if over_both else []
            trials = row.trials.get(score.name, text.MISSING)
            table.rows.append([name, text.label(score), mean, interval, *both, trials, *beside])
            name = ""
    return table


def strata_table(comparison: Comparison, rows: Sequence[Row], *, with_intervals: bool) -> Table:
    """Return the primary score by stratum, a line for each arm or run."""
    strata = comparison.strata
    title = f"{primary_words(comparison)} by stratum"
    table = Table([*word_columns("run"), *figure_columns(*strata)], title=title)
    for row in rows:
        shown = [score_cells(row.primary, row.by_stratum.get(stratum)) for stratum in strata]
        with_interval = [with_intervals and interval != text.MISSING for _, interval, _ in shown]
        joined = [
            f"{mean} [{interval}]" if both else mean
            for both, (mean, interval, _) in zip(with_interval, shown, strict=True)
        ]
        table.rows.append([row.name, *joined])
    return table


def reported_strata_table(comparison: Comparison) -> Table:
    """Return measured beside reported figures, for the strata that a paper reports."""
    columns = figure_columns(primary_words(comparison), "reported", "difference")
    table = Table([*word_columns("run", "stratum"), *columns], title="reported by stratum")
    for row in comparison.rows:
        name = row.name
        for stratum, metric in row.by_stratum.items():
            reported = row.reported_of_stratum(stratum)
            if reported is not None:
                figures = [text.value(row.primary, metric.value), text.value(row.primary, reported)]
                above = text.difference(row.primary, row.above(metric.value, reported))
                table.rows.append([name, stratum, *figures, above])
                name = ""  # a run is named in the first of its lines only
    return table


def reported_steps_table(comparison: Comparison) -> Table:
    """Return training figures beside those that a paper reports of the same steps."""
    columns = figure_columns("step", "measured", "reported")
    table = Table([*word_columns("run", "figure"), *columns], title="reported by training step")
    for run in comparison.runs:
        name = run.name
        for figure, points in run.reported.steps.items() if run.reported else ():
            measured = {one.step: one.figures.get(figure) for one in read_training(run.outcome.run_dir)}
            for step, value in points:
                cells = [text.count(step), text.precise(measured.get(step)), text.precise(value)]
                table.rows.append([name, text.words(figure), *cells])
                name = ""
    return table


def pairs_table(pairs: Sequence[Pair], title: str = "") -> Table:
    """Return each arm or run beside the reference of its group, group after group."""
    lead = _lead(pairs)
    gains = ["gained", "lost"] if any(pair.primary.rate for pair in pairs) else ["better", "worse"]
    tests = ["p", "p (Holm)"] if any(pair.p is not None for pair in pairs) else []
    intervals = _intervals([pair.compared for pair in pairs])
    columns = [*word_columns(*lead, "run"), *figure_columns("n", "difference", *intervals, *gains, *tests)]
    # a column of dashes says nothing: those of p and of remarks appear with their first entry
    with_remarks = any(pair.remark for pair in pairs)
    table = Table([*columns, *(word_columns("remark") if with_remarks else [])], title=title)
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
        table.rows.append([*reference, pair.name, *figures, *p_values, *remark])
    return table


def score_pairs_table(pairs: Sequence[Pair]) -> Table:
    """Return the scores of each arm or run beside those of the reference of its group."""
    lead = _lead(pairs)
    intervals = _intervals([compared for pair in pairs for compared in pair.others.values()])
    columns = figure_columns("n", "difference", *intervals, "higher", "lower")
    table = Table([*word_columns(*lead, "run", "score"), *columns], title="their scores")
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
            table.rows.append([*reference, name, text.words(score.name), trials, difference, *ends, *counts])
            name = ""
    return table


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


def run_cost_table(comparison: Comparison) -> Table:
    """Return the calls, tokens, model time and wall-clock time of whole runs, over several seeds the mean of a run."""
    table = Table(
        [
            *word_columns("run"),
            *figure_columns("calls", format=text.count),
            *figure_columns("tokens", format=text.compact),
            *figure_columns("model time", "wall-clock time", format=text.duration),
        ]
    )
    for arm in comparison.arms:
        totals = [run.outcome.cost[_TOTAL] for run in arm.runs if _TOTAL in run.outcome.cost]
        columns: list[list[float | None]] = [
            [total.calls for total in totals],
            [total.tokens for total in totals],
            [total.seconds for total in totals],
            [run.manifest.seconds for run in arm.runs],
        ]
        means = [fmean(known) if (known := [v for v in one if v is not None]) else None for one in columns]
        table.rows.append([arm.name, *means])
    return table


def cost_table(comparison: Comparison) -> Table:
    """Return the mean cost per problem by run and role."""
    table = Table(
        [
            *word_columns("run"),
            *word_columns("role", format=text.role_words),
            *figure_columns("calls", format=text.number),
            *figure_columns("prompt tokens", "completion tokens", format=text.count),
        ],
        title="cost per problem, by role",
    )
    for row in comparison.rows:
        # with one role the total would repeat it
        roles = [role for role in row.cost if role != _TOTAL or len(row.cost.keys() - {GOLD}) > 2]
        for index, role in enumerate(roles):
            cost = row.cost[role]
            figures = [cost.calls, cost.prompt_tokens, cost.completion_tokens]
            table.rows.append([row.name if index == 0 else "", role, *figures])
    return table


def data_tables(comparison: Comparison) -> list[Table]:
    """Return the figures of arms (means over seeds) and of single runs, those by stratum, and the pairs."""
    tables = [_figures("arms", comparison.rows), _strata(comparison.rows), _pairs(comparison)]
    return [*tables[:1], _figures("runs", comparison.run_rows), *tables[1:]] if comparison.has_seeds else tables


def _figures(name: str, rows: Sequence[Row]) -> Table:
    """Return a line for each row, with three columns for each figure that any of them has."""
    facts = list(rows[0].facts)
    figures = list(dict.fromkeys(figure for row in rows for figure in row.metrics))
    columns = ["run", *facts, "floor", "information", "n", "generation", "calls_per_problem", "tokens_per_problem"]
    columns += [column for figure in figures for column in (figure, f"{figure}_low", f"{figure}_high")]
    both = list(dict.fromkeys(score for row in rows for score in row.over_both))
    columns += [f"{score}_{end}_over_seeds_and_problems" for score in both for end in ("low", "high")]
    columns += [f"{figure}_reported" for figure in figures if _reported(rows, figure)]
    table: list[list[Cell]] = []
    for row in rows:
        total = row.cost.get("total")
        cells: list[Cell] = [row.name, *row.facts.values(), "yes" if row.floor else "no", row.regime, row.n]
        cells += [row.generation, total.calls if total else None, total.tokens if total else None]
        cells += [cell for figure in figures for cell in _with_interval(row.figure(figure))]
        cells += [end for score in both for end in row.over_both.get(score, (None, None))]
        cells += [row.reported_figure(figure) for figure in figures if _reported(rows, figure)]
        table.append(cells)
    return data_table(name, columns, table)


def _reported(rows: Sequence[Row], figure: str) -> bool:
    return any(row.reported_figure(figure) is not None for row in rows)


def _with_interval(metric: Metric) -> tuple[Cell, Cell, Cell]:
    low, high = metric.ci95 or (None, None)
    return metric.value, low, high


def _strata(rows: Sequence[Row]) -> Table:
    columns = ["run", "stratum", "score", "mean", "low", "high", "n", "seeds", "reported"]
    return data_table(
        "strata",
        columns,
        [
            [row.name, stratum, row.primary.name, *_with_interval(metric), metric.n, row.seeds, reported]
            for row in rows
            for stratum, metric in row.by_stratum.items()
            for reported in (row.reported_of_stratum(stratum),)
        ],
    )


def _pairs(comparison: Comparison) -> Table:
    columns = [
        "run",
        "reference",
        "score",
        "n",
        "difference",
        "low",
        "high",
        "higher",
        "lower",
        "p",
        "p_holm",
        "remark",
    ]
    over = [f"{end}_over_{what}" for what in ("seeds", "seeds_and_problems") for end in ("low", "high")]
    return data_table("pairs", [*columns, "seeds", *over], list(_pair_rows(comparison)))


def _pair_rows(comparison: Comparison) -> Iterator[list[Cell]]:
    for pair in comparison.pairs.shown:
        for score, compared in ((pair.primary, pair.compared), *pair.others.items()):
            tests = [pair.p, pair.p_holm] if score is pair.primary else [None, None]
            low, high = compared.ci95 or (None, None)
            cells: list[Cell] = [pair.name, pair.reference, score.name, compared.n, compared.difference, low, high]
            over = [end for ends in (compared.over_seeds, compared.over_both) for end in ends or (None, None)]
            seeds = len(compared.sizes) or 1
            yield [*cells, compared.higher, compared.lower, *tests, pair.remark, seeds, *over]
