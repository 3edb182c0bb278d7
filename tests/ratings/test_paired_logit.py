"""Bradley-Terry with covariates, weights and bootstrap intervals against optimisation by brute force."""

import numpy as np
import pytest
from scipy.optimize import minimize

from evorun.ratings import bradley_terry
from evorun.ratings.paired_logit import PairedLogit, resample_clusters, resample_matches


def played(matches=400, players=4, length_effect=0.8, ties=0.1, seed=0):
    """Return first, second, score and the difference of log lengths, of players that differ in strength."""
    rng = np.random.default_rng(seed)
    first = rng.integers(players, size=matches)
    second = (first + rng.integers(1, players, size=matches)) % players
    longer = rng.normal(0.6 * (first - second), 1)  # the stronger ones are longer, too
    chance = 1 / (1 + np.exp(-(0.5 * (first - second) + length_effect * longer)))
    score = np.where(rng.random(matches) < ties, 0.5, (rng.random(matches) < chance).astype(float))
    return first, second, score, longer


def brute_force(players, first, second, score, covariates, weights, prior_sd):
    """Minimise the negative log posterior without derivatives of ours; return centred utilities and effects."""
    design = np.hstack([np.eye(players)[first] - np.eye(players)[second], covariates])

    def loss(beta):
        z = design @ beta
        likelihood = score * np.logaddexp(0, -z) + (1 - score) * np.logaddexp(0, z)
        return weights @ likelihood + beta @ beta / (2 * prior_sd**2)

    found = minimize(loss, np.zeros(design.shape[1]), method="BFGS", options={"gtol": 1e-7}).x
    return found[:players] - found[:players].mean(), found[players:]


@pytest.mark.parametrize("prior_sd", [10.0, 0.7])
def test_weighted_fits_with_covariates_are_those_of_brute_force(prior_sd):
    first, second, score, longer = played()
    rng = np.random.default_rng(1)
    covariates, weights = np.stack([longer, rng.normal(size=400)], axis=1), rng.integers(0, 4, 400)
    found = PairedLogit(4, first, second, score, covariates, prior_sd=prior_sd).fit(weights)
    utilities, effects = brute_force(4, first, second, score, covariates, weights, prior_sd)
    assert found.utilities == pytest.approx(utilities, abs=1e-4)
    assert found.effects == pytest.approx(effects, abs=1e-4)


def test_without_covariates_it_is_bradley_terry():
    first, second, score, _ = played()
    found = PairedLogit(4, first, second, score, prior_sd=2).fit()
    oracle = bradley_terry.fit(4, first, second, scores=score, prior_sd=2)
    assert found.utilities == pytest.approx(oracle.mean - oracle.mean.mean(), abs=1e-7)
    assert found.effects.size == 0


def test_at_equal_length_the_ones_that_win_by_length_lose_their_lead():
    first, second, score, longer = played(matches=20000, ties=0)
    plain = PairedLogit(4, first, second, score).fit()
    controlled = PairedLogit(4, first, second, score, longer[:, None]).fit()
    assert controlled.utilities == pytest.approx([-0.75, -0.25, 0.25, 0.75], abs=0.1)
    assert controlled.effects == pytest.approx([0.8], abs=0.1)
    assert np.ptp(plain.utilities) > 1.3 * np.ptp(controlled.utilities)


def test_who_wins_every_match_and_covariates_that_foretell_it_stay_finite():
    found = PairedLogit(3, [0] * 9, [1] * 9, [1] * 9, np.full((9, 1), 30.0)).fit()
    assert np.isfinite(found.utilities).all()
    assert 0 < found.effects[0] < 10
    assert found.utilities[2] == pytest.approx(0, abs=1e-6)
    assert PairedLogit(2, [], [], []).fit().utilities.tolist() == [0, 0]


def test_intervals_are_the_percentiles_of_fits_to_matches_drawn_again():
    first, second, score, longer = played(matches=60, players=3)
    cluster = np.arange(60) % 12
    model = PairedLogit(3, first, second, score, longer[:, None], prior_sd=2)
    found = model.intervals(model.fit(), resample_clusters(cluster, 20, np.random.default_rng(5)))
    fits, rng = [], np.random.default_rng(5)
    for _ in range(20):
        counts = rng.multinomial(12, np.full(12, 1 / 12))
        again = np.concatenate([np.flatnonzero(cluster == one) for one in np.repeat(np.arange(12), counts)])
        data = first[again], second[again], score[again], longer[again, None]
        fits.append(np.concatenate(brute_force(3, *data, np.ones(len(again)), 2)))
    low, high = np.percentile(fits, [2.5, 97.5], axis=0)
    assert np.concatenate(found.low) == pytest.approx(low, abs=1e-3)
    assert np.concatenate(found.high) == pytest.approx(high, abs=1e-3)


def test_matches_drawn_again_keep_their_number_and_follow_their_counts():
    drawn = np.array(list(resample_matches([6, 0, 3, 1], 2000, np.random.default_rng(0))))
    assert set(drawn.sum(axis=1)) == {10}
    assert drawn.mean(axis=0) == pytest.approx([6, 0, 3, 1], abs=0.15)
    assert drawn.var(axis=0) == pytest.approx([2.4, 0, 2.1, 0.9], abs=0.25)
