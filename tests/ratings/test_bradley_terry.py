"""Bradley-Terry fits against choix, a plain dense Newton method, a naive log posterior, and the model's symmetries."""

import choix
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from evorun.ratings.bradley_terry import fit, win_probability

Duels = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


@st.composite
def item_duels(draw: st.DrawFn) -> tuple[int, Duels]:
    """Up to 8 items and 40 duels: repeated, contradictory and separated pairs and idle items all come up."""
    n_items = draw(st.integers(2, 8))
    pair = st.permutations(range(n_items)).map(lambda order: order[:2])
    duels = np.array(draw(st.lists(pair, max_size=40)), dtype=np.int64).reshape(-1, 2)
    return n_items, (duels[:, 0], duels[:, 1])


def simulate_duels(n_items: int, n_duels: int, seed: int = 0, scale: float = 1.0) -> Duels:
    rng = np.random.default_rng(seed)
    utilities = rng.normal(scale=scale, size=n_items)
    first = rng.integers(n_items, size=n_duels)
    second = (first + rng.integers(1, n_items, size=n_duels)) % n_items
    first_wins = rng.random(n_duels) < 1 / (1 + np.exp(utilities[second] - utilities[first]))
    return np.where(first_wins, first, second), np.where(first_wins, second, first)


def naive_loss(utilities: npt.NDArray[np.float64], duels: Duels, prior_sd: float) -> float:
    loss = sum(u * u for u in utilities) / (2 * prior_sd**2)
    for winner, loser in zip(*duels, strict=True):
        loss += np.log1p(np.exp(utilities[loser] - utilities[winner]))
    return float(loss)


def dense_newton(n_items: int, duels: Duels, prior_sd: float) -> npt.NDArray[np.float64]:
    """The MAP by full Newton steps on the dense Hessian, one duel at a time."""
    utilities = np.zeros(n_items)
    for _ in range(12):
        gradient, hessian = utilities / prior_sd**2, np.eye(n_items) / prior_sd**2
        upset = 1 / (1 + np.exp(utilities[duels[0]] - utilities[duels[1]]))
        for winner, loser, p in zip(*duels, upset, strict=True):
            gradient[[winner, loser]] += -p, p
            hessian[np.ix_([winner, loser], [winner, loser])] += p * (1 - p) * np.array([[1, -1], [-1, 1]])
        utilities = utilities - np.linalg.solve(hessian, gradient)
    return utilities


@given(item_duels(), st.floats(0.2, 3))
def test_mean_is_the_map_that_choix_finds(problem, prior_sd):
    n_items, duels = problem
    oracle = choix.opt_pairwise(n_items, list(zip(*duels, strict=True)), alpha=1 / (2 * prior_sd**2), tol=1e-12)
    assert fit(n_items, *duels, prior_sd=prior_sd).mean == pytest.approx(oracle, abs=2e-6)


@given(item_duels(), st.floats(0.2, 3))
@settings(max_examples=25)
def test_mean_minimises_the_naive_loss(problem, prior_sd):
    n_items, duels = problem
    mean = fit(n_items, *duels, prior_sd=prior_sd).mean
    oracle = minimize(naive_loss, np.zeros(n_items), args=(duels, prior_sd), options={"gtol": 1e-7})
    assert naive_loss(mean, duels, prior_sd) <= oracle.fun + 1e-12
    assert mean == pytest.approx(oracle.x, abs=1e-4)


