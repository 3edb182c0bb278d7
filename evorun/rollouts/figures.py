"""The figures of a batch of episodes."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from evorun.rollouts.episodes import Episode
from evorun.rollouts.rewards import Reward


def measure_batch(episodes: Sequence[Episode], group: int) -> dict[str, float]:
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
