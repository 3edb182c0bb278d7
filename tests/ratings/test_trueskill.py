"""TrueSkill against the trueskill package, truncated normal moments, and what holds of any ranking."""

import numpy as np
import pytest
import trueskill
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad
from scipy.stats import truncnorm

from evorun.ratings.trueskill import _draw, _win, rate

DEFAULTS = {"beta": 25 / 6, "tau": 25 / 300, "draw_probability": 0.10}
PACKAGE = trueskill.TrueSkill(mu=25, sigma=25 / 3, **DEFAULTS)

sizes = st.shared(st.integers(2, 8))
means = sizes.flatmap(lambda n: arrays(float, n, elements=st.floats(-400, 400)))
sds = sizes.flatmap(lambda n: arrays(float, n, elements=st.floats(0.1, 20)))
ranks = sizes.flatmap(lambda n: arrays(int, n, elements=st.integers(0, n - 1)))


@pytest.mark.parametrize("tied", [False, True])
def test_ratings_are_those_of_the_package(tied):
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(2, 9))
        mean, sd = rng.normal(25, 8, n), rng.uniform(0.5, 9, n)
        order = rng.integers(0, max(1, n // 2), n) if tied else rng.permutation(n)
        teams = [(PACKAGE.create_rating(*one),) for one in zip(mean, sd, strict=True)]
        expected = [one[0] for one in PACKAGE.rate(teams, ranks=order.tolist())]
        found = rate(mean, sd, order, **DEFAULTS)
        assert found.mean == pytest.approx([one.mu for one in expected], abs=1e-4)
        assert found.sd == pytest.approx([one.sigma for one in expected], abs=1e-4)


def test_tied_players_stand_in_the_order_given():
    # the package's figures: a chain of neighbours is not symmetric in the tied ones
    found = rate([25] * 3, [25 / 3] * 3, [0, 0, 1], **DEFAULTS)
    assert found.mean == pytest.approx([27.5520, 27.5573, 19.8907], abs=1e-4)
    last = rate([25] * 3, [25 / 3] * 3, [1, 0, 0], **DEFAULTS)
    assert last.mean == pytest.approx([19.8907, 27.5520, 27.5573], abs=1e-4)


@pytest.mark.parametrize(("t", "epsilon"), [(0, 0.1), (1.5, 0.3), (-2, 0.7), (-6, 0.01), (7, 2.5), (0.3, 1e-3)])
def test_corrections_are_the_moments_of_truncated_normals(t, epsilon):
    # v: shift of the mean of a standard normal around t that is cut off; 1 - w: its variance
    for (v, w), bounds in (
        (_win(t - epsilon), (epsilon - t, np.inf)),
        (_draw(t, epsilon), (-epsilon - t, epsilon - t)),
    ):
        oracle = truncnorm(*bounds)
        assert v == pytest.approx(oracle.mean(), rel=1e-6, abs=1e-9)
        assert 1 - w == pytest.approx(oracle.var(), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("x", [250.0, 301.0, 5000.0])
def test_corrections_of_a_win_against_all_odds_are_moments_by_quadrature(x):
    # of s = x (y - x) for a standard normal y above x, whose density falls as exp(-s - s^2 / (2 x^2))
    moments = [quad(lambda s, k=k: s**k * np.exp(-s - s**2 / (2 * x**2)), 0, np.inf)[0] for k in range(3)]
    mean = moments[1] / moments[0]
    v, w = _win(-x)
    assert v == pytest.approx(x + mean / x, rel=1e-12)
    assert 1 - w == pytest.approx((moments[2] / moments[0] - mean**2) / x**2, rel=1e-5)


@pytest.mark.parametrize("order", [[0, 1], [1, 0], [0, 0]])
@pytest.mark.parametrize("gap", [400.0, 1e4, 1e9])
def test_ratings_are_finite_at_any_gap(gap, order):
    found = rate([25, 25 + gap], [25 / 3, 1.0], order, **DEFAULTS)
    assert np.isfinite(found).all()
    assert found.mean[1] <= 25 + gap + 1e-6 * gap
    if order == [1, 0]:  # as expected: nothing is learned
        assert found.mean == pytest.approx([25, 25 + gap])
        assert found.sd == pytest.approx(np.hypot([25 / 3, 1.0], DEFAULTS["tau"]))
    else:  # between two gaussian beliefs, the one that was surer moves less
        assert found.mean[0] - 25 > 10 * (25 + gap - found.mean[1]) > 0
        # and each grows surer, as if it had been told the other's performance
        drifted, noise = np.square([25 / 3, 1.0]) + DEFAULTS["tau"] ** 2, DEFAULTS["beta"] ** 2
        told = 1 / (1 / drifted + 1 / (drifted[::-1] + 2 * noise))
        assert found.sd == pytest.approx(np.sqrt(told), rel=1e-3)


@given(means, sds, ranks)
def test_no_ranking_makes_ratings_less_sure_than_the_drift_does(mean, sd, order):
    found = rate(mean, sd, order, **DEFAULTS)
    assert np.isfinite(found).all()
    assert (found.sd > 0).all()
    assert (found.sd <= np.hypot(sd, DEFAULTS["tau"]) * (1 + 1e-9)).all()


@given(means, sds, ranks)
def test_the_sole_winner_never_falls_and_the_sole_loser_never_rises(mean, sd, order):
    found = rate(mean, sd, order, **DEFAULTS)
    if (order == order.min()).sum() == 1:
        assert found.mean[order.argmin()] >= mean[order.argmin()] - 1e-6
    if (order == order.max()).sum() == 1:
        assert found.mean[order.argmax()] <= mean[order.argmax()] + 1e-6


@given(
    means, sds, sizes.flatmap(lambda n: st.permutations(range(n))), sizes.flatmap(lambda n: st.permutations(range(n)))
)
def test_ratings_follow_the_players_not_their_places(mean, sd, order, shuffle):
    order, shuffle = np.array(order), np.array(shuffle)
    found, shuffled = rate(mean, sd, order, **DEFAULTS), rate(mean[shuffle], sd[shuffle], order[shuffle], **DEFAULTS)
    assert shuffled.mean == pytest.approx(found.mean[shuffle])
    assert shuffled.sd == pytest.approx(found.sd[shuffle])


@given(means, sds, ranks, st.floats(-100, 100))
def test_skills_have_no_zero_point(mean, sd, order, more):
    found, moved = rate(mean, sd, order, **DEFAULTS), rate(mean + more, sd, order, **DEFAULTS)
    assert moved.mean - more == pytest.approx(found.mean, rel=1e-5, abs=1e-5)


def test_a_player_alone_only_drifts():
    found = rate([3.0], [4.0], [0], beta=1.0, tau=3.0, draw_probability=0.1)
    assert (found.mean.tolist(), found.sd.tolist()) == ([3.0], [5.0])
    assert rate([], [], [], **DEFAULTS).mean.size == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"ranks": [0]}, r"shape \(n,\), got \(2,\), \(2,\) and \(1,\)"),
        ({"sd": [1.0, 0.0]}, "positive standard deviations"),
        ({"mean": [0.0, np.nan]}, "finite means"),
        ({"draw_probability": 0.0}, r"a draw probability in \(0, 1\), got 4.1"),
        ({"beta": 0.0}, "beta > 0"),
    ],
)
def test_what_is_no_rating_is_refused(changed, message):
    arguments = {"mean": [0.0, 1.0], "sd": [1.0, 1.0], "ranks": [0, 1], **DEFAULTS, **changed}
    with pytest.raises(ValueError, match=message):
        rate(arguments.pop("mean"), arguments.pop("sd"), arguments.pop("ranks"), **arguments)