@given(item_duels(), st.floats(0.2, 3), st.data())
@settings(max_examples=25)
def test_ties_are_half_a_win_of_each_as_scipy_minimises_it(problem, prior_sd, data):
    n_items, (winners, losers) = problem
    some, size = st.sampled_from([1.0, 0.5, 0.25]), winners.size
    scores = np.array(data.draw(st.lists(some, min_size=size, max_size=size)))

    def loss(utilities):
        margin = utilities[winners] - utilities[losers]
        evidence = scores * np.logaddexp(0, -margin) + (1 - scores) * np.logaddexp(0, margin)
        return np.sum(utilities**2) / (2 * prior_sd**2) + np.sum(evidence)

    oracle = minimize(loss, np.zeros(n_items), options={"gtol": 1e-7})
    scored = fit(n_items, winners, losers, scores=scores, prior_sd=prior_sd)
    assert scored.mean == pytest.approx(oracle.x, abs=1e-4)
    by_lbfgs = fit(n_items, winners, losers, scores=scores, prior_sd=prior_sd, solver="lbfgs")
    assert by_lbfgs.mean == pytest.approx(scored.mean, abs=1e-5)
    # a tie says as much as a duel that was won: sd depends on the probabilities, not on who won
    p = win_probability(scored.mean[winners], scored.mean[losers])
    information = np.bincount(winners, p * (1 - p), n_items) + np.bincount(losers, p * (1 - p), n_items)
    assert scored.sd**-2 == pytest.approx(prior_sd**-2 + information)


def test_two_ties_are_a_win_of_each():
    ties, wins = fit(3, [0, 0, 1], [1, 1, 2], scores=[0.5, 0.5, 1]), fit(3, [0, 1, 1], [1, 0, 2])
    assert ties.mean == pytest.approx(wins.mean, abs=1e-9)
    assert ties.sd == pytest.approx(wins.sd, abs=1e-9)


@given(item_duels(), st.floats(0.3, 3))
def test_sd_is_the_inverse_root_of_the_numerical_hessian_diagonal(problem, prior_sd):
    n_items, duels = problem
    posterior = fit(n_items, *duels, prior_sd=prior_sd)
    width = 1e-3
    for item in range(n_items):
        shift = np.eye(n_items)[item] * width
        before, here, after = (naive_loss(posterior.mean + s, duels, prior_sd) for s in (-shift, 0 * shift, shift))
        assert posterior.sd[item] ** -2 == pytest.approx((before - 2 * here + after) / width**2, rel=1e-4)


@pytest.mark.parametrize(
    ("n_items", "n_duels", "prior_sd"),
    [(2, 50, 1), (60, 600, 0.5), pytest.param(200, 1_000, 2, marks=pytest.mark.nightly)],
)
def test_newton_and_lbfgs_agree_with_a_dense_newton_method(n_items, n_duels, prior_sd):
    duels = simulate_duels(n_items, n_duels)
    oracle = dense_newton(n_items, duels, prior_sd)
    newton = fit(n_items, *duels, prior_sd=prior_sd)
    lbfgs = fit(n_items, *duels, prior_sd=prior_sd, solver="lbfgs")
    assert newton.mean == pytest.approx(oracle, abs=1e-8)
    assert lbfgs.mean == pytest.approx(oracle, abs=1e-6)
    assert lbfgs.sd == pytest.approx(newton.sd, abs=1e-6)


@given(item_duels())
def test_swapping_winners_and_losers_negates_means(problem):
    n_items, (winners, losers) = problem
    posterior, mirrored = fit(n_items, winners, losers), fit(n_items, losers, winners)
    assert mirrored.mean == pytest.approx(-posterior.mean, abs=1e-8)
    assert mirrored.sd == pytest.approx(posterior.sd, abs=1e-8)


@given(item_duels(), st.randoms(use_true_random=False))
def test_renaming_items_and_reordering_duels_only_renames_the_posterior(problem, random):
    n_items, (winners, losers) = problem
    names = np.array(random.sample(range(n_items), n_items))
    order = np.array(random.sample(range(winners.size), winners.size), dtype=np.int64)
    posterior, renamed = fit(n_items, winners, losers), fit(n_items, names[winners[order]], names[losers[order]])
    assert renamed.mean[names] == pytest.approx(posterior.mean, abs=1e-8)
    assert renamed.sd[names] == pytest.approx(posterior.sd, abs=1e-8)


