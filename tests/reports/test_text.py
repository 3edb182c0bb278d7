"""Numbers as a reader sees them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.reports import text
from evorun.reports.tables import Table, figure_columns
from evorun.runs.scores import Score


@pytest.mark.parametrize(
    ("value", "shown"),
    [(-1234.5, "\u22121,234"), (-12.34, "\u221212.3"), (-0.12345, "\u22120.123"), (0.0, "0"), (99.96, "100.0")],
)
def test_negative_numbers_have_a_true_minus_sign(value: float, shown: str) -> None:
    assert text.number(value) == shown
    assert text.number_interval((value, value)) == f"{shown} to {shown}"


@given(st.floats(-1e6, 1e6))
def test_a_difference_is_the_number_with_a_sign(value: float) -> None:
    shown = text.difference(Score("points"), value)
    assert shown.lstrip("+\u2212") == text.number(abs(value))
    assert bool(re.match("[+\u2212]", shown)) == (value != 0)


def test_scores_of_a_column_have_as_many_decimals() -> None:
    """Zeros at the end stay: 0.43 beside 0.444 would read as another precision."""
    overlap = Score("overlap", low=0, high=1)
    assert [text.value(overlap, value) for value in (0.43, 0.444, 1.0, 0.0, 0.0584)] == [
        *("0.430", "0.444", "1.000"),
        *("0.000", "0.058"),
    ]
    assert text.value_interval(overlap, (0.387, 0.55)) == "0.387 to 0.550"
    assert text.difference_interval(overlap, (-0.1, 0.0)) == "\u22120.100 to 0.000"
    assert [text.number(value) for value in (3.7, 8.0, 12.0, 0.43)] == ["3.70", "8.00", "12.0", "0.430"]
    assert [text.compact(value) for value in (36_000, 47_312, 173_000, 2e6)] == [
        f"{shown}\u00a0{unit}" for shown, unit in (("36.0", "k"), ("47.3", "k"), ("173", "k"), ("2.00", "M"))
    ]


def test_a_bound_that_rounds_to_zero_shows_on_which_side_of_it_it_lies() -> None:
    overlap = Score("overlap", low=0, high=1)
    assert text.difference_interval(overlap, (0.00034, 0.308)) == "+0.0003 to +0.308"
    assert text.difference_interval(overlap, (-0.308, -0.00001)) == "\u22120.308 to \u22120.00001"
    assert text.difference_interval(overlap, (1e-17, 0.308)) == "0.000 to +0.308"  # an error of rounding
    rate = Score("accuracy", low=0, high=1, rate=True)
    assert text.difference_interval(rate, (-0.0003, 0.2)) == "\u22120.03 to +20.0 pp"


def test_a_column_with_a_fraction_has_no_counts() -> None:
    for cells, shown in (
        ((8.0, 1.01), ["8.00", "1.01"]),
        ((8.0, 300), ["8", "300"]),
        ((None, 2.5), [text.MISSING, "2.50"]),
    ):
        assert [row[0] for row in Table(figure_columns("calls"), [(cell,) for cell in cells]).shown()] == shown


def test_no_data_show_a_difference_beyond_the_range() -> None:
    overlap = Score("overlap", low=0, high=1)
    assert [text.smallest_difference(overlap, size) for size in (0.68, 1.2)] == ["0.680", "> 1"]


@pytest.mark.parametrize(
    ("probability", "shown"),
    [(0.00004, "< 0.0001"), (0.00042, "0.00042"), (0.0494, "0.049"), (0.0499998, "< 0.05"), (0.0501, "0.050")],
)
def test_a_probability_below_the_level_of_tests_never_reads_as_that_level(probability: float, shown: str) -> None:
    assert text.p_value(probability) == shown
