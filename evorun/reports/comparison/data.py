"""The figures of a comparison as tables for other programs."""

from collections.abc import Iterator, Sequence

from evorun.reports.comparison.comparison import Comparison
from evorun.reports.comparison.rows import Row
from evorun.reports.tables import Cell, Table, data_table
from evorun.runs.schema import Metric


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