@given(item_duels())
def test_one_more_win_raises_the_winner_and_lowers_the_loser(problem):
    n_items, (winners, losers) = problem
    before, after = fit(n_items, winners, losers), fit(n_items, np.append(winners, 0), np.append(losers, 1))
    assert after.mean[0] > before.mean[0]
    assert after.mean[1] < before.mean[1]


@given(item_duels())
def test_a_narrower_prior_shrinks_means_and_sds(problem):
    n_items, duels = problem
    wide, narrow = fit(n_items, *duels, prior_sd=2), fit(n_items, *duels, prior_sd=0.5)
    assert np.linalg.norm(narrow.mean) <= np.linalg.norm(wide.mean)
    assert (narrow.sd <= 0.5).all()
    assert (narrow.sd < wide.sd).all()


@given(item_duels(), st.lists(st.floats(-1e6, 1e6), max_size=8), st.sampled_from(["newton", "lbfgs"]))
def test_any_init_leads_to_the_same_mode(problem, init, solver):
    n_items, duels = problem
    started = fit(n_items, *duels, init=init[:n_items], solver=solver)
    assert started.mean == pytest.approx(fit(n_items, *duels).mean, abs=1e-6)


@pytest.mark.parametrize("solver", ["newton", "lbfgs"])
def test_warm_start_takes_fewer_iterations_to_the_same_mode(solver):
    winners, losers = simulate_duels(200, 5_000)
    earlier = fit(200, winners[:-50], losers[:-50], solver=solver)
    cold = fit(203, winners, losers, solver=solver)
    warm = fit(203, winners, losers, init=earlier.mean, solver=solver)
    assert warm.mean == pytest.approx(cold.mean, abs=1e-6)
    assert warm.iterations < cold.iterations
    assert fit(203, winners, losers, init=cold.mean, solver=solver).iterations <= 1


def test_a_hopeless_init_costs_no_more_than_none():
    duels = simulate_duels(100, 1_000)
    cold = fit(100, *duels, prior_sd=1e3)
    started = fit(100, *duels, prior_sd=1e3, init=np.random.default_rng(2).normal(scale=1e4, size=100))
    assert started.iterations == cold.iterations


@pytest.mark.parametrize("lead", [5, 10])
def test_an_init_beyond_the_mode_converges_where_full_newton_steps_cycle(lead):
    winners = np.repeat([0, 1], [1_000, 1])
    cold = fit(2, winners, 1 - winners, prior_sd=10)
    started = fit(2, winners, 1 - winners, prior_sd=10, init=[lead, -lead])
    assert started.mean == pytest.approx(cold.mean, abs=1e-7)
    assert started.iterations < 30


def test_fit_leaves_init_as_it_was():
    init = np.array([5.0, -5.0])
    fit(2, [1], [0], init=init)
    assert init.tolist() == [5.0, -5.0]


@pytest.mark.parametrize("prior_sd", [0.01, 1, 10, 1e3])
def test_complete_separation_has_a_finite_mode_with_no_gradient(prior_sd):
    winners, losers = np.triu_indices(150, 1)
    mean = fit(150, winners, losers, prior_sd=prior_sd).mean
    assert (np.diff(mean) < 0).all()
    upset = win_probability(mean[losers], mean[winners])
    gradient = mean / prior_sd**2 - np.bincount(winners, upset, 150) + np.bincount(losers, upset, 150)
    assert np.linalg.norm(gradient) * prior_sd < 2e-8


def test_one_pair_solves_its_scalar_equation():
    """With 1,000 wins of item 0 over item 1: mean_0 = -mean_1 = m with m = 1,000 (1 - sigma(2 m))."""
    mean = fit(2, np.zeros(1_000, dtype=np.int64), np.ones(1_000, dtype=np.int64)).mean
    assert mean[0] == pytest.approx(-mean[1])
    assert mean[0] == pytest.approx(1_000 / (1 + np.exp(2 * mean[0])))


