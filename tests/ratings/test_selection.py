"""Votes that rewards weigh, against enumerations of all draws, simulated draws and the package scorio."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.ratings import selection

SAMPLES = st.lists(st.tuples(st.sampled_from("ABCD"), st.sampled_from([0.0, 0.1, 0.2, 0.5, 1.0])), min_size=1)


def enumerated(rewards: list[float], m: int) -> list[Fraction]:
    """Return how many of all draws each sample wins: the winners of a draw share it by how often they are in it.

    Samples with equal rewards are as likely as one another, so that each of them has the same share in the end.
    """
    wins = [Fraction(0)] * len(rewards)
    for draw in product(range(len(rewards)), repeat=m):
        top = [index for index in draw if rewards[index] == max(rewards[i] for i in draw)]
        for index in top:
            wins[index] += Fraction(1, len(top))
    return wins


@pytest.mark.parametrize("rewards", [[0.3, 0.1, 0.2, 0.9, 0.5], [0.5, 0.5, 0.1, 0.5, 0.1], [1.0, 1.0, 1.0], [0.2]])
def test_the_wins_of_best_of_m_are_those_of_all_draws(rewards: list[float]) -> None:
    for m in range(1, 6):
        assert selection.count_best_of_m(rewards, m) == enumerated(rewards, m)


def test_one_draw_is_a_majority_and_many_are_the_best() -> None:
    answers, rewards = list("AABBBC"), [0.1, 0.2, 0.3, 0.1, 0.2, 0.9]
    assert selection.majority_of_bests(answers, rewards, 1) == 2  # B, its best sample
    assert selection.majority_of_bests(answers, rewards, 6) == 5
    assert selection.best(rewards) == 5
    assert [selection.best([]), selection.majority_of_bests([], []), selection.weighted_vote([], [])] == [None] * 3
    with pytest.raises(ValueError, match=r"^m: expected a number >= 1, got 0$"):
        selection.count_best_of_m([1.0], 0)


@given(SAMPLES.filter(lambda samples: len(samples) <= 30))
def test_adaptive_draws_are_where_the_answers_distribution_changes_least(samples: list[tuple[str, float]]) -> None:
    """The same choice by floating-point shares, as the specification writes it."""
    answers, rewards = map(list, zip(*samples, strict=True))
    n = len(answers)
    tried = list(dict.fromkeys(m for j in range(60) if (m := int(0.75**j * n)) >= 1))

    def shares(m: int) -> dict[str, float]:
        found = Counter[str]()
        for answer, wins in zip(answers, selection.count_best_of_m(rewards, m), strict=True):
            found[answer] += float(wins / n**m)
        return found

    distances = {
        small: sum(abs(shares(large)[answer] - shares(small)[answer]) for answer in set(answers))
        for large, small in pairwise(tried)
    }
    chosen = selection.choose_draws(answers, rewards)
    assert chosen in distances or (chosen == 1 and n == 1)
    assert distances.get(chosen, 0.0) <= min(distances.values(), default=0.0) + 1e-9


def test_a_frequency_gate_drops_the_lucky_outlier_and_no_answer_is_too_rare_where_all_are() -> None:
    answers, rewards = list("AAAB"), [0.5, 0.55, 0.6, 0.99]
    assert selection.best_of_majority(answers, rewards, 0.0) == 3
    assert selection.best_of_majority(answers, rewards, 0.5) == 2
    assert selection.best_of_majority(list("ABCD"), rewards, 0.5) == 3


def test_the_surest_tenth_is_kept_with_those_at_its_percentile() -> None:
    assert [sum(selection.find_surest(list(range(20)), keep)) for keep in (0.1, 0.5, 1.0)] == [2, 10, 20]
    assert selection.find_surest([3.0, 3.0, 1.0], 0.1) == [True, True, False]
    assert selection.find_surest([], 0.1) == []


@given(SAMPLES)
def test_votes_are_scorios(samples: list[tuple[str, float]]) -> None:
    """It breaks equal rewards by their order, where here they share; so these are made different."""
    aggregate = pytest.importorskip("scorio").aggregate
    answers, rewards = map(list, zip(*samples, strict=True))
    rewards = [reward + index / 1024 for index, reward in enumerate(rewards)]
    for m in {1, 2, len(answers)}:
        _, chosen = aggregate.majority_of_the_bests(answers, rewards, m=min(m, len(answers)), return_index=True)
        assert selection.majority_of_bests(answers, rewards, min(m, len(answers))) == chosen
    _, chosen = aggregate.majority_of_the_bests(answers, rewards, return_index=True)
    assert selection.majority_of_bests(answers, rewards) == chosen
    for min_share in (0.0, 0.25, 0.5):
        _, chosen = aggregate.best_of_majority(answers, rewards, alpha=min_share, return_index=True)
        assert selection.best_of_majority(answers, rewards, min_share) == chosen
    _, chosen = aggregate.weighted_majority_vote(answers, rewards, return_index=True)
    assert selection.weighted_vote(answers, rewards) == chosen


def test_best_of_m_is_what_simulated_draws_give() -> None:
    rng = np.random.default_rng(0)
    rewards = np.round(rng.random(16), 1)
    for m in (4, 16):
        drawn = rng.integers(0, 16, (50_000, m))
        noisy = rewards[drawn] + 1e-9 * rng.random(drawn.shape)  # equal rewards win alike
        wins = np.bincount(drawn[np.arange(50_000), noisy.argmax(1)], minlength=16) / 50_000
        exact = [float(count / 16**m) for count in selection.count_best_of_m(rewards.tolist(), m)]
        assert np.abs(wins - exact).max() < 0.01
