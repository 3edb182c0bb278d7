"""The strata of a comparison: intervals of means, and paired differences on the problems of one stratum alone."""

import csv
import io
from pathlib import Path

import comparison_fixture
import numpy as np
import pytest
from comparison_fixture import STRATA, write_method
from markup import Page

from evorun.reports.comparison import ComparedRuns, compare, export_comparison, print_comparison, write_comparison
from evorun.reports.comparison.notes import strata_note
from evorun.reports.comparison.paired import adjust_by_holm
from evorun.runs.terminal import Terminal

SHARES = {"few_shot": 0.8, "zero_shot": 0.4, "lyria": 0.7}
RIGHT = {
    (method, seed): {f"p{i:02}": bool(rng.random() < share) for i in range(24)}
    for rng in [np.random.default_rng(5)]
    for method, share in SHARES.items()
    for seed in ((0,) if method == "lyria" else (0, 1, 2))
}
"""True where a problem is right, by method and seed; lyria has a single seed."""


def _write(folder: Path, stratum: str | None = None) -> ComparedRuns:
    """Compare the runs on all problems, or on those of one stratum alone."""
    first, step = (0, 1) if stratum is None else (STRATA.index(stratum), len(STRATA))
    runs = [
        write_method(folder / f"{method}{seed}", dict(list(right.items())[first::step]), method=method, seed=seed)
        for (method, seed), right in RIGHT.items()
    ]
    return compare(runs, against="zero_shot")


@pytest.fixture(name="whole")
def _whole(tmp_path: Path) -> ComparedRuns:
    return _write(tmp_path / "whole")


@pytest.mark.sample(1)
@pytest.mark.parametrize("stratum", STRATA)
def test_a_pair_by_stratum_is_that_of_runs_on_its_problems_alone(
    whole: ComparedRuns, tmp_path: Path, stratum: str
) -> None:
    alone = _write(tmp_path / "alone", stratum).pairs.main_pairs
    found = [by.pair for by in whole.strata_pairs if by.stratum == stratum]
    for pair, expected in zip(found, alone, strict=True):
        assert (pair.name, pair.reference, pair.compared) == (expected.name, expected.reference, expected.compared)
        assert (pair.p, pair.ci95, pair.remark) == (expected.p, expected.ci95, expected.remark)
    assert {pair.name: len(pair.compared.problems_per_seed) for pair in found} == {"few_shot": 3, "lyria": 0}


def test_p_by_stratum_is_adjusted_for_all_strata_together(whole: ComparedRuns) -> None:
    pairs = [by.pair for by in whole.strata_pairs]
    assert [by.stratum for by in whole.strata_pairs] == [stratum for stratum in STRATA for _ in range(2)]
    assert [pair.p_holm for pair in pairs] == adjust_by_holm([pair.p for pair in pairs if pair.p is not None])
    assert {pair.comparisons for pair in pairs} == {6}
    assert {pair.comparisons for pair in whole.pairs.main_pairs} == {2}  # which these do not count for


def test_a_mean_by_stratum_has_the_interval_of_runs_on_its_problems_alone(whole: ComparedRuns, tmp_path: Path) -> None:
    alone = {row.name: row for row in _write(tmp_path / "alone", "middle").rows}
    for row in whole.rows:
        assert row.by_stratum["middle"].ci95 == alone[row.name].get_interval("accuracy")
    assert strata_note(whole) == "In brackets: 95 % intervals over problems, of several seeds over seeds and problems."


def test_a_note_says_why_an_interval_by_stratum_is_missing(tmp_path: Path) -> None:
    right = [True, True, False, True, False, True, True]  # the first stratum is right everywhere, by all seeds
    one_problem_less = [[*right[:4], answer, right[5], True] for answer in (True, False)]
    runs = [write_method(tmp_path / str(seed), one_problem_less[seed], seed=seed) for seed in (0, 1)]
    comparison = compare([*runs, write_method(tmp_path / "other", right, method="gepa")])
    mean = next(row for row in comparison.rows if row.seeds == 2)
    assert {name for name, metric in mean.by_stratum.items() if metric.ci95 is None} == set(STRATA)
    assert strata_note(comparison).endswith(
        "There is no interval where all values are equal or it would be the whole range."
    )
    few = [write_method(tmp_path / f"few{seed}", [True, False, bool(seed)], seed=seed) for seed in (0, 1)]
    assert strata_note(compare(few)) == "There is no interval where a stratum has a single problem."


@pytest.mark.nightly
@pytest.mark.usefixtures("without_figures")
def test_differences_by_stratum_are_on_the_page_and_exported(whole: ComparedRuns, tmp_path: Path) -> None:
    html = write_comparison(whole, tmp_path / "comparison.html").read_text("utf-8")
    text = " ".join(Page(html).text.split())
    assert "Against zero_shot, on the same problems with the same model, by stratum" in text
    assert "Exploratory: the main test is over all problems." in text
    assert "Intervals are over problems (a paired bootstrap), of several seeds over seeds and problems" in text
    assert "p (Holm) is adjusted for all 6 tests of this table." in text
    assert 'download="strata_pairs.csv"' in html
    export_comparison(whole, tmp_path / "files")
    rows = list(csv.DictReader((tmp_path / "files" / "strata_pairs.csv").read_text().splitlines()))
    for row, by in zip(rows, whole.strata_pairs, strict=True):
        assert (row["run"], row["stratum"]) == (by.pair.name, by.stratum)
        assert row["seeds"] == {"few_shot": "3", "lyria": "1"}[row["run"]]
        assert [float(row[name]) for name in ("low", "high")] == list(by.pair.ci95 or ())


def _print(comparison: ComparedRuns) -> str:
    output = io.StringIO()
    print_comparison(comparison, Path("comparison.html"), Terminal(file=output, width=200, color_system=None))
    return " ".join(output.getvalue().split())


@pytest.mark.usefixtures("without_figures")
def test_a_terminal_says_where_the_differences_by_stratum_are(whole: ComparedRuns) -> None:
    printed = _print(whole)
    assert "Differences by stratum, which are exploratory: on the page below, and as strata_pairs.csv" in printed


@pytest.mark.nightly
@pytest.mark.usefixtures("without_figures")
def test_a_single_stratum_has_no_differences_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison_fixture, "STRATA", ("all",))
    comparison = _write(tmp_path / "runs")
    assert comparison.strata_pairs == []
    assert "strata_pairs" not in _print(comparison)
    html = write_comparison(comparison, tmp_path / "comparison.html").read_text("utf-8")
    assert "strata_pairs" not in html
    assert "by stratum" not in html
    export_comparison(comparison, tmp_path / "files")
    assert not (tmp_path / "files" / "strata_pairs.csv").exists()
