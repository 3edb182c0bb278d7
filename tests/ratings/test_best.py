"""The probability of the best against closed forms and against draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from evorun.ratings.best import probability_of_best


@given(difference=st.floats(-4, 4), first=st.floats(0.1, 2), second=st.floats(0.1, 2))
def test_of_two_items_it_is_a_normal_probability(difference: float, first: float, second: float) -> None:
    expected = norm.cdf(difference / np.hypot(first, second))
    assert probability_of_best([difference, 0], [first, second], [True, False]) == pytest.approx(expected, abs=2e-4)


def test_alike_items_share_it_equally_and_a_group_adds_up() -> None:
    for size in (1, 3, 7):
        group = np.arange(7) < size
        assert probability_of_best(np.zeros(7), np.ones(7), group) == pytest.approx(size / 7, abs=1e-4)


def test_it_is_the_share_of_draws_whose_largest_is_in_the_group() -> None:
    rng = np.random.default_rng(0)
    mean, sd, group = rng.normal(size=9), rng.uniform(0.2, 1.2, size=9), np.arange(9) % 3 == 0
    largest = (mean + sd * rng.standard_normal((200_000, 9))).argmax(axis=1)
    assert probability_of_best(mean, sd, group) == pytest.approx(group[largest].mean(), abs=0.005)
