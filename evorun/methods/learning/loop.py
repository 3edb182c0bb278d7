"""Learning from rewards: one loop for every method composed of prompts, rewards and an update.

A step plays a batch of episodes and updates the weights; meanwhile the method's system prompts (E-SPL) or rewards (MPO)
may evolve, or neither (`grpo`, `cispo`, `rloo`, `ppo`). Lines of Algorithm 1 are numbered as in
`evorun.methods.espl.espl`.
"""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from msgspec import UNSET

from evorun.methods.base import DatasetLevel, Regime
from evorun.methods.context import RunContext, TrainingSplit
from evorun.methods.learning.parts import (
    Batch,
    FixedPrompt,
    LearningSettings,
    PromptSource,
    RewardSource,
    TaskReward,
    UpdateRule,
    make_rubric_reward,
)
from evorun.methods.learning.reward_plugins import RewardConfig
from evorun.methods.learning.scheduler import ROLLOUT, Scheduler
from evorun.rollouts.calls import Role
from evorun.rollouts.episodes import Episode
from evorun.rollouts.figures import measure_batch
from evorun.rollouts.monitors import monitor_figures
from evorun.rollouts.rubric_rewards import REWARD_ROLES
from evorun.rollouts.rubric_settings import RubricSettings
from evorun.runs.candidates import Step
from evorun.runs.scores import primary_score
from evorun.tasks.base import Task
from evorun.tasks.capabilities import SupportsGeneration, SupportsRubrics, SupportsSystemPrompts
from evorun.training.divergence import Divergence
from evorun.training.wire import Figures, Objective, Row, TokenAdvantages


