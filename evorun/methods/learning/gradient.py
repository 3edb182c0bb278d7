"""The policy gradient of a batch of episodes: hyperparameters, advantages and figures (E-SPL, section 3.1)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from evorun.errors import ConfigError, above, at_least, one_of
from evorun.rollouts.episodes import Episode
from evorun.rollouts.rewards import Reward

LOSSES = ("grpo", "dr_grpo", "dapo", "bnpo")
"""TRL's names of the ways to weigh a batch's tokens; `cispo` has its own importance weights."""
BASELINES = ("draw", "problem")


@dataclass(kw_only=True)
class GradientSettings:
    """Hyperparameters of weight updates, part of the configuration of every method that makes them."""

    minibatches: int
    """Optimiser steps that a batch is divided into."""
    kl: float
    """Weight of the divergence from the reference policy (beta)."""
    clip_low: float
    clip_high: float
    """Bound on the ratio of a token's probability to the sampler's: beyond 1 - clip_low and 1 + clip_high times as
    large nothing is learned. With `cispo` the ratio is cut at these bounds themselves, and goes on weighing."""

    def __post_init__(self) -> None:
        at_least("method.minibatches", self.minibatches, 1)
        at_least("method.kl", self.kl, 0)
        at_least("method.clip_low", self.clip_low, 0)
        above("method.clip_high", self.clip_high, 0)

    def require_bounds_of_cispo(self) -> None:
        """Raise ConfigError where a ratio of 1, that of the sampler's own policy, is out of bounds."""
        if self.clip_low > 1 or self.clip_high < 1:
            raise ConfigError(
                "method.clip_low, method.clip_high: with cispo expected bounds of the ratio itself, with 1 between "
                f"them (its authors': 0.0 and 4.0), got {self.clip_low} and {self.clip_high}"
            )


@dataclass(kw_only=True)
class BaselineSettings:
    """Hyperparameters of advantages, of methods that play a problem under several draws of system prompts."""

    baseline: str
    """draw | problem: a reward is measured by the mean reward of its problem under the same draw of a system prompt, or
    under all that a step has drawn."""

    def __post_init__(self) -> None:
        one_of("method.baseline", self.baseline, BASELINES)


def advantages(episodes: Sequence[Episode], group: int, *, leave_one_out: bool = False) -> list[float | None]:
    """Return each reward less the mean of its group (equation 2), or of the others in it; None without a reward.

    group: as many consecutive episodes are of one problem, under one draw of a system prompt or under all.
    """
    result: list[float | None] = []
    for first in range(0, len(episodes), group):
        rewards = [one.reward.value for one in episodes[first : first + group]]
        scored = [value for value in rewards if value is not None]
        # Of equal ones exactly theirs: a sum's rounding would make something to learn of nothing.
        mean = scored[0] if len(set(scored)) == 1 else sum(scored) / max(len(scored), 1)
        # The mean of the others is as far from a reward as that of all is, times n / (n - 1).
        scale = len(scored) / max(len(scored) - 1, 1) if leave_one_out else 1.0
        result += [None if value is None else scale * (value - mean) for value in rewards]
    return result


def figures(episodes: Sequence[Episode], group: int) -> dict[str, float]:
    """Return the figures of a batch; `equal_groups`: the share of groups that have no advantages."""
    rewards = [one.reward for one in episodes]
    values = [reward.value for reward in rewards]
    scored = [value for value in values if value is not None]
    groups = [[v for v in values[i : i + group] if v is not None] for i in range(0, len(values), group)]
    answered = [one.replies for one in episodes if one.replies[-1].error is None]
    completions = [replies[-1].completions[0] for replies in answered]
    tokens = [sum(reply.completion_tokens for reply in replies) for replies in answered]
    correct = [reward.correct for reward in rewards if reward.correct is not None]
    # A refused request is not right either; of what a reward model scored, or should have, nothing is known.
    graded = sum(one.correct is not None or (one.value is None and not one.unscored) for one in rewards)
    # Requests that the engine refused have no completion: they are counted apart, and in no mean.
    rejected = len(episodes) - len(completions)
    unscored = sum(one.reward.value is None and one.replies[-1].error is None for one in episodes)
    kinds = Counter(reward.unscored for reward in rewards if reward.unscored)
    turns = [len(one.replies) for one in episodes]
    return {
        **({"reward": sum(scored) / len(scored)} if scored else {}),  # none is not 0
        **({"correct": sum(correct) / graded} if correct else {}),
        **_means_of_parts(rewards),
        **({"equal_groups": sum(len(set(values)) <= 1 for values in groups) / len(groups)} if group > 1 else {}),
        "completion_tokens": sum(tokens) / max(len(completions), 1),
        "truncated": sum(one.truncated for one in completions) / max(len(completions), 1),
        "rejected": float(rejected),
        "rejected_share": rejected / len(episodes),
        **({"unscored": float(unscored)} if unscored else {}),
        **{f"reward_unscored_{kind}": count / len(rewards) for kind, count in sorted(kinds.items())},
        **({"turns": sum(turns) / len(turns)} if max(turns) > 1 else {}),
    }


def _means_of_parts(rewards: Sequence[Reward]) -> dict[str, float]:
    """Return the mean of each measure that rewards have beside their value."""
    # Format is a share of all episodes: one without a reward is not in the task's format either.
    if any("formatted" in one.parts for one in rewards) or not any(one.parts or one.unscored for one in rewards):
        return {"formatted": sum(one.parts.get("formatted", 0.0) for one in rewards) / len(rewards)}
    names = dict.fromkeys(name for one in rewards for name in one.parts)
    return {f"reward_{name}": fmean(one.parts[name] for one in rewards if name in one.parts) for name in names}
