"""Win rates against counting by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.ratings.win_rate import log_odds

duels = st.lists(st.tuples(st.permutations(range(4)).map(lambda order: order[:2]), st.sampled_from([1.0, 0.5])))


@given(duels, st.floats(0.1, 5))
def test_log_odds_are_wins_against_losses(held, pseudo_count):
    wins, losses = np.full(4, pseudo_count), np.full(4, pseudo_count)
    for (winner, loser), score in held:
        wins[winner] += score
        losses[winner] += 1 - score
        wins[loser] += 1 - score
        losses[loser] += score
    columns = [pair[0] for pair, _ in held], [pair[1] for pair, _ in held], [score for _, score in held]
    found = log_odds(4, *columns, pseudo_count=pseudo_count)
    assert 1 / (1 + np.exp(-found)) == pytest.approx(wins / (wins + losses))