class Learning(DatasetLevel):
    """Learning on a task's training split; a method defines its update, and its prompts and rewards if they evolve."""

    regime: ClassVar[Regime] = "labels"
    needs: ClassVar[tuple[type, ...]] = (SupportsGeneration,)
    # Completions come before the step's update.
    roles: ClassVar[Mapping[str, Role]] = {ROLLOUT: Role("policy", lag=1), **REWARD_ROLES}
    trains = True
    learns_from_problems = True
    plays_ahead: ClassVar[str | None] = ROLLOUT
    Config: ClassVar[type[LearningSettings]]
    config: LearningSettings

    reward_plugin: RewardConfig | None = None
    """The settings of the plug-in that gives the rewards (`method.reward_source`), if one does."""
    _max_problems: int | None = None
    """Total problems of all batches, where `data_epochs` decides the number of steps."""

    @property
    @abstractmethod
    def update_rule(self) -> UpdateRule | None:
        """The update of the weights by a batch; None under frozen weights."""

    def prompts(self, ctx: RunContext) -> PromptSource:
        """Return the source of the run's system prompts."""
        return FixedPrompt(self.config.system_prompt or "")

    def rewards(self, ctx: RunContext) -> RewardSource:
        """Return the source of the run's rewards."""
        if self.reward_plugin is not None:
            return self.reward_plugin.make(ctx, self.config)
        return TaskReward(ctx, self.config) if self.config.rubric is None else make_rubric_reward(ctx, self.config)

    @property
    def after_problem(self) -> bool:
        """True when system prompts come after the problem (`answer_prompt`)."""
        return False

    async def save_evaluation(self, ctx: RunContext, step: int) -> None:
        """Save what an evaluation used, such as its weights, if the method needs it later."""

    async def learn(self, ctx: RunContext) -> AsyncIterator[Mapping[str, Step]]:
        """Learn as in E-SPL's Algorithm 1 and MPO's figure 3; save the result in artifacts/."""
        config, prompts, rewards = self.config, self.prompts(ctx), self.rewards(ctx)
        assert self.last_step is not None  # noqa: S101 - `fit_to` comes before a run
        run = Scheduler(
            ctx,
            config,
            prompts,
            rewards,
            last_step=self.last_step,
            max_problems=self._max_problems,
            learned=self.trains,
            after_problem=self.after_problem,
        )
        updates, divergence = Updates(ctx, self.update_rule, rewards, ctx.training), Divergence(ctx.warn)
        baseline_group = config.group if self.update_rule is None else self.update_rule.baseline_group
        async with run:
            yield await run.evaluate(prompts.evaluated)
            await rewards.prepare(config.sampling, prompts.evaluated.text)
            evaluated = step = 0
            async for batch in run.batches():  # lines 2 to 8: draw problems and prompts, play, reward
                step = batch.step
                prompts.rate(batch)  # lines 11 and 12: by the ranking of mean rewards
                figures = measure_batch(batch.episodes, baseline_group)
                answered = [episode for episode in batch.episodes if episode.replies[-1].error is None]
                figures |= monitor_figures(answered, ctx.training.task.script)
                learned, edited, refined = await run.together(
                    updates.apply(batch),  # lines 9 and 10
                    prompts.evolve(batch),  # lines 13 to 23
                    rewards.evolve(batch, figures),  # figure 3
                )
                if learned:
                    prompts.follow_update()
                figures |= learned
                signs = divergence.rejections(step, [episode.replies[-1].error for episode in batch.episodes])
                if self.trains:
                    signs |= divergence.signs(step, figures, rewards.changed_after(step))
                    signs |= {} if learned else {"no_update": 1.0}
                ctx.record(step, {**figures, **signs, **edited, **refined}, [*prompts.candidates, *rewards.candidates])
                if config.evaluates_after(step):
                    yield await run.evaluate(prompts.evaluated)
                    await self.save_evaluation(ctx, step)
                    evaluated = step
            if evaluated < step:
                yield await run.evaluate(prompts.evaluated)
                await self.save_evaluation(ctx, step)
        prompts.save(ctx)
        rewards.save(ctx)
        if self.trains:
            await ctx.policy.export()

    async def prepare(self, ctx: RunContext) -> None:
        # without a stopwatch nothing real is trained, and a simulated model ignores top_p
        if self.trains and self.config.top_p < 1 and ctx.policy.stopwatch is not None:
            ctx.warn(
                f"method.top_p={self.config.top_p}: the update treats completions sampled from a part of the "
                "vocabulary as if sampled from all of it, which biases the gradient; method.top_p=1 avoids this"
            )

    def make_objective(self, run: Path) -> Objective:
        # Before `fit_to` the number of steps is unknown and not needed.
        rule = self.update_rule
        return super().make_objective(run) if rule is None else rule.make_objective(self.last_step or 1)

    @property
    def last_step(self) -> int | None:
        return self.config.steps

    @property
    def max_useful_lag(self) -> int | None:
        # What changes after a step is first seen by the rollouts of that step + 1 + lag.
        return None if self.last_step is None else max(1, self.last_step - 1 - self.config.first_change)

    def warnings(self, calls: int | None, judges: int = 1) -> list[str]:
        if self.rubric_settings is None or self.config.eval_every is not None:
            return []
        return [
            "method.eval_every=null: reward hacking shows only if the test problems' score ends below its start, not "
            "if it rises and falls again; set method.eval_every=N to see that too"
        ]

    def fit_to(self, training_problems: int) -> str | None:
        config, size = self.config, self.config.problems_per_step
        if config.steps is not None:
            return None
        self._max_problems = config.data_epochs * training_problems
        steps = -(-self._max_problems // size)
        self.config = replace(config, steps=steps)
        epochs = "one epoch" if config.data_epochs == 1 else f"{config.data_epochs} epochs"
        last = self._max_problems - (steps - 1) * size
        return f"{epochs} of {training_problems} training problems: {steps} steps of {size}, the last one of {last}"

    @property
    def reward_source(self) -> str | None:
        return self.config.reward_source

    @property
    def setting_that_shows_answers(self) -> str | None:
        shown = self.config.rubric is not None and self.config.plan_reference
        return "method.plan_reference" if shown else None

    @property
    def rubric_settings(self) -> RubricSettings | None:
        return None if self.config.rubric is None else self.config

    @property
    def active_roles(self) -> Mapping[str, Role]:
        if self.config.rubric is not None:
            return self.roles
        own = {call: role for call, role in self.roles.items() if role.model not in ("reward", "meta")}
        return own if self.reward_plugin is None else {**own, **self.reward_plugin.roles}

    def information_regime(self, task: type[Task]) -> Regime:
        source = self.config if self.reward_plugin is None else self.reward_plugin
        return "labels" if source.sees_answers else "problem_only"

    def incompatibility(self, task: type[Task]) -> str | None:
        if self.config.rubric is not None and not issubclass(task, SupportsRubrics):
            return f"method.rubric: task={task.name} has no rubrics; leave it null"
        if self.config.system_prompt is not None and not issubclass(task, SupportsSystemPrompts):
            return f"method.system_prompt: task={task.name} takes no system prompt; leave it null"
        return None


class Updates:
    """The updates of a run, and the records of their episodes."""

    def __init__(
        self, ctx: RunContext, update: UpdateRule | None, rewards: RewardSource, split: TrainingSplit | None = None
    ) -> None:
        """split: that of the episodes' problems, whose grader tells a simulated policy what the rewards teach."""
        self._ctx = ctx
        self._update = update
        self._rewards = rewards
        self._split = split
        self._reward_changed_after = 0
        """The step after which the reward last changed, as of the latest update."""
        self._made = 0
        """Number of updates."""
        self._warned: set[str] = set()
        """Reasons for a step without an update that were given; each is given once."""

    async def apply(self, batch: Batch) -> dict[str, float]:
        """Learn from a batch, where weights are trained; record its episodes; return the update's figures."""
        ctx, update, step, episodes = self._ctx, self._update, batch.step, batch.episodes
        rows: dict[int, Row] = {}
        figures, lag = Figures({}), dict[str, float]()
        try:
            if update is not None:
                learned_from = enumerate(
                    zip(episodes, update.rewards(episodes), update.advantages(episodes), strict=True)
                )
                # Episodes that the engine refused or the task could not score are left out.
                rows = {
                    at: episode.row(reward, advantage)
                    for at, (episode, reward, advantage) in learned_from
                    if reward is not None
                }
                if update.has_gradient(list(rows.values())):
                    before, self._reward_changed_after = self._reward_changed_after, self._rewards.changed_after(step)
                    changed = self._reward_changed_after != before
                    figures = await ctx.policy.update(
                        step,
                        list(rows.values()),
                        rewards_changed=changed,
                        get_scores=lambda: self._grade([episodes[at] for at in rows]),
                    )
                    if ctx.max_lag and (version := episodes[0].version) is not UNSET:
                        lag["lag"] = float(self._made - version)
                    self._made += 1
                # Without a gradient the optimizer's momentum alone would move the weights.
                elif (reason := "in each group all rewards are equal" if rows else "no episode has a reward") not in (
                    self._warned
                ):
                    self._warned.add(reason)
                    ctx.warn(
                        f"step {step}: {reason}, so there is nothing to learn: no update; later such steps count as "
                        "no_update in metrics.jsonl alone"
                    )
        except BaseException:
            # A trainer's own estimates of advantages, which are lost now, are part of the records that a resume makes.
            if all(row.advantage is not None for row in rows.values()):
                self._record(batch, rows, {})
            raise
        self._record(batch, rows, dict(zip(rows, figures.advantages, strict=False)))
        return figures.figures | lag

    async def _grade(self, episodes: Sequence[Episode]) -> list[float] | None:
        """Return the task's scores of episodes; None where no grader but an opinion, or none at all, can give them."""
        split = self._split
        if split is None or split.task.graded_by_opinion:
            return None
        measure = split.task.reward_score or primary_score(split.task.scores)
        grades = await asyncio.gather(*(split.grade(episode.asked.problem, episode.response) for episode in episodes))
        values = [measure.value_in(grade) for grade in grades]
        return None if None in values else [measure.utility(value) for value in values if value is not None]

    def _record(self, batch: Batch, rows: Mapping[int, Row], estimated: Mapping[int, TokenAdvantages | None]) -> None:
        """Record a batch's episodes. estimated: advantages by the trainer, which was given none."""
        self._ctx.record_rollouts(
            [
                episode.record(
                    batch.step,
                    rows.get(at),
                    estimated.get(at),
                    self._rewards.candidate_id(episode.asked.problem, batch.step),
                )
                for at, episode in enumerate(batch.episodes)
            ]
        )
