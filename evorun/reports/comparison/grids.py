"""The tables of a comparison, cell by cell: the same on the page and in a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from evorun.reports import text
from evorun.reports.comparison.comparison import MARKS, Comparison, Row
from evorun.reports.comparison.pairs import Pair, Unpaired
from evorun.reports.comparison.seeds import common_name
from evorun.runs.printable import printable
from evorun.runs.results import ACCURACY, MAIN_SCORE
from evorun.runs.schema import Metric

_TOTAL = "total"
_NOTHING = Metric(None, None, 0)

SCORE_PAIRS_NOTE = (
    "Difference: mean of the run less that of the reference, with a paired bootstrap interval over problems (BCa, over "
    "several seeds percentile; none where all problems differ by the same amount), not adjusted for the number of "
    "comparisons. Higher, lower: problems on which the run's score is the higher or the lower one, whichever is better."
)
"""How the scores of pairs were compared."""


@dataclass(frozen=True)
class Grid:
    """A table of texts."""

    columns: Sequence[str]
    """Headings; a line break is where a narrow one may break."""
    words: frozenset[int]
    """Positions of the columns that hold words; the others hold figures."""
    rows: list[list[str]] = field(default_factory=list)


def main_grid(comparison: Comparison, strata: Sequence[str], scores: Sequence[str], *, with_cost: bool = True) -> Grid:
    """Return accuracy, scores and cost, a line for each run and then for each mean over seeds.

    What all runs share has no column, except for the information regime.
    """
    facts = [name for name in comparison.rows[0].facts if name not in comparison.shared_facts]
    columns = ["run", *facts, "information", "n", "accuracy", "95 % interval", *map(printable, strata)]
    columns += [printable(name).replace("_", "\n") for name in scores]
    words = frozenset(range(len(facts) + 2))
    if with_cost:
        columns += ["calls a\nproblem", "tokens a\nproblem"]
    if comparison.has_reported:
        columns += ["reported", "difference"]
    grid = Grid(columns, words)
    for row in [*comparison.rows, *comparison.means]:
        cells = _accuracy_cells(row, facts, strata)
        cells += [text.number(row.scores.get(name, _NOTHING).value) for name in scores]
        cells += _cost_cells(row) if with_cost else []
        cells += _reported_cells(row) if comparison.has_reported else []
        grid.rows.append(cells)
    return grid


def scores_grid(comparison: Comparison) -> Grid:
    """Return the means of the scores with their intervals, beside the reported ones where there are any."""
    rows = [*comparison.rows, *comparison.means]
    with_reported = any(row.reported.metrics for row in rows if row.reported)
    columns = ["run", "score", "mean", "95 % interval", "n", *(["reported", "difference"] if with_reported else [])]
    grid = Grid(columns, frozenset({0, 1}))
    for row in rows:
        name = printable(row.name)
        for score, metric in row.scores.items():
            figures = [text.number(metric.value), text.number_interval(metric.ci95), text.count(metric.n)]
            reported = row.reported_figure(score)
            away = text.signed_number(row.above(metric.value, reported))
            beside = [text.number(reported), away] if with_reported else []
            grid.rows.append([name, text.words(score), *figures, *beside])
            name = ""
    return grid


def strata_grid(comparison: Comparison, *, with_intervals: bool) -> Grid:
    """Return accuracy by stratum, a line for each run and then for each mean over seeds."""
    strata = comparison.strata
    grid = Grid(["run", *map(printable, strata)], frozenset({0}))
    for row in [*comparison.rows, *comparison.means]:
        metrics = [row.by_stratum.get(stratum, _NOTHING) for stratum in strata]
        intervals = [f" ({text.interval(m.ci95)})" if with_intervals and m.ci95 else "" for m in metrics]
        cells = [text.percent(m.value) + interval for m, interval in zip(metrics, intervals, strict=True)]
        grid.rows.append([printable(row.name), *cells])
    return grid


def reported_strata_grid(comparison: Comparison) -> Grid:
    """Return measured beside reported accuracy, for the strata that a paper reports."""
    grid = Grid(["run", "stratum", "accuracy", "reported", "difference"], frozenset({0, 1}))
    for row in comparison.rows:
        name = printable(row.name)
        for stratum, metric in row.by_stratum.items():
            reported = row.reported.of_stratum(stratum) if row.reported else None
            if reported is not None:
                figures = [text.percent(metric.value), text.percent(reported)]
                away = text.points(row.above(metric.value, reported))
                grid.rows.append([name, printable(stratum), *figures, away])
                name = ""
    return grid


def pairs_grid(comparison: Comparison) -> Grid:
    """Return each run beside the reference of its group, group after group, and then those over several seeds."""
    pairs = comparison.pairs.shown
    lead = _lead(comparison)
    columns = [*lead, "run", "n", "difference", "95 % interval", "gained", "lost", "p", "p (Holm)"]
    with_remarks = any(pair.remark for pair in pairs)
    grid = Grid([*columns, *(["remark"] if with_remarks else [])], frozenset({*range(len(lead) + 1), len(columns)}))
    named = ""
    for pair in pairs:
        reference = [printable(pair.reference) if pair.reference != named else ""] if lead else []
        named = pair.reference
        remark = [printable(pair.remark)] if with_remarks else []
        grid.rows.append([*reference, *_pair_cells(pair), *remark])
    return grid


def score_pairs_grid(comparison: Comparison) -> Grid:
    """Return each run's scores beside those of the reference of its group."""
    lead = _lead(comparison)
    columns = [*lead, "run", "score", "n", "difference", "95 % interval", "higher", "lower"]
    grid = Grid(columns, frozenset(range(len(lead) + 2)))
    named = ""
    for pair in comparison.pairs.shown:
        name = printable(pair.name)
        for score, compared in pair.scores.items():
            reference = [printable(pair.reference) if pair.reference != named else ""] if lead else []
            named = pair.reference
            figures = [text.signed_number(compared.difference), text.signed_interval(compared.ci95)]
            counts = [text.count(compared.higher), text.count(compared.lower)]
            grid.rows.append([*reference, name, text.words(score), text.count(compared.n), *figures, *counts])
            name = ""
    return grid


