"""The tables of a comparison, cell by cell: the same on the page and in a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from evorun.reports import text
from evorun.reports.comparison.comparison import Comparison, shared_facts
from evorun.reports.comparison.names import shared
from evorun.reports.comparison.notes import primary_words
from evorun.reports.comparison.pairs import Pair
from evorun.reports.comparison.rows import Row
from evorun.reports.scores import score_cells
from evorun.runs.scores import Score

_SEARCH = {
    "parsable_rate": "candidates\nthat parse",
    "pool_coverage": "pool\ncoverage",
    "choice_given_coverage": "choice given\ncoverage",
    "judge_agreement": "judge\nagreement",
    "posterior_auc": "posterior\nAUC",
}
"""Figures of results.json, and the headings of their columns."""

_TOTAL = "total"


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
    for primary in comparison.primaries:
        columns += [text.label(primary), "95 % interval"]
    information = len(columns)
    columns += ["information", *strata, *(score.name.replace("_", "\n") for score in scores)]
    words = frozenset([*range(len(facts) + 1), information])
    if with_cost:
        columns += ["calls a\nproblem", "tokens a\nproblem"]
    if comparison.has_reported:
        columns += ["reported", "difference"]
    grid = Grid(columns, words)
    for row in rows:
        cells = [row.name, *(row.facts[name] or text.MISSING for name in facts), row.n]
        for primary in comparison.primaries:
            metric = row.figure(primary.name)
            cells += [text.value(primary, metric.value), text.value_interval(primary, metric.ci95)]
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


def search_grid(rows: Sequence[Row]) -> Grid:
    """Return the generation that was reached, and shares that tell a search that failed from a choice that did."""
    found = [name for name in _SEARCH if any(row.figure(name).value is not None for row in rows)]
    evolved = any(row.generation > 0 for row in rows)
    columns = [*(["generation\nreached"] if evolved else []), *(_SEARCH[name] for name in found)]
    grid = Grid(["run", *columns], frozenset({0}))
    for row in rows if columns else []:
        short = row.planned is not None and 0 < row.generation < row.planned
        of_planned = f" of {text.count(row.planned)}" if short else ""
        reached = [f"{text.number(row.generation or None)}{of_planned}"] if evolved else []
        grid.rows.append([row.name, *reached, *(text.percent(row.figure(name).value) for name in found)])
    return grid


def scores_grid(rows: Sequence[Row]) -> Grid:
    """Return the means of the other scores with their intervals, beside the reported ones where there are any."""
    with_reported = any(row.reported_figure(score.name) is not None for row in rows for score in row.scores[1:])
    columns = ["run", "score", "mean", "95 % interval", "n", *(["reported", "difference"] if with_reported else [])]
    grid = Grid(columns, frozenset({0, 1}))
    for row in rows:
        name = row.name
        for score in row.scores[1:]:
            metric, reported = row.figure(score.name), row.reported_figure(score.name)
            above = text.difference(score, row.above(metric.value, reported))
            beside = [text.value(score, reported), above] if with_reported else []
            grid.rows.append([name, text.label(score), *score_cells(score, metric), *beside])
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
            f"{mean} ({interval})" if both else mean
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


def pairs_grid(pairs: Sequence[Pair]) -> Grid:
    """Return each arm or run beside the reference of its group, group after group."""
    lead = _lead(pairs)
    gains = ["gained", "lost"] if any(pair.primary.rate for pair in pairs) else ["better", "worse"]
    tests = ["p", "p (Holm)"] if any(pair.p is not None for pair in pairs) else []
    columns = [*lead, "run", "n", "difference", "95 % interval", *gains, *tests]
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
            text.count(compared.n),
            text.difference(pair.primary, compared.difference),
            text.difference_interval(pair.primary, compared.ci95),
            text.count(pair.gained),
            text.count(pair.lost),
        ]
        grid.rows.append([*reference, pair.name, *figures, *p_values, *remark])
    return grid


def score_pairs_grid(pairs: Sequence[Pair]) -> Grid:
    """Return the scores of each arm or run beside those of the reference of its group."""
    lead = _lead(pairs)
    columns = [*lead, "run", "score", "n", "difference", "95 % interval", "higher", "lower"]
    grid = Grid(columns, frozenset(range(len(lead) + 2)))
    named = ""
    for pair in pairs:
        name = pair.name
        for score, compared in pair.others.items():
            reference = [pair.reference if pair.reference != named else ""] if lead else []
            named = pair.reference
            figures = [text.difference(score, compared.difference), text.difference_interval(score, compared.ci95)]
            counts = [text.count(compared.higher), text.count(compared.lower)]
            grid.rows.append([*reference, name, text.words(score.name), text.count(compared.n), *figures, *counts])
            name = ""
    return grid


def _lead(pairs: Sequence[Pair]) -> list[str]:
    """Return the column that names the references, where there are several."""
    return ["reference"] if len({pair.reference for pair in pairs}) > 1 else []


def cost_grid(comparison: Comparison) -> Grid:
    """Return the mean cost of a problem by run and role."""
    grid = Grid(["run", "role", "calls", "prompt tokens", "completion tokens"], frozenset({0, 1}))
    for row in comparison.rows:
        # with one role the total would repeat it
        roles = [role for role in row.cost if role != _TOTAL or len(row.cost) > 2]
        for index, role in enumerate(roles):
            cost = row.cost[role]
            figures = [text.number(cost.calls), text.count(cost.prompt_tokens), text.count(cost.completion_tokens)]
            grid.rows.append([row.name if index == 0 else "", role, *figures])
    return grid
