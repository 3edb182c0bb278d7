"""Reinforcement learning with evolution beside it: the one loop of all methods that learn from rewards.

A step plays a batch of episodes, updates the weights, and meanwhile evolves what the method lets evolve. Its methods
differ in how rewards become advantages and in the trainer's objective (grpo, cispo, rloo, ppo), in their prompts, which
evolve (espl) or are one that never changes, and in what rewards: the task's grade, or a rubric.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from evorun.methods.base import DatasetLevel, Regime
from evorun.methods.context import RunContext
from evorun.methods.espl.evolution import Batch, FixedPrompt, Prompts
from evorun.methods.espl.population import Member
from evorun.methods.learning.divergence import Divergence
from evorun.methods.learning.evaluation import Evaluations, answer_prompt
from evorun.methods.learning.gradient import figures
from evorun.methods.learning.rewarding import ByRubric, GradesOnly, Rewarding
from evorun.methods.learning.round_settings import ReinforcementSettings, RoundSettings
from evorun.rollouts.calls import Role
from evorun.rollouts.episodes import Asked, Episode, Rollouts
from evorun.rollouts.monitors import monitor_figures
from evorun.rollouts.rewards import Graded
from evorun.rollouts.rubric_rewards import REWARD_ROLES
from evorun.rollouts.rubric_settings import RubricSettings
from evorun.runs.candidates import Step
from evorun.tasks.base import Task
from evorun.tasks.capabilities import Generates, Instructs, ScoresByRubric
from evorun.training.wire import Figures, Row

ROLLOUT = "rollout"
BEYOND_UPDATE = "beyond_update"
"""Names, in the journal, the time that a step's evolution of rewards takes beyond its update."""


class _Start(NamedTuple):
    """A step's batch before it is played."""

    step: int
    drawn: Sequence[Member]
    asked: Sequence[Asked]
    rollouts: Rollouts
    config: RoundSettings

    async def play(self) -> Batch:
        """Play the episodes."""
        episodes = await self.rollouts.play(self.step, self.asked, self.config.sampling)
        return Batch(self.drawn, episodes, self.config.group)


@dataclass
class _Parts:
    """The parts of a run that each step goes through."""

    ctx: RunContext
    config: RoundSettings
    prompts: Prompts
    rewarding: Rewarding
    rollouts: Rollouts
    tests: Evaluations
    divergence: Divergence
    last_step: int
    most_problems: int | None
    """Of all batches together; None: as many as they have room for."""
    rewarded_since: int = 0
    """The step after which what rewards was last changed, as of the latest update."""

    def start(self, step: int, pending: int = 0) -> _Start | None:
        """Draw problems and prompts of a step; None when there are no more steps, or the budget does not pay for it.

        pending: calls at most that are still to be made before it.
        """
        ctx, config, prompts = self.ctx, self.config, self.prompts
        if step > self.last_step:
            return None
        problems = ctx.batch(step, config.problems_per_step, self.most_problems)
        drawn = prompts.select(step)  # E-SPL, equation 4
        task, below = ctx.training.task, self.tests.after_problem
        tried = [(x, s.id, s.prompt.text) for x in problems for s in drawn]
        asked = [Asked(x, answer_prompt(task, x, text, after_problem=below), name) for x, name, text in tried]
        asked = [one for one in asked for _ in range(config.group)]
        # A step is made only if the budget covers the evaluation after it, too; with a lag the step before still has
        # its own ahead of it.
        after = [step - 1, step] if ctx.max_lag and step > 1 else [step]
        needed = self.rollouts.most_calls([one.problem for one in asked]) + self.rewarding.most_calls(len(asked), step)
        needed += len(after) * (self.tests.most_calls + prompts.most_calls(len(problems), config.group))
        needed += sum(map(self.rewarding.most_calls_after, after)) + pending
        if ctx.shared.affordable(needed, ROLLOUT) < needed:
            ctx.warn(
                f"the budget ends training before step {step} of {self.last_step}: a step and the evaluation after it "
                f"take {needed} calls"
            )
            return None
        return _Start(step, drawn, asked, self.rollouts, config)