def test_contradictory_duels_cancel_in_the_mean_and_count_in_the_sd():
    posterior = fit(2, [0, 1, 0, 1], [1, 0, 1, 0])
    assert posterior.mean == pytest.approx([0, 0], abs=1e-12)
    assert posterior.sd == pytest.approx([1 / np.sqrt(2)] * 2)


def test_no_duels_return_the_prior():
    posterior = fit(3, [], [], prior_sd=2.5, init=[4.0, -1.0])
    assert posterior.mean.tolist() == [0, 0, 0]
    assert posterior.sd == pytest.approx([2.5] * 3)
    assert fit(0, [], []).mean.shape == (0,)


@pytest.mark.parametrize("solver", ["newton", "lbfgs"])
def test_items_without_duels_keep_the_prior(solver):
    posterior = fit(4, [1, 1], [3, 3], prior_sd=0.7, solver=solver)
    assert posterior.mean[[0, 2]] == pytest.approx([0, 0], abs=1e-9)
    assert posterior.sd[[0, 2]] == pytest.approx([0.7, 0.7])
    assert posterior.sd[1] < 0.7


def test_cost_does_not_grow_with_repeated_duels():
    """A million duels of one pair: counted first, each iteration touches one pair."""
    winners = np.arange(1_000_000) % 3 == 0
    mean = fit(2, winners.astype(np.int64), (~winners).astype(np.int64), prior_sd=100).mean
    assert win_probability(mean[1], mean[0]) == pytest.approx(1 / 3, abs=1e-5)


def test_recovers_the_order_of_two_thousand_items():
    rng = np.random.default_rng(1)
    winners, losers = simulate_duels(2_500, 60_000, seed=1, scale=2)
    utilities = rng.normal(scale=2, size=2_500)
    posterior = fit(2_500, winners, losers, prior_sd=2)
    assert np.corrcoef(posterior.mean, utilities)[0, 1] > 0.95
    inside = np.abs(posterior.mean - utilities) < 1.96 * posterior.sd
    assert 0.9 < inside.mean() < 0.98


def test_win_probability_is_the_logistic_of_the_difference_and_never_overflows():
    assert win_probability(1.0, 0.0) == pytest.approx(0.7310585786)
    assert win_probability([1e4, -1e4, 0], 0).tolist() == [1, 0, 0.5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"winners": [0, 1], "losers": [1]}, "equal lengths, got 2 and 1"),
        ({"winners": [0, 2], "losers": [1, 2]}, "two items in each duel, got item 2 twice"),
        ({"winners": [3], "losers": [1]}, r"winners: expected indices in 0\.\.2, got 3\.\.3"),
        ({"winners": [1], "losers": [-1]}, r"losers: expected indices in 0\.\.2, got -1\.\.-1"),
        ({"winners": [1.0], "losers": [0]}, "winners: expected integers"),
        ({"winners": [[1]], "losers": [[0]]}, "winners: expected integers of shape"),
        ({"scores": [1.0, 1.0]}, r"scores: expected shape \(1,\), one per duel, got \(2,\)"),
        ({"scores": [1.5]}, r"scores: expected shares of a win in \[0, 1\]"),
        ({"scores": [float("nan")]}, r"scores: expected shares"),
        ({"prior_sd": 0.0}, "prior_sd: expected a positive finite number, got 0.0"),
        ({"prior_sd": -1.0}, "prior_sd"),
        ({"prior_sd": float("nan")}, "prior_sd"),
        ({"init": [0.0] * 4}, "init: expected shape"),
        ({"init": [float("nan")]}, "init: expected finite"),
        ({"solver": "adam"}, "solver: expected 'newton' or 'lbfgs', got 'adam'"),
        ({"n_items": -1, "winners": [], "losers": []}, "n_items"),
    ],
)
def test_refuses_malformed_input_in_one_line(arguments, message):
    with pytest.raises(ValueError, match=message) as caught:
        fit(**{"n_items": 3, "winners": [0], "losers": [1], **arguments})
    assert "\n" not in str(caught.value)
