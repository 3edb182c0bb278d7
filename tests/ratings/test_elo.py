"""Elo ratings against evalica's, and the chess federation's own table."""

import evalica
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.ratings.elo import rate

OUTCOMES = {1.0: evalica.Winner.X, 0.0: evalica.Winner.Y, 0.5: evalica.Winner.Draw}

games = st.lists(
    st.tuples(st.permutations(range(5)).map(lambda order: order[:2]), st.sampled_from(sorted(OUTCOMES))), min_size=1
)


@given(games, st.floats(1, 64))
def test_ratings_are_those_of_evalica(played, k):
    first, second = [pair[0] for pair, _ in played], [pair[1] for pair, _ in played]
    scores = [score for _, score in played]
    found = rate(np.full(5, 1000.0), first, second, scores, k=k)
    oracle = evalica.elo(first, second, [OUTCOMES[score] for score in scores], initial=1000, k=k).scores
    assert found[oracle.index.to_numpy()] == pytest.approx(oracle.to_numpy())
    assert found.sum() == pytest.approx(5000)


def test_expectations_are_those_of_the_federations_table():
    # FIDE Rating Regulations, table 8.1.2: 200 points ahead are expected to score 0.76
    before = np.array([1700.0, 1500.0])
    after = rate(before, [0], [1], [0.0], k=10)
    assert after - before == pytest.approx([-7.6, 7.6], abs=0.05)
    assert before.tolist() == [1700, 1500]


def test_ratings_in_logits_and_at_any_distance():
    assert rate([0, 0], [0], [1], [1], k=0.5, scale=1.0).tolist() == [0.25, -0.25]
    assert rate([1e6, 0], [0], [1], [1], k=1).tolist() == [1e6, 0]
    assert rate([1e6, 0], [1], [0], [1], k=1).tolist() == [1e6 - 1, 1]


def test_games_of_unequal_lengths_are_refused():
    with pytest.raises(ValueError, match="zip"):
        rate([0, 0], [0], [1, 0], [1], k=1)
