"""Reinforcement learning on a task's training split under one fixed prompt: `grpo`, `cispo` and `rloo`.

The baselines "RL only" of E-SPL (section 4.1), with its objective (section 3.1): N completions of each problem are
sampled and rewarded, and each one's advantage is its reward minus the mean of the N (with `rloo`: of the others), not
divided by their standard deviation. TRL's GRPOTrainer does the rest; what it is told is in `objective`.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from evorun.errors import ConfigError, above, at_least, one_of
from evorun.methods.base import DatasetLevel
from evorun.methods.context import RunContext
from evorun.methods.evaluation import Evaluations, EvaluationSettings
from evorun.methods.proposals import SamplingSettings
from evorun.rollouts.calls import Role
from evorun.rollouts.episodes import Asked, Episode, Rollouts
from evorun.rollouts.rewards import Graded
from evorun.runs.candidates import Step
from evorun.tasks.base import Problem, Prompt, Task
from evorun.tasks.capabilities import Generates, Instructs
from evorun.training.wire import PolicyGradient

ROLE = "rollout"
LOSSES = ("grpo", "dr_grpo", "dapo", "bnpo")


@dataclass(kw_only=True)
class PolicyGradientConfig(EvaluationSettings, SamplingSettings):
    """Hyperparameters that the three methods share; their YAML files give each default and its source."""

    name: str
    steps: int
    """Training steps, one batch each."""
    problems_per_step: int
    group: int
    """Completions of each problem in a batch."""
    system_prompt: str | None
    """The fixed system prompt; null: the task's own prompt for an answer."""
    format_reward: float
    """Added to the reward of a response in the task's format.

    The reward is 1 for a correct response and else 0. On a task without right and wrong it is the primary score: where
    its range is known brought to [0, 1], 1 the best; else as it is, negated where lower is better.
    """
    minibatches: int
    """Optimiser steps that a batch is divided into; clipping acts from the second one on."""
    kl: float
    """Weight of the divergence from the reference policy (beta)."""
    clip_low: float
    clip_high: float
    """With `cispo` importance weights are cut above this, and their gradient with them is not."""

    def __post_init__(self) -> None:
        SamplingSettings.__post_init__(self)
        EvaluationSettings.__post_init__(self)
        for key in ("steps", "problems_per_step", "minibatches"):
            at_least(f"method.{key}", getattr(self, key), 1)
        at_least("method.group", self.group, 2)
        for key in ("format_reward", "kl"):
            at_least(f"method.{key}", getattr(self, key), 0)
        above("method.temperature", self.temperature, 0)
        above("method.clip_low", self.clip_low, 0)
        above("method.clip_high", self.clip_high, 0)

    @property
    def rows(self) -> int:
        """Completions in a batch."""
        return self.problems_per_step * self.group


