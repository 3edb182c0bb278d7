"""Signs that training has gone wrong: seen where they are, said when they begin, and not seen in sound training."""

from collections.abc import Mapping, Sequence

import numpy as np

from evorun.training.divergence import Divergence


def seen(steps: Sequence[Mapping[str, float]]) -> tuple[list[list[str]], list[str]]:
    """Return the signs of each step, and what was said."""
    said: list[str] = []
    divergence = Divergence(said.append)
    sound = {"grad_norm": 0.3, "equal_groups": 0.2, "entropy": 1.0, "entropy_fraction": 0.1, "reward": 0.5}
    return [sorted(divergence.signs(step, {**sound, **own})) for step, own in enumerate(steps, 1)], said


def test_a_gradient_of_zero_though_rewards_differ() -> None:
    signs, said = seen([{}, {"grad_norm": 0.0}, {"grad_norm": 0.0}, {"grad_norm": 0.0, "equal_groups": 1.0}])
    assert signs == [[], ["zero_gradient"], ["zero_gradient"], []]
    assert said == ["step 2: the gradient is zero though rewards differ, so nothing is learned"]


def test_tokens_drawn_nearly_at_random() -> None:
    signs, said = seen([{"entropy": 10.7, "entropy_fraction": 0.99}, {}, {"entropy": 10.7, "entropy_fraction": 0.99}])
    assert signs == [["nearly_uniform"], [], ["nearly_uniform"]]
    assert [line[:36] for line in said] == [f"step {step}: the policy's entropy is 10.7" for step in (1, 3)]
    assert "99% of the largest" in said[0]


def test_a_reward_that_collapses() -> None:
    rewards = [0.4, 0.5, 0.6, 0.5, 0.5, 0.6, 0.1, 0.0, 0.0, 0.0, 0.0]
    signs, said = seen([{"reward": one} for one in rewards])
    assert signs == [*[[]] * 10, ["reward_collapse"]]
    assert said == [
        "step 11: the mean reward of 5 steps has fallen to 0.02, from 0.54 at its best; lower training.learning_rate"
    ]


def test_rewards_are_compared_on_one_scale_alone() -> None:
    """The reward is changed before the sixth step; in the seventh nothing is rewarded."""
    said: list[str] = []
    divergence = Divergence(said.append)
    rewards = [{"reward": 5.0}] * 5 + [{"reward": 0.2}, {}, *[{"reward": 0.2}] * 4]
    signs = [divergence.signs(step, one, scale=step // 6) for step, one in enumerate(rewards, 1)]
    assert (signs, said) == ([{}] * 11, [])
    assert [divergence.signs(step, {"reward": 0.0}, scale=1) for step in range(12, 16)][-1] == {"reward_collapse": 1.0}


def test_noise_is_no_collapse() -> None:
    """Of 40 completions a step, right one time in ten: 50 runs of 100 steps."""
    rng = np.random.default_rng(0)
    rewards = rng.binomial(40, 0.1, size=(50, 100)) / 40
    assert sum(bool(seen([{"reward": float(one)} for one in run])[1]) for run in rewards) <= 1


def test_a_step_without_an_update_has_no_gradient_to_look_at() -> None:
    said: list[str] = []
    assert Divergence(said.append).signs(1, {"reward": 0.0, "equal_groups": 1.0}) == {}
    assert said == []


def test_refused_requests_in_more_than_a_tenth_of_the_episodes() -> None:
    """Said with the reason of most, when they begin, and beside other signs, which have their own steps."""
    said: list[str] = []
    divergence = Divergence(said.append)
    tenth = [None] * 9 + ["the context takes 8192"]
    more = [None] * 7 + ["the context takes 8192", "no role tool", "no role tool"]
    flat = {"grad_norm": 0.0, "equal_groups": 0.0}
    found = [
        sorted(divergence.rejections(step, errors) | divergence.signs(step, flat))
        for step, errors in enumerate((tenth, more, more, tenth, more), 1)
    ]
    assert found == [["zero_gradient"], *[["many_rejected", "zero_gradient"]] * 2, ["zero_gradient"], found[1]]
    line = "3 of 10 episodes ended in a request that the engine refused, most often because: no role tool"
    assert [one for one in said if "gradient" not in one] == [f"step 2: {line}", f"step 5: {line}"]
    assert len(said) == 3
