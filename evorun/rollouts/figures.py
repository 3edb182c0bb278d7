"""The figures of a batch of episodes."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from evorun.rollouts.episodes import Episode
from evorun.rollouts.rewards import Reward


def measure_batch(episodes: Sequence[Episode], group: int) -> dict[str, float]:
    """Return the figures of a batch; `equal_groups`: the share of groups that have no advantages."""
    rewards = [episode.reward for episode in episodes]
    values = [reward.value for reward in rewards]
    scored = [value for value in values if value is not None]
    groups = [[v for v in values[i : i + group] if v is not None] for i in range(0, len(values), group)]
    answered = [episode.replies for episode in episodes if episode.replies[-1].error is None]
    completions = [replies[-1].completions[0] for replies in answered]
    tokens = [sum(reply.completion_tokens for reply in replies) for replies in answered]
    correct = [reward.correct for reward in rewards if reward.correct is not None]
    # A refused request counts as wrong; responses for a reward model have no known correctness.
    graded = sum(r.correct is not None or (r.value is None and not r.unscored) for r in rewards)
    # Requests that the engine refused have no completion: they are counted separately, and enter no mean.
    rejected = len(episodes) - len(completions)
    unscored = sum(e.reward.value is None and e.replies[-1].error is None for e in episodes)
    kinds = Counter(reward.unscored for reward in rewards if reward.unscored)
    turns = [len(episode.replies) for episode in episodes]
    return {
        **({"reward": sum(scored) / len(scored)} if scored else {}),  # without rewards, no mean rather than 0
        **({"correct": sum(correct) / graded} if correct else {}),
        **_means_of_parts(rewards),
        **({"equal_groups": sum(len(set(values)) <= 1 for values in groups) / len(groups)} if group > 1 else {}),
        "completion_tokens": sum(tokens) / max(len(completions), 1),
        "truncated": sum(completion.truncated for completion in completions) / max(len(completions), 1),
        "rejected": float(rejected),
        "rejected_share": rejected / len(episodes),
        **({"unscored": float(unscored)} if unscored else {}),
        **{f"reward_unscored_{kind}": count / len(rewards) for kind, count in sorted(kinds.items())},
        **({"turns": sum(turns) / len(turns)} if max(turns) > 1 else {}),
    }


def _means_of_parts(rewards: Sequence[Reward]) -> dict[str, float]:
    """Return the mean of each measure that rewards have besides their value."""
    # Format is a share of all episodes: an episode without a reward is not in the task's format.
    if any("formatted" in r.parts for r in rewards) or not any(r.parts or r.unscored for r in rewards):
        return {"formatted": sum(reward.parts.get("formatted", 0.0) for reward in rewards) / len(rewards)}
    names = dict.fromkeys(name for reward in rewards for name in reward.parts)
    return {f"reward_{name}": fmean(r.parts[name] for r in rewards if name in r.parts) for name in names}