class Reinforcement(DatasetLevel):
    """Reinforcement learning on a task's training split; its methods say what learns from rewards, and what evolves."""

    regime: ClassVar[Regime] = "labels"
    needs: ClassVar[tuple[type, ...]] = (Generates,)
    # Completions come before the step's update.
    roles: ClassVar[Mapping[str, Role]] = {ROLLOUT: Role("policy", lag=1), **REWARD_ROLES}
    trains = True
    learns_from_problems = True
    plays_ahead = ROLLOUT
    Config: ClassVar[type[RoundSettings]]
    config: RoundSettings

    _most_problems: int | None = None
    """Of all batches together, where the data says how many there are."""

    @property
    def last_step(self) -> int | None:
        return self.config.steps

    def fit_to(self, training_problems: int) -> str | None:
        config, size = self.config, self.config.problems_per_step
        if config.steps is not None:
            return None
        self._most_problems = most = config.data_epochs * training_problems
        steps = -(-most // size)
        self.config = replace(config, steps=steps)
        epochs = "one epoch" if config.data_epochs == 1 else f"{config.data_epochs} epochs"
        last = most - (steps - 1) * size
        return f"{epochs} of {training_problems} training problems: {steps} steps of {size}, the last one of {last}"

    @property
    def roles_here(self) -> Mapping[str, Role]:
        if getattr(self.config, "rubric", None) is not None:
            return self.roles
        return {call: role for call, role in self.roles.items() if call not in REWARD_ROLES}

    def regime_on(self, task: type[Task]) -> Regime:
        config = self.config
        return "labels" if not isinstance(config, ReinforcementSettings) or config.sees_answers else "problem_only"

    def incompatibility(self, task: type[Task]) -> str | None:
        if getattr(self.config, "rubric", None) is not None and not issubclass(task, ScoresByRubric):
            return f"method.rubric: task={task.name} has no rubrics; leave it null"
        if self.config.system_prompt is not None and not issubclass(task, Instructs):
            return f"method.system_prompt: task={task.name} takes no system prompt; leave it null"
        if getattr(self.config, "task_instruction", False) and not issubclass(task, Instructs):
            return f"method.task_instruction: task={task.name} takes no system prompt; leave it false"
        return None

    def rewards(self, episodes: Sequence[Episode]) -> list[float | None]:
        """Return the reward that each episode of a batch is learned from; None without one."""
        return [one.reward.value for one in episodes]

    @property
    def baseline_group(self) -> int:
        """Consecutive episodes of a batch whose rewards are measured by each other."""
        return self.config.group

    def advantages(self, episodes: Sequence[Episode]) -> list[float | None]:
        """Return the advantage of each episode of a batch; None without a reward, or where the trainer estimates it."""
        return [None] * len(episodes)

    def has_gradient(self, rows: Sequence[Row]) -> bool:
        """Tell whether an update by these rows has a gradient."""
        return bool(rows)

    def prompts(self, ctx: RunContext) -> Prompts:
        """Return the system prompts that the run starts with."""
        return FixedPrompt(self.config.system_prompt or "")

    def rewarding(self, ctx: RunContext) -> Rewarding:
        """Return what rewards the episodes."""
        config = self.config
        if isinstance(config, RubricSettings) and config.rubric is not None:
            return ByRubric(ctx, config, config.overflow_penalty, self.last_step)
        bonus, penalties = config.format_reward, (config.format_penalty, config.overflow_penalty)
        return GradesOnly(Graded(ctx.shared, ctx.training.task, ctx.training.grade, bonus, *penalties))

    @property
    def after_problem(self) -> bool:
        """True when system prompts stand after the problem (`answer_prompt`)."""
        return False

    def tested(self, prompts: Prompts) -> str:
        """Return the system prompt that evaluations are made under."""
        return prompts.best.prompt.text

    async def prepare(self, ctx: RunContext) -> None:
        if self.trains and self.config.top_p < 1:
            ctx.warn(
                f"method.top_p={self.config.top_p}: completions drawn from a part of the vocabulary are learned from "
                "as if drawn from all of it, which biases the gradient; method.top_p=1 does not"
            )

    async def learn(self, ctx: RunContext) -> AsyncIterator[Mapping[str, Step]]:
        """Run the steps (E-SPL, Algorithm 1); leave what was learned in artifacts/."""
        config, prompts, rewarding = self.config, self.prompts(ctx), self.rewarding(ctx)
        tests = Evaluations(ctx, config, self.after_problem)
        rollouts = Rollouts(ctx.shared, ctx.training.task, ROLLOUT, rewarding.rewards, learned=self.trains)
        assert self.last_step is not None  # noqa: S101 - `fit_to` comes before a run
        ends = self.last_step, self._most_problems
        parts = _Parts(ctx, config, prompts, rewarding, rollouts, tests, Divergence(ctx.warn), *ends)
        yield await tests.evaluate(0, self.tested(prompts))
        await rewarding.prepare(config.sampling, self.tested(prompts))
        evaluated = step = 0
        start, ahead = parts.start(1), None
        while start is not None:
            step, batch = start.step, ahead or await start.play()
            prompts.rate(step, batch)  # TrueSkill, by the ranking of mean rewards
            # With a lag the next batch is played meanwhile, by weights and prompts that this step has not changed.
            early = bool(ctx.max_lag)
            start = parts.start(step + 1) if early else None
            ahead = await self._learn_from(parts, step, batch, start)
            if config.evaluates_after(step):
                if config.eval_beside_rollouts and not early:
                    start, early = parts.start(step + 1, tests.most_calls), True
                async with asyncio.TaskGroup() as together:  # both by the weights after this step's update
                    evaluation = together.create_task(tests.evaluate(step, self.tested(prompts)))
                    playing = together.create_task(start.play()) if start is not None and ahead is None else None
                ahead = ahead if playing is None else playing.result()
                yield evaluation.result()
                await self.keep(ctx, step)
                evaluated = step
            if not early:
                start = parts.start(step + 1)
        if evaluated < step:
            yield await tests.evaluate(step, self.tested(prompts))
            await self.keep(ctx, step)
        await self.leave(ctx, prompts, rewarding)

    async def _learn_from(self, parts: "_Parts", step: int, batch: Batch, following: "_Start | None") -> Batch | None:
        """Update weights and evolve prompts and rewards, all at once; play the following step, where there is one."""
        ctx, prompts, rewarding, episodes = parts.ctx, parts.prompts, parts.rewarding, batch.episodes
        answered = [one for one in episodes if one.replies[-1].error is None]
        of_batch = figures(episodes, self.baseline_group)
        of_batch |= monitor_figures(answered, getattr(ctx.training.task, "script", None))
        async with asyncio.TaskGroup() as together:  # the update is issued first
            update = together.create_task(self._update(parts, step, episodes))
            evolution = together.create_task(prompts.evolve(step, batch))
            refinement = together.create_task(rewarding.evolve(step, episodes, of_batch))
            ahead = together.create_task(following.play()) if following is not None else None
            if rewarding.most_calls_after(step):
                together.create_task(_time_beyond(ctx, step, update, refinement))
        if update.result():
            prompts.follow_update()
        of_step = of_batch | update.result()
        signs = parts.divergence.rejections(step, [one.replies[-1].error for one in episodes])
        if self.trains:
            signs |= parts.divergence.signs(step, of_step, rewarding.changed_after(step))
        evolved = {**evolution.result(), **refinement.result()}
        ctx.record(step, {**of_step, **signs, **evolved}, [*prompts.candidates, *rewarding.candidates])
        return None if ahead is None else ahead.result()

    async def _update(self, parts: _Parts, step: int, episodes: Sequence[Episode]) -> dict[str, float]:
        """Learn from a batch, where weights are trained; record its episodes."""
        ctx, rewarding = parts.ctx, parts.rewarding
        rows: dict[int, Row] = {}
        found = Figures({})
        try:
            if self.trains:
                given = enumerate(zip(episodes, self.rewards(episodes), self.advantages(episodes), strict=True))
                # Nothing is learned from what the engine refused or the task could not score.
                rows = {at: one.row(reward, own) for at, (one, reward, own) in given if reward is not None}
                if self.has_gradient(list(rows.values())):
                    before, parts.rewarded_since = parts.rewarded_since, rewarding.changed_after(step)
                    changed = parts.rewarded_since != before
                    found = await ctx.policy.update(step, list(rows.values()), rewards_changed=changed)
                elif not rows:
                    ctx.warn(f"step {step}: no episode has a reward, so there is nothing to learn: no update")
                else:
                    # Without a gradient the optimiser's momentum alone would move the weights.
                    equal = "in each group all rewards are equal"
                    ctx.warn(f"step {step}: {equal}, so there is nothing to learn: no update")
        finally:  # also of an update that fails
            # A trainer that is given advantages estimates none.
            estimated = dict(zip(rows, found.advantages, strict=False))
            ctx.record_rollouts(
                [
                    one.record(step, rows.get(at), estimated.get(at), rewarding.candidate(one.asked.problem, step))
                    for at, one in enumerate(episodes)
                ]
            )
        return found.figures

    async def keep(self, ctx: RunContext, step: int) -> None:
        """Keep what an evaluation was made with, where a method has a use for it."""

    async def leave(self, ctx: RunContext, prompts: Prompts, rewarding: Rewarding) -> None:
        """Save what was learned in artifacts/."""
        rewarding.save(ctx)
        if self.trains:
            await ctx.policy.export()


async def _time_beyond(
    ctx: RunContext, step: int, update: asyncio.Task[dict[str, float]], evolution: asyncio.Task[dict[str, float]]
) -> None:
    """Leave in the journal how long an evolution goes on after the update beside it: what it adds to the run's time."""

    async def rest() -> bool:
        await evolution
        return True

    await update
    # The journal keeps the seconds of what it records, and no other record of a run may have any: they would differ
    # after a resume.
    await ctx.shared.remember(step, BEYOND_UPDATE, step, rest, bool)
