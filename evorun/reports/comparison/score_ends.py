"""Says which arms' scores lie at both ends of their range alone, since their means then look like those of others."""

from collections.abc import Iterator, Sequence

from evorun.reports import text
from evorun.reports.comparison.arms import Arm

MIN_SCORES = 8
"""Fewer scores may lie there by chance (ours)."""


def describe_scores_at_ends(arms: Sequence[Arm]) -> Iterator[str]:
    """Yield a sentence for each arm whose scores are all at an end of their range while those of others lie between.

    Both ends have some. Rates have no values between, and random baselines do not count.
    """
    found = [
        (arm, [value for run in arm.runs for value in run.values(arm.primary).values()])
        for arm in arms
        if not (arm.is_baseline or arm.primary.rate)
    ]
    graded = {
        arm.task for arm, values in found if any(value not in (arm.primary.low, arm.primary.high) for value in values)
    }
    for arm, values in found:
        score = arm.primary
        if score.low is None or score.high is None or arm.task not in graded or len(values) < MIN_SCORES:
            continue
        at_low, at_high = values.count(score.low), values.count(score.high)
        low, high = (text.value(score, end) for end in (score.low, score.high))
        if at_low and at_high and at_low + at_high == len(values):
            yield (
                f"{arm.name}: {at_high:,} of {len(values):,} scores in {text.name_score(score)} are {high} and the "
                f"others {low}, the ends of the range; other arms have scores between."
            )
