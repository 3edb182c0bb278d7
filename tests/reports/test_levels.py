"""Methods at several levels of one setting: pairs within each level, and differences of differences between levels."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from comparison_fixture import write_method
from markup import Page

from evorun.exports.documents import comparison_document
from evorun.reports.comparison import ComparedRuns, compare, export_comparison, print_comparison, write_comparison
from evorun.reports.comparison.figures import make_figures
from evorun.reports.comparison.findings import describe_changes
from evorun.reports.comparison.paired import adjust_by_holm
from evorun.reports.comparison.plots import POINT_COLUMNS, assign_styles
from evorun.reports.comparison.tables import make_data_tables
from evorun.reports.drawing import Drawing
from evorun.runs.crossed import crossed_mean, tabulate
from evorun.runs.terminal import Terminal

SCORE = {"name": "points", "low": 0.0, "high": 10.0}
SEEDS = (0, 1, 2)
MEANS = {
    ("best_of_n", "calls_50"): 4,
    ("best_of_n", "calls_300"): 5,
    ("lyria", "calls_50"): 5,
    ("lyria", "calls_300"): 8,
}
"""Mean points by method and budget."""
CALLS = {"calls_50": 50, "calls_300": 300}
POINTS = {
    (*cell, seed): np.clip(np.random.default_rng(mean + 10 * seed).normal(mean, 0.4, 6), 0, 10).tolist()
    for cell, mean in MEANS.items()
    for seed in SEEDS
}


def _write(folder: Path, budgets: Sequence[str] = ("calls_300", "calls_50"), **manifest: Any) -> list[Path]:
    return [
        _write_run(folder, method, budget, seed, POINTS[method, budget, seed], **manifest)
        for budget in budgets
        for method in ("best_of_n", "lyria")
        for seed in SEEDS
    ]


def _write_run(
    folder: Path,
    method: str,
    budget: str,
    seed: int,
    points: Sequence[float],
    settings: Mapping[str, str] | None = None,
    **manifest: Any,
) -> Path:
    words = {"budget": budget, **(settings or {})}
    return write_method(
        folder / f"{method}-{budget}-{seed}-{'-'.join((settings or {}).values())}",
        [False] * len(points),
        method=method,
        seed=seed,
        calls={"generate": CALLS.get(budget, 1)},
        scores={"points": list(points)},
        declared=[SCORE],
        command=["evorun", f"method={method}", *(f"{key}={value}" for key, value in words.items()), f"seed={seed}"],
        config={"method": {"name": method, "generations": None}, "seed": seed, "settings": words},
        **manifest,
    )


def _compare(runs: Sequence[Path]) -> ComparedRuns:
    return compare(runs, next(run for run in runs if run.name.startswith("best_of_n")), "points")


@pytest.fixture(name="compared")
def _compared(tmp_path: Path) -> ComparedRuns:
    return _compare(_write(tmp_path / "runs"))


@pytest.mark.parametrize("level", list(CALLS))
def test_a_pair_within_a_level_is_that_of_the_runs_at_that_level_alone(
    compared: ComparedRuns, tmp_path: Path, level: str
) -> None:
    (alone,) = _compare(_write(tmp_path / "alone", [level])).pairs.main_pairs
    (found,) = [by.pair for by in compared.level_pairs if by.level == level and by.minus_level is None]
    assert (found.name, found.reference) == ("lyria", "best_of_n")
    assert (found.compared, found.p) == (alone.compared, alone.p)


def test_a_change_is_the_crossed_mean_of_the_differences_of_differences(compared: ComparedRuns) -> None:
    # budgets stand by their calls, although the larger one began first
    assert [(by.level, by.minus_level) for by in compared.level_pairs] == [
        ("calls_50", None),
        ("calls_300", None),
        ("calls_300", "calls_50"),
    ]
    pair = compared.level_pairs[-1].pair
    points = {cell: np.array([POINTS[*cell, seed] for seed in SEEDS]) for cell in MEANS}
    lead = {budget: points["lyria", budget] - points["best_of_n", budget] for budget in CALLS}
    table = lead["calls_300"] - lead["calls_50"]
    expected = crossed_mean(tabulate([{str(i): value for i, value in enumerate(row)} for row in table]))
    assert expected is not None
    assert pair.compared.difference == pytest.approx(table.mean())
    assert pair.ci95 == pytest.approx(expected.interval())
    assert pair.p == pytest.approx(expected.p_differs())
    pairs = [by.pair for by in compared.level_pairs]
    assert [pair.p_holm for pair in pairs] == adjust_by_holm([pair.p for pair in pairs if pair.p is not None])
    assert {pair.comparisons for pair in pairs} == {3}


def test_levels_on_other_problems_have_no_change(tmp_path: Path) -> None:
    other = {"source": "benchmark", "description": "", "digest": "cd" * 32}
    runs = [*_write(tmp_path / "a", ["calls_50"]), *_write(tmp_path / "b", ["calls_300"], provenance=other)]
    assert [(by.level, by.minus_level) for by in _compare(runs).level_pairs] == [
        ("calls_50", None),
        ("calls_300", None),
    ]


def test_only_a_full_product_with_one_setting_has_levels(tmp_path: Path) -> None:
    runs = _write(tmp_path / "runs")
    incomplete = [run for run in runs if not run.name.startswith("lyria-calls_50")]
    assert _compare(incomplete).level_pairs == []
    ambiguous = [
        _write_run(tmp_path / "two", method, budget, 0, [1.0, 2.0, width + len(budget)], {"width": str(width)})
        for method in ("best_of_n", "lyria")
        for budget in CALLS
        for width in (1, 2)
    ]
    two_settings = _compare(ambiguous)
    assert two_settings.level_pairs == []
    (why,) = [line for line in two_settings.remarks if "within each level" in line]
    assert "on mathbench, since several settings vary (budget, width)" in why
    assert not [line for line in _compare(runs).remarks if "within each level" in line]
    # of two methods that differ by a setting, too, the budget is the one setting that both have
    single = [_write_run(tmp_path / "k", "lyria", budget, 0, [1.0, 4.0, 2.0], {"k": "2"}) for budget in CALLS]
    single += [_write_run(tmp_path / "k", "best_of_n", budget, 0, [1.0, 3.0, 3.0]) for budget in CALLS]
    assert {by.key for by in _compare(single).level_pairs} == {"budget"}


def test_settings_that_vary_one_to_one_are_one_setting(tmp_path: Path) -> None:
    """Lyria at equal calls has a limit of its own at each size, and is compared as without it."""
    compared = _compare(
        [
            _write_run(tmp_path, *cell, seed, POINTS[*cell, seed], {"budget.calls_per_problem": str(CALLS[cell[1]])})
            for cell in MEANS
            for seed in SEEDS
        ]
    )
    points = {cell: np.array([POINTS[*cell, seed] for seed in SEEDS]) for cell in MEANS}
    lead = {budget: (points["lyria", budget] - points["best_of_n", budget]).mean() for budget in CALLS}
    exported = comparison_document(compared, tmp_path / "comparison.html")["level_pairs"]
    rows = [(row["run"], row["setting"], row["level"], row["minus_level"], row["difference"]) for row in exported]
    assert rows == [
        ("lyria", "budget", "calls_50", None, pytest.approx(lead["calls_50"])),
        ("lyria", "budget", "calls_300", None, pytest.approx(lead["calls_300"])),
        ("lyria", "budget", "calls_300", "calls_50", pytest.approx(lead["calls_300"] - lead["calls_50"])),
    ]
    drawing = _draw(compared)
    assert drawing is not None
    assert [point[POINT_COLUMNS.index("x")] for point in drawing.points] == [50, 300, 50, 300]


def test_settings_that_vary_one_to_one_are_named_together_where_none_says_it_alone(tmp_path: Path) -> None:
    compared = _compare(
        [
            _write_run(tmp_path, method, "calls_50", 0, [1.0, 2.0, float(k)], {"k": str(k), "width": str(2 * k)})
            for method in ("best_of_n", "lyria")
            for k in (1, 2)
        ]
    )
    assert [(by.key, by.level) for by in compared.level_pairs[:2]] == [
        ("k and width", "k=1 width=2"),
        ("k and width", "k=2 width=4"),
    ]
    assert "from k=1 width=2 to k=2 width=4 on mathbench" in describe_changes(compared.level_pairs)[0]


@pytest.mark.usefixtures("without_figures")
def test_levels_are_printed_on_the_page_and_exported(compared: ComparedRuns, tmp_path: Path) -> None:
    output = io.StringIO()
    print_comparison(compared, Path("comparison.html"), Terminal(file=output, width=200, color_system=None))
    printed = " ".join(output.getvalue().split())
    html = write_comparison(compared, tmp_path / "comparison.html").read_text("utf-8")
    page = " ".join(Page(html).text.split())
    for shown in (printed, page):
        assert "Within each level of budget: against best_of_n" in shown
        assert "From budget=calls_50 to budget=calls_300" in shown
        assert "calls_300 minus calls_50" in shown
        assert "p (Holm) is adjusted for all 3 tests of this table." in shown
    assert 'download="level_pairs.csv"' in html
    export_comparison(compared, tmp_path / "files")
    rows = list(csv.DictReader((tmp_path / "files" / "level_pairs.csv").read_text().splitlines()))
    for row, by in zip(rows, compared.level_pairs, strict=True):
        assert (row["run"], row["setting"], row["level"]) == ("lyria", "budget", by.level)
        assert row["minus_level"] == (by.minus_level or "")
        assert [float(row[name]) for name in ("low", "high")] == list(by.pair.ci95 or ())


def _draw(compared: ComparedRuns) -> Drawing | None:
    drawn = [figure.drawing for figure in make_figures(compared).finals]
    return next((drawing for drawing in drawn if drawing.name == "levels-points"), None)


@pytest.mark.nightly
def test_scores_are_drawn_against_the_calls_of_budgets(compared: ComparedRuns) -> None:
    drawing = _draw(compared)
    assert drawing is not None
    rows, styles = {row.name: row for row in compared.rows}, assign_styles(compared)
    points = [dict(zip(POINT_COLUMNS, point, strict=True)) for point in drawing.points]
    assert [(point["arm"], point["x"]) for point in points] == [
        (f"{method}, budget={budget}", calls) for method in ("best_of_n", "lyria") for budget, calls in CALLS.items()
    ]
    for point in points:
        row = rows[point["arm"]]
        assert point["value"] == row.get_metric("points").value
        assert (point["low"], point["high"]) == row.get_interval("points")
    # the arm of a method that began first gives the line its colour
    lines = {str(line.get_label()): line.get_color() for line in drawing.figure.axes[0].lines}
    assert lines == {method: styles[f"{method}, budget=calls_300"]["color"] for method in ("best_of_n", "lyria")}


@pytest.mark.nightly
def test_scores_are_drawn_against_numbers_but_not_against_other_words(tmp_path: Path) -> None:
    def write(key: str, values: Sequence[str]) -> ComparedRuns:
        return _compare(
            [
                _write_run(tmp_path / key, method, "calls_50", 0, [1.0, 2.0, float(i)], {key: value})
                for method in ("best_of_n", "lyria")
                for i, value in enumerate(values)
            ]
        )

    numbers = _draw(write("task.size", ["10", "9", "4"]))
    assert numbers is not None
    points = [dict(zip(POINT_COLUMNS, point, strict=True)) for point in numbers.points]
    assert [point["x"] for point in points if point["arm"].startswith("lyria")] == [4, 9, 10]
    assert [label.get_text() for label in numbers.figure.axes[0].get_xticklabels()] == ["4", "9", "10"]
    assert _draw(write("judge", ["oracle", "policy"])) is None


@pytest.mark.usefixtures("without_figures")
def test_an_arm_has_its_method_and_the_settings_that_differ_as_columns(compared: ComparedRuns, tmp_path: Path) -> None:
    export_comparison(compared, tmp_path)
    for table, seeds in (("arms", 1), ("runs", len(SEEDS))):
        rows = list(csv.DictReader((tmp_path / f"{table}.csv").read_text().splitlines()))
        cells = [(row["method"], row["setting.budget"]) for row in rows]
        assert sorted(cells) == sorted([*MEANS] * seeds)
        assert all(row["run"].startswith(f"{row['method']}, budget={row['setting.budget']}") for row in rows)
    shared = compare([_write_run(tmp_path / name, name, "calls_50", 0, [1.0, 2.0]) for name in ("gepa", "lyria")])
    assert "setting.budget" not in next(table for table in make_data_tables(shared) if table.name == "arms").headings
