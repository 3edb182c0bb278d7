"""Means over seeds and problems, against analysis of variance by hand, Student's tests and the pigeonhole bootstrap."""

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from evorun.runs.crossed import CrossedMean, crossed_mean, tabulate

Table = NDArray[np.float64]
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "sweeps.md"
MEASURE_COVERAGE = Path(__file__).parents[2] / "scripts" / "measure_coverage.py"


def _draw(rng: np.random.Generator, seeds: int, problems: int, seed: float, problem: float) -> Table:
    by_seed, by_problem = rng.normal(size=(seeds, 1)), rng.normal(size=(1, problems))
    return 0.4 + seed * by_seed + problem * by_problem + rng.normal(size=(seeds, problems))


def _known(table: Table) -> CrossedMean:
    found = crossed_mean(table)
    assert found is not None
    return found


def test_one_seed_is_students_test_over_its_problems() -> None:
    values = np.random.default_rng(0).normal(0.4, 1, 40)
    found, oracle = _known(values[None, :]), stats.ttest_1samp(values, 0)
    assert found.p_differs() == pytest.approx(oracle.pvalue)
    assert found.interval(0.9) == pytest.approx(tuple(oracle.confidence_interval(0.9)))
    for bound in (-0.3, 0.1, 0.7):
        above = stats.ttest_1samp(values, bound, alternative="greater")
        assert found.p_above(bound) == pytest.approx(above.pvalue)


def test_seeds_with_problems_of_their_own_are_students_test_over_their_means() -> None:
    rng = np.random.default_rng(1)
    own = [{f"{seed}-{i}": float(value) for i, value in enumerate(rng.normal(0.3, 1, 7))} for seed in range(4)]
    found, oracle = _known(tabulate(own)), stats.ttest_1samp([np.mean(list(of.values())) for of in own], 0)
    assert found.is_nested
    assert (found.seeds, found.problems) == (4, 28)
    assert found.p_differs() == pytest.approx(oracle.pvalue)
    assert found.interval() == pytest.approx(tuple(oracle.confidence_interval(0.95)))


def test_problems_that_do_not_vary_within_a_seed_are_shared_all_the_same() -> None:
    found = _known(np.array([[0.0] * 5, [0.0] * 5, [1.0] * 5]))
    assert (found.is_nested, found.seed_weight, found.problems) == (False, 1.0, 5)


def test_the_variance_is_that_of_the_mean_squares_between_seeds_and_problems_less_the_rest() -> None:
    values = _draw(np.random.default_rng(2), 4, 6, 1, 1)
    a, b = values.shape
    total = values.mean()
    squares = [b * sum((row.mean() - total) ** 2 for row in values) / (a - 1)]
    squares += [a * sum((column.mean() - total) ** 2 for column in values.T) / (b - 1)]
    rest = [values[i, j] - values[i].mean() - values[:, j].mean() + total for i in range(a) for j in range(b)]
    variance = (sum(squares) - sum(each**2 for each in rest) / ((a - 1) * (b - 1))) / (a * b)
    assert variance > max(squares) / (a * b)  # so that no bound of it counts
    found = _known(values)
    assert found.standard_error == pytest.approx(variance**0.5)
    share = squares[0] / sum(squares)
    quantile = share * stats.t.ppf(0.975, a - 1) + (1 - share) * stats.t.ppf(0.975, b - 1)
    assert found.interval() == pytest.approx((total - quantile * variance**0.5, total + quantile * variance**0.5))


def test_the_guides_formula_is_that_of_the_interval_over_seeds_and_problems() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    examples = [None, _draw(np.random.default_rng(6), 3, 12, 1, 1)]
    alike = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]])  # the residual is more than seeds and problems
    for values in [*examples, alike]:
        code = block if values is None else re.sub(r"np\.array\(.*\)", "table", block)
        found: dict[str, Any] = {"table": values}
        exec(code, found)
        interval = _known(np.asarray(found["values"], dtype=float)).interval()
        assert (found["low"], found["high"]) == pytest.approx(interval)
    parts = [found[f"of_{part}"] for part in ("seeds", "problems", "residual")]
    assert found["variance"] == max(parts[:2]) > parts[0] + parts[1] - parts[2]


