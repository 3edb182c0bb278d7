"""Elo ratings against sums done by hand, evalica's, and a textbook's formula followed match by match."""

import math

import evalica
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.ratings.elo import rate

OUTCOMES = {1.0: evalica.Winner.X, 0.0: evalica.Winner.Y, 0.5: evalica.Winner.Draw}

matches = st.lists(
    st.tuples(st.permutations(range(5)).map(lambda order: order[:2]), st.sampled_from(sorted(OUTCOMES))), min_size=1
)


def columns(played):
    return [pair[0] for pair, _ in played], [pair[1] for pair, _ in played], [score for _, score in played]


def test_a_sequence_worked_out_by_hand():
    # K = 4, all at 1000. Expectations: E(a) = 1 / (1 + 10^((b - a) / 400)).
    #
    # 1. 0 beats 1.  E(0) = 0.5, gain 4 x 0.5 = 2:                            1002      998       1000
    # 2. 1 ties 2.   998 to 1000: 10^(2/400) = 1.01157945, E(1) = 0.49712180,
    #                gain 4 x (0.5 - 0.49712180) = 0.01151280:                1002      998.0115  999.9885
    # 3. 2 loses to 0. 999.98848720 to 1002: 10^(2.01151280/400) = 1.01164649,
    #                E(2) = 0.49710523, gain 4 x (0 - 0.49710523) = -1.98842093:
    #                                                                         1003.9884 998.0115  998.0001
    found = rate(3, [0, 1, 2], [1, 2, 0], [1, 0.5, 0])
    assert found == pytest.approx([1003.98842093, 998.01151280, 998.00006627], abs=1e-8)
    assert found.dtype == np.float64


@given(matches, st.floats(1, 64))
def test_ratings_are_those_of_evalica(played, k):
    first, second, scores = columns(played)
    found = rate(5, first, second, scores, k=k)
    oracle = evalica.elo(first, second, [OUTCOMES[score] for score in scores], initial=1000, k=k).scores
    assert found[oracle.index.to_numpy()] == pytest.approx(oracle.to_numpy())
    assert found.sum() == pytest.approx(5000)


@given(matches, st.floats(0, 64), st.floats(-1e3, 1e4), st.permutations(range(5)))
def test_ratings_are_those_of_the_formula_whatever_the_players_are_called(played, k, initial, named):
    first, second, scores = columns(played)
    ratings = dict.fromkeys(range(5), initial)
    for one, other, score in zip(first, second, scores, strict=True):
        strength, rival = (math.exp(ratings[player] * math.log(10) / 400) for player in (one, other))
        expected = strength / (strength + rival)
        ratings[one] += k * (score - expected)
        ratings[other] += k * ((1 - score) - (1 - expected))
    found = rate(5, first, second, scores, k=k, initial=initial)
    assert found == pytest.approx(list(ratings.values()))
    renamed = rate(5, [named[i] for i in first], [named[i] for i in second], scores, k=k, initial=initial)
    assert renamed[named].tolist() == found.tolist()


def test_ratings_of_500_matches_are_those_of_mpos_released_code_to_the_last_bit():
    # That code is the formula, followed match by match, with both expectations computed. A loser's change taken as the
    # winner's negated differs in the last bits of most players.
    rng = np.random.default_rng(0)
    first = rng.integers(10, size=500)
    second = (first + rng.integers(1, 10, size=500)) % 10
    scores = rng.choice([0.0, 1.0], 500)
    ratings = [1000.0] * 10
    for one, other, score in zip(first.tolist(), second.tolist(), scores.tolist(), strict=True):
        expected = 1 / (1 + 10 ** ((ratings[other] - ratings[one]) / 400))
        expected_of_other = 1 / (1 + 10 ** ((ratings[one] - ratings[other]) / 400))
        ratings[one], ratings[other] = (
            ratings[one] + 4 * (score - expected),
            ratings[other] + 4 * ((1 - score) - expected_of_other),
        )
    assert rate(10, first, second, scores).tolist() == ratings


def test_the_order_of_matches_counts():
    beaten = [0, 1, 2], [1, 2, 0], [1, 1, 1]
    assert rate(3, *beaten)[0] < 1000  # the last word is 2's
    assert rate(3, *(column[::-1] for column in beaten))[0] > 1000


def test_expectations_are_those_of_the_federations_table():
    # FIDE Rating Regulations, table 8.1.2: 200 points ahead are expected to score 0.76
    assert rate(2, [0], [1], [1], k=200).tolist() == [1100, 900]
    assert rate(2, [0, 0], [1, 1], [1, 0], k=200) == pytest.approx([1100 - 200 * 0.76, 900 + 200 * 0.76], abs=1)


def test_differences_beyond_floating_point_are_no_error():
    assert rate(2, [0, 1], [1, 0], [1, 1], k=1e6, initial=0).tolist() == [-500000, 500000]
    assert rate(2, [0, 1], [1, 0], [0, 0], k=1e6, initial=0).tolist() == [500000, -500000]


def test_without_matches_everybody_keeps_the_initial_rating():
    assert rate(3, [], [], []).tolist() == [1000, 1000, 1000]
    assert rate(0, [], [], []).tolist() == []


@pytest.mark.parametrize(
    ("arguments", "settings", "said"),
    [
        ((2, [0], [1, 0], [1]), {}, "equal lengths"),
        ((2, [0], [1], [1, 0]), {}, "equal lengths"),
        ((2, [0, 2], [1, 0], [1, 1]), {}, r"first: expected players 0\.\.1, got 0\.\.2"),
        ((2, [0], [-1], [1]), {}, r"second: expected players 0\.\.1, got -1"),
        ((2, [0.0], [1], [1]), {}, "first: expected integers"),
        ((2, [[0]], [[1]], [[1]]), {}, "first: expected integers of shape"),
        ((2, [0, 1], [1, 1], [1, 1]), {}, "player 1 against itself"),
        ((2, [0], [1], [0.7]), {}, "score: expected 1, 0.5 or 0, got 0.7"),
        ((2, [0], [1], [math.nan]), {}, "score: expected 1, 0.5 or 0, got nan"),
        ((2, [0], [1], [1]), {"k": math.inf}, "k: expected a finite number"),
        ((2, [0], [1], [1]), {"k": -1}, "k: expected a finite number"),
        ((2, [0], [1], [1]), {"initial": math.nan}, "initial: expected a finite number"),
        ((-1, [], [], []), {}, "n_players"),
    ],
)
def test_what_is_no_sequence_of_matches_is_refused(arguments, settings, said):
    with pytest.raises(ValueError, match=said):
        rate(*arguments, **settings)
