"""Choices among samples with answers and rewards: votes that rewards weigh, exact and free of calls.

Every rule chooses an answer first and then, among the samples that give it, the one with the highest reward. The
earliest of equals goes before. Answers are compared as they are, so notations of one answer are made equal before.
"""

import itertools
from collections.abc import Sequence
from fractions import Fraction
from math import isqrt
from typing import TypeVar

import numpy as np

Number = TypeVar("Number", float, Fraction)

SHRINKAGE = Fraction(3, 4)
"""Ratio of neighbours in the list of m that `choose_draws` compares (arXiv 2511.18630)."""


def count_best_of_m(rewards: Sequence[float], m: int) -> list[Fraction]:
    """Return how many of the n^m draws of `m` among n samples, with replacement, each sample wins by its reward.

    Exact: the i-th of the descending rewards, from 1, wins (n - i + 1)^m - (n - i)^m draws; equal rewards share theirs.
    Divided by n^m, they are the probabilities of being the best of m. Raises ValueError unless m >= 1.
    """
    if m < 1:
        raise ValueError(f"m: expected a number >= 1, got {m}")
    n = len(rewards)
    order = sorted(range(n), key=lambda index: -rewards[index])
    wins = [Fraction(0)] * n
    start = 0
    while start < n:
        end = start
        while end < n and rewards[order[end]] == rewards[order[start]]:
            end += 1
        share = Fraction((n - start) ** m - (n - end) ** m, end - start)
        for index in order[start:end]:
            wins[index] = share
        start = end
    return wins


def choose_draws(answers: Sequence[str], rewards: Sequence[float]) -> int:
    """Return the m at which the best-of-m distribution of the answers changes least (arXiv 2511.18630, adaptive m).

    It is one of m_j = floor(0.75^j n); the L1 distance to the next larger one decides, and the smallest of equals.
    """
    n, tried = len(answers), list[int]()
    ratio = Fraction(1)
    while (m := int(ratio * n)) >= 1:
        tried += [m] if m not in tried else []
        ratio *= SHRINKAGE
    shares = {m: _sum_by_answer(answers, [w / n**m for w in count_best_of_m(rewards, m)]) for m in tried}
    distances = [
        (sum(abs(shares[smaller][answer] - share) for answer, share in shares[larger].items()), smaller)
        for larger, smaller in itertools.pairwise(tried)
    ]
    return min(distances, default=(Fraction(0), 1))[1]


def majority_of_bests(answers: Sequence[str], rewards: Sequence[float], m: int | None = None) -> int | None:
    """Return the sample of the answer that best-of-m gives most often (arXiv 2511.18630); None without samples.

    m: draws with replacement; None: floor(sqrt n). m = 1 is the majority vote.
    """
    if not answers:
        return None
    return _choose(answers, count_best_of_m(rewards, m or isqrt(len(answers))), rewards)


def weighted_vote(answers: Sequence[str], rewards: Sequence[float]) -> int | None:
    """Return the sample of the answer with the largest sum of rewards; None without samples.

    Rewards are meant to be >= 0: a negative one makes an answer lose by being given more often.
    """
    return _choose(answers, rewards, rewards) if answers else None


def best_of_majority(answers: Sequence[str], rewards: Sequence[float], min_share: float) -> int | None:
    """Return the sample of the answer with the highest mean reward among frequent ones (arXiv 2510.03199, one choice).

    min_share: least share of the samples, in [0, 1]; where no answer has it, all answers stay. None without samples.
    """
    if not answers:
        return None
    counts = _sum_by_answer(answers, [1.0] * len(answers))
    frequent = {answer for answer, count in counts.items() if count >= min_share * len(answers)} or set(counts)
    means = [reward / counts[answer] for answer, reward in zip(answers, rewards, strict=True)]
    kept = [index for index, answer in enumerate(answers) if answer in frequent]
    chosen = _choose([answers[i] for i in kept], [means[i] for i in kept], [rewards[i] for i in kept])
    return kept[chosen]


def find_surest(confidences: Sequence[float], keep: float) -> list[bool]:
    """Return which samples are among the share `keep` of the surest (DeepConf, arXiv 2508.15260, section 3.2).

    keep: in (0, 1]; those at the percentile of the confidences are kept, too.
    """
    least = float(np.percentile(confidences, 100 * (1 - keep))) if confidences else 0.0
    return [confidence >= least for confidence in confidences]


def best(rewards: Sequence[float]) -> int | None:
    """Return the sample with the highest reward, the earliest of equals; None without samples."""
    return max(range(len(rewards)), key=rewards.__getitem__) if rewards else None


def _choose(answers: Sequence[str], votes: Sequence[Number], rewards: Sequence[float]) -> int:
    """Return the sample with the highest reward of the answer with the most votes."""
    totals = _sum_by_answer(answers, votes)
    elected = max(totals, key=totals.__getitem__)
    return max((i for i, answer in enumerate(answers) if answer == elected), key=rewards.__getitem__)


def _sum_by_answer(answers: Sequence[str], votes: Sequence[Number]) -> dict[str, Number]:
    """Return the sum of the votes for each answer, in the order of their first appearance."""
    totals: dict[str, Number] = {}
    for answer, vote in zip(answers, votes, strict=True):
        totals[answer] = totals[answer] + vote if answer in totals else vote
    return totals
