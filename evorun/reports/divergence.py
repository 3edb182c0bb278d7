"""Divergence of the training reward from the gold score: the policy is paid for what the gold judge does not see.

The rule is ours. Training reward and gold score diverge at an evaluation where, compared with an earlier one,

- the gold score has fallen. The mean of the paired differences, on the problems that both evaluations scored, is below
  0, and so is Student's whole 95 % interval. All pairs of evaluations share its level (Bonferroni), since the earlier
  one is the best so far;
- the training reward, its mean over the last `WINDOW` steps, has risen by more than `STANDARD_ERRORS` standard errors
  of the difference. If the gold score had fallen at the previous evaluation, too, it is enough that the reward fell by
  no more than that at both. So a reward at its ceiling diverges from a falling score, and one that falls a little
  later does not.

The earlier evaluation is the one with the best gold score so far, or the best since the rubric last changed. Rewards by
different rubrics are different measures, and a stricter rubric must hide nothing.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

from evorun.runs.statistics import t_interval

WINDOW = 5
"""Training steps per mean of the reward."""
STANDARD_ERRORS = 2.0
CONFIDENCE = 0.95
_MEDIAN = 0.4549
"""Median of the square of a standard normal variable (chi-squared with one degree of freedom)."""

GoldScores = Mapping[int, Mapping[str, float]]
"""By an evaluation's step: the utility of each problem's gold score; greater is better."""


class Change(NamedTuple):
    """The change between two evaluations."""

    first: int
    """The steps of the two evaluations."""
    last: int
    gold: tuple[float, float]
    """Means before and after, over their common problems."""
    reward: tuple[float, float]
    """Means over windows of steps."""

    @property
    def rise(self) -> float:
        """Rise of the reward."""
        return self.reward[1] - self.reward[0]


class Divergence(NamedTuple):
    """Evaluations at which reward and gold score diverge."""

    first: Change
    worst: Change
    """The change with the lowest gold score."""
    until: int
    """The last evaluation at which they diverge."""
    still: bool
    """True if that is the run's last evaluation."""


def find_divergence(rewards: Mapping[int, float], gold: GoldScores, refined: Iterable[int] = ()) -> Divergence | None:
    """Return where the reward and the gold score diverge; None if they do not.

    rewards: by training step, all on one scale. refined: the steps after which the rubric changed.
    """
    evaluations, changes = sorted(step for step, scores in gold.items() if scores), sorted(refined)
    pairs = len(evaluations) * (len(evaluations) - 1) // 2
    if not pairs or len(rewards) < 2:
        return None
    tolerance = STANDARD_ERRORS * _noise(rewards)
    found: list[Change] = []
    before: list[Change] = []
    for step in evaluations:
        fallen = []
        for began in sorted({0, *[refinement for refinement in changes if refinement < step][-1:]}):
            change = _since(began, step, rewards, gold)
            if change is not None and _has_fallen(change, gold, pairs) and change.rise >= -tolerance:
                fallen.append(change)
        found += [change for change in fallen if change.rise > tolerance or before][:1]
        before = fallen
    if not found:
        return None
    worst = min(found, key=lambda change: change.gold[1])
    until = found[-1].last
    return Divergence(found[0], worst, until, still=until == evaluations[-1])


def _since(began: int, evaluation: int, rewards: Mapping[int, float], gold: GoldScores) -> Change | None:
    """Return the change from the best evaluation since a step; None without one, or with too few rewards to tell."""
    earlier = [step for step in gold if began <= step < evaluation and gold[step]]
    steps = [step for step in sorted(rewards) if began < step <= evaluation]
    if not earlier or len(steps) <= WINDOW:
        return None
    first = max(sorted(earlier), key=lambda step: fmean(gold[step].values()))
    common = sorted(gold[first].keys() & gold[evaluation].keys())
    means = [fmean([gold[step][problem] for problem in common] or [0.0]) for step in (first, evaluation)]
    until = [step for step in steps if step <= first][-WINDOW:]
    # While there are too few, use the first steps.
    windows = [until if len(until) == WINDOW else steps[:WINDOW], steps[-WINDOW:]]
    recent = [fmean(rewards[step] for step in window) for window in windows]
    return Change(first, evaluation, (means[0], means[1]), (recent[0], recent[1]))


def _has_fallen(change: Change, gold: GoldScores, pairs: int) -> bool:
    before, after = gold[change.first], gold[change.last]
    differences = [after[problem] - before[problem] for problem in sorted(before.keys() & after.keys())]
    interval = t_interval(differences, 1 - (1 - CONFIDENCE) / pairs)
    return interval is not None and interval[1] < 0


def _noise(rewards: Mapping[int, float]) -> float:
    """Return the standard error of a difference of two windows' means.

    The differences of neighbouring steps show the noise, unaffected by a trend. Their median ignores the few steps at
    which the rubric changes.
    """
    values = [rewards[step] for step in sorted(rewards)]
    variance = median((first - second) ** 2 for first, second in pairwise(values)) / 2 / _MEDIAN
    return float((2 * variance / WINDOW) ** 0.5)