def _lead(comparison: Comparison) -> list[str]:
    """Return the column that names the references, where there are several."""
    return ["reference"] if len({pair.reference for pair in comparison.pairs.shown}) > 1 else []


def cost_grid(comparison: Comparison) -> Grid:
    """Return the mean cost of a problem by run and role."""
    grid = Grid(["run", "role", "calls", "prompt tokens", "completion tokens"], frozenset({0, 1}))
    for row in comparison.rows:
        roles = [role for role in row.cost if role != _TOTAL or len(row.cost) > 2]
        for place, role in enumerate(roles):
            cost = row.cost[role]
            figures = [text.number(cost.calls), text.count(cost.prompt_tokens), text.count(cost.completion_tokens)]
            grid.rows.append([printable(row.name) if place == 0 else "", printable(role), *figures])
    return grid


def shared_line(comparison: Comparison) -> str:
    """Say what all runs share, but for what is said above all tables."""
    shared = comparison.shared_facts
    return "; ".join(f"{name} {value}" for name, value in shared.items() if value and name != MARKS)


def pairs_heading(comparison: Comparison) -> str:
    """Say what the pairs are compared with."""
    references = comparison.pairs.references or [comparison.pairs.reference.name]
    one_method = len({name.split(", ")[0] for name in references}) == 1
    name = common_name(references) if one_method else "each group's reference"
    return f"Against {name}, on the same problems{' with the same model' if len(references) > 1 else ''}"


def pairs_note(comparison: Comparison) -> str:
    """Say how the pairs were compared, how many there are, and how the reference came to be it."""
    number = len(comparison.pairs.shown)
    several = len(comparison.pairs.references) > 1
    grouped = (
        " Each run is compared with the reference of its group: the runs that share task, problems, model and, where "
        "the reference has several, the seed."
        if several
        else ""
    )
    adjusted = "" if number == 1 else f" p (Holm) is adjusted for the {number} comparisons made here."
    choice = _MOST_COMMON if several else _BEST
    chosen = (
        ""
        if comparison.chosen
        else f" The reference is the {choice}{_tie_break(comparison)}, chosen on these problems, which favours it; "
        "--against=RUN names another."
    )
    pooled = (
        " Over several seeds: each run against the reference of its seed; whole problems, with all their seeds, are "
        "drawn again for the interval and exchanged for p."
        if comparison.pairs.pooled
        else ""
    )
    return (
        f"{number} {'comparison' if number == 1 else 'comparisons'}. Difference: accuracy of the run less that of the "
        "reference in percentage points, with a paired bootstrap interval over problems (none where no problem tells "
        "the two apart). p: McNemar's exact test, "
        f"two-sided, over the problems gained (only the run has them right) and lost (only the reference has)."
        f"{adjusted}{pooled}{grouped}{chosen}"
    )


_BEST = "run with the highest accuracy"
_MOST_COMMON = "method that most runs can be paired with, of these the one with the highest mean accuracy"


def _tie_break(comparison: Comparison) -> str:
    return f", then the highest {text.words(MAIN_SCORE)}" if MAIN_SCORE in comparison.scores else ""


def unpaired_line(unpaired: Unpaired) -> str:
    """Say why a run has no pair."""
    return f"{unpaired.run.name} is not paired: {unpaired.reason}"


def source_line(source: str, note: str) -> str:
    """Say where reported figures come from."""
    return "Reported: " + ". ".join(part.rstrip(".") for part in (source or "no source given", note) if part) + "."


def _accuracy_cells(row: Row, facts: Sequence[str], strata: Sequence[str]) -> list[str]:
    by_stratum = [row.by_stratum.get(stratum) for stratum in strata]
    words = [row.name, *(row.facts[name] or text.MISSING for name in facts), row.regime]
    return [
        *map(printable, words),
        row.n,
        text.percent(row.accuracy.value),
        text.interval(row.accuracy.ci95),
        *(text.percent(metric.value if metric else None) for metric in by_stratum),
    ]


def _cost_cells(row: Row) -> list[str]:
    total = row.cost.get(_TOTAL)
    return [text.number(total.calls), text.compact(total.tokens)] if total else [text.MISSING] * 2


def _reported_cells(row: Row) -> list[str]:
    return [text.percent(row.reported_figure(ACCURACY)), text.points(row.above_reported)]


def _pair_cells(pair: Pair) -> list[str]:
    counts = pair.counts
    return [
        printable(pair.name),
        text.count(counts.n),
        text.points(counts.difference),
        text.points_interval(pair.ci95),
        text.count(counts.ours_only),
        text.count(counts.theirs_only),
        text.p_value(pair.p),
        text.p_value(pair.p_holm),
    ]