def test_the_standard_error_is_that_of_the_pigeonhole_bootstrap_where_a_value_is_missing_here_and_there() -> None:
    rng = np.random.default_rng(3)
    values = _draw(rng, 40, 60, 1, 1)
    values[rng.random(values.shape) < 0.1] = np.nan
    known = ~np.isnan(values)
    filled = np.where(known, values, 0)
    seeds, problems = (rng.multinomial(n, [1 / n] * n, 4000) for n in values.shape)
    weights = np.einsum("rs,rp,sp->r", seeds, problems, known)
    means = np.einsum("rs,rp,sp->r", seeds, problems, filled) / weights
    found = _known(values)
    assert found.mean == pytest.approx(np.nanmean(values))
    assert found.standard_error == pytest.approx(means.std(), rel=0.08)


@pytest.mark.parametrize("seeds", [2, 3, 6])
def test_the_p_is_the_level_at_which_the_interval_reaches_zero(seeds: int) -> None:
    found = _known(_draw(np.random.default_rng(seeds), seeds, 30, 0.3, 0.5))
    p = found.p_differs()
    assert 0 < p < 1
    assert min(map(abs, found.interval(1 - p))) == pytest.approx(0, abs=1e-9)
    assert found.p_above(0) + CrossedMean(-found.mean, *_rest(found)).p_above(0) == pytest.approx(1)


def _rest(found: CrossedMean) -> tuple[float, int, int, float]:
    return found.standard_error, found.seeds, found.problems, found.seed_weight


def test_what_does_not_vary_has_no_estimate() -> None:
    for table in (
        np.full((3, 4), 0.5),
        np.full((1, 4), 1.0),
        np.ones((3, 1)),
        np.ones((0, 0)),
        np.array([[0.1], [0.9]]),
    ):
        assert crossed_mean(table) is None
    gaps = np.array([[np.nan, np.nan], [0.0, 1.0]])
    assert crossed_mean(gaps) == crossed_mean(gaps[1:])


def test_coverage_is_measured_with_given_numbers_of_problems(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(MEASURE_COVERAGE))["main"](["2", "4", "6"])
    heads = {tuple(line.split()) for line in capsys.readouterr().out.splitlines() if line.startswith("seeds  ")}
    assert heads == {("seeds", "4", "6", "problems")}


@pytest.mark.nightly
def test_intervals_cover_the_true_mean_of_values_and_of_differences_of_rates() -> None:
    """The cells of scripts/measure_coverage.py that matter, with 150 data sets each: four errors are .072."""
    rng = np.random.default_rng(4)
    for seeds, problems, seed, problem in ((1, 60, 0, 1), (3, 60, 0.2, 0.5), (5, 20, 0.5, 1), (10, 200, 0.1, 1)):
        hits = {"values": 0, "rates": 0, "seeds fixed": 0}
        for _ in range(150):
            values = _draw(rng, seeds, problems, seed, problem)
            low, high = _known(values).interval()
            hits["values"] += low <= 0.4 <= high
            half = stats.sem(values.mean(axis=0)) * 1.96
            hits["seeds fixed"] += abs(values.mean() - 0.4) <= half
            chances = 0.5 + 0.1 * rng.normal(size=(1, problems)) + 0.1 * seed * rng.normal(size=(2 * seeds, 1))
            rates = (rng.random((2 * seeds, problems)) < chances).astype(float)
            low, high = _known(rates[:seeds] - rates[seeds:]).interval()
            hits["rates"] += low <= 0 <= high
        assert hits["values"] >= 0.95 * 150 - 11
        assert hits["rates"] >= 0.95 * 150 - 11
        if seed == 0.5:  # what an interval over problems alone would do
            assert hits["seeds fixed"] < 0.9 * 150


@pytest.mark.nightly  # test_statistics.py finds one as often as it says
def test_the_smallest_difference_is_found_four_times_in_five() -> None:
    rng, problems = np.random.default_rng(5), 80
    one = CrossedMean(0.0, 1 / problems**0.5, 1, problems, 0.0)
    true = one.smallest_difference()
    found = sum(_known(rng.normal(true, 1, (1, problems))).p_differs() < 0.05 for _ in range(1000))
    assert 0.8 * 1000 - 51 <= found <= 0.8 * 1000 + 51  # four standard errors
    assert one.smallest_difference(0.9) > true > one.smallest_difference(level=0.1)
