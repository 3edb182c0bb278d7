"""Numbers as a reader sees them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.reports import text
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