@dataclass(kw_only=True)
class GrpoConfig(PolicyGradientConfig):
    """Hyperparameters; `conf/method/grpo.yaml` gives each default and its source."""

    loss: str
    """grpo | dr_grpo | dapo | bnpo: how TRL weighs a batch's tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("method.loss", self.loss, LOSSES)


class _PolicyGradientMethod(DatasetLevel):
    """The loop that the three share."""

    regime = "labels"
    needs = (Generates,)
    roles: ClassVar = {ROLE: Role("policy", lag=1)}  # completions come before the step's update
    trains = True
    learns_from_problems = True
    leave_one_out: ClassVar[bool] = False
    """A completion's own reward is left out of its baseline."""
    loss: str = "dr_grpo"
    """TRL's name of the loss."""
    Config: ClassVar[type[PolicyGradientConfig]] = PolicyGradientConfig
    config: PolicyGradientConfig

    @property
    def last_step(self) -> int:
        return self.config.steps

    def incompatibility(self, task: type[Task]) -> str | None:
        if self.config.system_prompt is not None and not issubclass(task, Instructs):
            return f"method.system_prompt: task={task.name} takes no system prompt; leave it null"
        return None

    def objective(self, run: Path) -> PolicyGradient:
        config = self.config
        return PolicyGradient(
            loss=self.loss,
            rows=config.rows,
            steps=config.steps,
            minibatches=config.minibatches,
            kl=config.kl,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            temperature=config.temperature,
            max_tokens=config.max_tokens,
        )

    async def learn(self, ctx: RunContext) -> AsyncIterator[Mapping[str, Step]]:
        """Sample, reward, update; evaluate every so many steps; leave the adapter in artifacts/."""
        training, evaluations = ctx.training, Evaluations(ctx, self.config)
        rewards = Graded(ctx.shared, training.task, training.grade, self.config.format_reward)
        rollouts = Rollouts(ctx.shared, training.task, ROLE, rewards, learned=True)
        tests = {one.id: self._prompt(ctx.context_for(one).task, one) for one in ctx.problems}
        yield await evaluations.evaluate(0, tests)
        evaluated = step = 0
        for step in range(1, self.config.steps + 1):
            problems = [one for one in self._batch(ctx, step) for _ in range(self.config.group)]
            # A step is made only if the budget covers the evaluation after it, too.
            needed = rollouts.most_calls(problems) + evaluations.most_calls
            if ctx.shared.affordable(needed, ROLE) < needed:
                ctx.warn(
                    f"the budget ends training before step {step} of {self.config.steps}: a step and the evaluation "
                    f"after it take {needed} calls"
                )
                step -= 1
                break
            asked = [Asked(problem, self._prompt(training.task, problem)) for problem in problems]
            episodes = await rollouts.play(step, asked, self.config.sampling)
            figures = _figures(episodes, self.config.group)
            advantages = self._advantages([one.reward.value for one in episodes])
            ctx.record_rollouts(step, episodes, advantages)
            # Nothing is learned from what the engine refused or the task could not score.
            learned = [(one, own) for one, own in zip(episodes, advantages, strict=True) if own is not None]
            if figures["equal_groups"] < 1.0 or (self.config.kl and learned):
                figures |= await ctx.policy.update(step, [one.row(own) for one, own in learned])
            else:  # all advantages and so the gradient are zero; the optimiser's momentum alone would move the weights
                ctx.warn(f"step {step}: in each group all rewards are equal, so there is nothing to learn: no update")
            ctx.record(step, figures)
            if step % self.config.eval_every == 0:
                yield await evaluations.evaluate(step, tests)
                evaluated = step
        if evaluated < step:
            yield await evaluations.evaluate(step, tests)
        await ctx.policy.export()

    def _advantages(self, rewards: Sequence[float | None]) -> list[float | None]:
        """Return each reward less the mean of its group (with `rloo`: of the group's others)."""
        advantages: list[float | None] = []
        for first in range(0, len(rewards), self.config.group):
            group = rewards[first : first + self.config.group]
            scored = [value for value in group if value is not None]
            mean = sum(scored) / max(len(scored), 1)
            scale = len(scored) / max(len(scored) - 1, 1) if self.leave_one_out else 1.0
            advantages += [None if value is None else scale * (value - mean) for value in group]
        return advantages

    def _batch(self, ctx: RunContext, step: int) -> list[Problem]:
        """Return the problems of a step: the split in a new random order each time that it has been gone through."""
        problems, size = ctx.training.problems, self.config.problems_per_step
        # By the step alone, without state: a resumed run draws the same batches. A batch may span two epochs.
        indices = range((step - 1) * size, step * size)
        epochs = range(indices[0] // len(problems), indices[-1] // len(problems) + 1)
        orders = {epoch: ctx.shared.rng("epoch", epoch).permutation(len(problems)).tolist() for epoch in epochs}
        return [problems[orders[index // len(problems)][index % len(problems)]] for index in indices]

    def _prompt(self, task: Task, problem: Problem) -> Prompt:
        """Ask for an answer under the fixed prompt."""
        # The test problems get the same prompt as the training ones: only the weights are compared.
        if self.config.system_prompt is not None and isinstance(task, Instructs):
            return task.instructed_prompt(problem, self.config.system_prompt)
        if not isinstance(task, Generates):
            raise ConfigError(f"task={task.name}: expected a task that generates")
        return task.generation_prompt(problem)


class Grpo(_PolicyGradientMethod):
    """Group-relative policy optimisation."""

    name = "grpo"
    description = "reinforcement learning by group-relative advantages (TRL's GRPOTrainer)"
    Config = GrpoConfig
    config: GrpoConfig

    def __init__(self, config: GrpoConfig) -> None:
        super().__init__(config)
        self.loss = config.loss


class Cispo(_PolicyGradientMethod):
    """The same advantages with importance weights that are cut, while every token keeps its gradient."""

    name = "cispo"
    description = "reinforcement learning with clipped importance weights (CISPO, TRL's GRPOTrainer)"
    loss = "cispo"


class Rloo(_PolicyGradientMethod):
    """REINFORCE with the mean reward of a completion's siblings as its baseline."""

    name = "rloo"
    description = "REINFORCE with a leave-one-out baseline (TRL's GRPOTrainer)"
    leave_one_out = True


def _figures(episodes: Sequence[Episode], group: int) -> dict[str, float]:
    """Return the figures of a batch; `equal_groups`: the share of groups that nothing can be learned from."""
    rewards = [one.reward for one in episodes]
    values = [reward.value for reward in rewards]
    scored = [value for value in values if value is not None]
    groups = [[v for v in values[i : i + group] if v is not None] for i in range(0, len(values), group)]
    answered = [one.replies for one in episodes if one.replies[-1].error is None]
    completions = [replies[-1].completions[0] for replies in answered]
    tokens = [sum(reply.completion_tokens for reply in replies) for replies in answered]
    correct = [reward.correct for reward in rewards if reward.correct is not None]
    # Requests that the engine refused have no completion: they are counted apart, and in no mean.
    rejected = len(episodes) - len(completions)
    unscored = len(values) - len(scored) - rejected
    turns = [len(one.replies) for one in episodes]
    return {
        "reward": sum(scored) / max(len(scored), 1),
        **({"correct": sum(correct) / len(rewards)} if correct else {}),
        "formatted": sum(reward.parts.get("formatted", 0.0) for reward in rewards) / len(rewards),
        "equal_groups": sum(len(set(values)) <= 1 for values in groups) / len(groups),
        "completion_tokens": sum(tokens) / max(len(completions), 1),
        "truncated": sum(one.truncated for one in completions) / max(len(completions), 1),
        "rejected": float(rejected),
        **({"unscored": float(unscored)} if unscored else {}),
        **({"turns": sum(turns) / len(turns)} if max(turns) > 1 else {}),
    }
