"""E-SPL: system prompts that evolve while the weights learn, as one loop with settings (Algorithms 1 and 2).

`espl` does both. `espl_evolution` keeps the weights as they are, and `espl_self_reflection` is its mutation alone on a
population of one (section 4.1). RL alone is the same loop under one prompt that never changes (policy_gradient.py).
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from evorun.errors import above, at_least, one_of
from evorun.methods.base import DatasetLevel
from evorun.methods.context import RunContext
from evorun.methods.divergence import Divergence
from evorun.methods.evaluation import Evaluations, RepeatedEvaluationSettings, answer_prompt
from evorun.methods.evolution import OPERATORS, Batch, Evolution, EvolutionSettings, FixedPrompt, Prompts
from evorun.methods.gradient import LOSSES, GradientSettings, advantages, figures
from evorun.methods.prompt_population import Member
from evorun.methods.proposals import SamplingSettings
from evorun.rollouts.calls import Role
from evorun.rollouts.episodes import Asked, Episode, Rollouts
from evorun.rollouts.rewards import Graded
from evorun.runs.candidates import Step
from evorun.tasks.base import Task
from evorun.tasks.capabilities import Generates, Instructs
from evorun.training.wire import PolicyGradient

ROLLOUT = "rollout"


@dataclass(kw_only=True)
class RoundSettings(RepeatedEvaluationSettings, SamplingSettings):
    """Hyperparameters of the loop; the YAML files of its methods give each default and its source."""

    name: str
    steps: int
    """Steps, one batch each."""
    problems_per_step: int
    """Problems in a batch (B)."""
    group: int
    """Completions of each problem under each system prompt (N)."""
    system_prompt: str | None
    """The system prompt to start from; null: the task's own, and of RL alone its own prompt for an answer."""
    format_reward: float
    """Added to the reward of a response in the task's format.

    The reward is 1 for a correct response and else 0. On a task without right and wrong it is the primary score: where
    its range is known brought to [0, 1], 1 the best; else as it is, negated where lower is better.
    """
    format_penalty: float
    """Subtracted from the reward of a response that is not in the task's format."""
    overflow_penalty: float
    """Above 0: the reward of an episode that ran out of tokens or context is this, negated, whatever it says."""

    eval_beside_rollouts: bool
    """Evaluate while the rollouts of the next step are played, which keeps the engine's batches full; costs recorded
    with an evaluation then count these rollouts too. With `training.max_lag` they have been played before."""

    def __post_init__(self) -> None:
        SamplingSettings.__post_init__(self)
        RepeatedEvaluationSettings.__post_init__(self)
        for key in ("steps", "problems_per_step"):
            at_least(f"method.{key}", getattr(self, key), 1)
        at_least("method.group", self.group, 2)
        for key in ("format_reward", "format_penalty", "overflow_penalty"):
            at_least(f"method.{key}", getattr(self, key), 0)
        above("method.temperature", self.temperature, 0)


@dataclass(kw_only=True)
class EsplEvolutionConfig(RoundSettings, EvolutionSettings):
    """Hyperparameters; `conf/method/espl_evolution.yaml` gives each default and its source."""

    def __post_init__(self) -> None:
        RoundSettings.__post_init__(self)
        EvolutionSettings.__post_init__(self)


@dataclass(kw_only=True)
class EsplConfig(EsplEvolutionConfig, GradientSettings):
    """Hyperparameters; `conf/method/espl.yaml` gives each default and its source."""

    loss: str
    """grpo | dr_grpo | dapo | bnpo: how a batch's tokens are weighed (`evorun.training.batches.token_weight`); or
    cispo."""
    transplant: bool
    """Keep the weights of each evaluation in artifacts/adapters/, and test system prompts under all of them at the end
    (`evorun transplant`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        GradientSettings.__post_init__(self)
        one_of("method.loss", self.loss, (*LOSSES, "cispo"))
        if self.loss == "cispo":
            self.require_bounds_of_cispo()


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


class Espl(DatasetLevel):
    """Policy gradients under a population of system prompts, which evolves by reflection on the same data."""

    name = "espl"
    description = "system prompts evolve by self-reflection while the weights learn (E-SPL)"
    regime = "labels"
    needs: ClassVar[tuple[type, ...]] = (Instructs,)
    # Completions come before the step's update, and reflections go out beside it.
    roles: ClassVar = {ROLLOUT: Role("policy", lag=1), **dict.fromkeys(OPERATORS, Role("reference"))}
    trains = True
    learns_from_problems = True
    plays_ahead = ROLLOUT
    loss: ClassVar[str] = "dr_grpo"
    """TRL's name of the loss, for methods without a setting for it."""
    leave_one_out: ClassVar[bool] = False
    """A completion's own reward is left out of its baseline."""
    Config: ClassVar[type[RoundSettings]] = EsplConfig
    config: RoundSettings

    @property
    def last_step(self) -> int:
        return self.config.steps

    @property
    def roles_here(self) -> Mapping[str, Role]:
        if isinstance(self.config, EvolutionSettings) and self.config.reflect_with == "policy":  # figure 15
            return {**self.roles, **dict.fromkeys(OPERATORS, Role("policy", lag=1))}
        return self.roles

    def incompatibility(self, task: type[Task]) -> str | None:
        if getattr(self.config, "principles_in", "system") == "user" and not issubclass(task, Generates):
            return f"method.principles_in: task={task.name} asks under a system prompt only; set it to system"
        return None

    def objective(self, run: Path) -> PolicyGradient:
        config = self.config
        assert isinstance(config, GradientSettings)  # noqa: S101 - asked for only where weights are trained
        return PolicyGradient(
            loss=getattr(config, "loss", self.loss),
            steps=config.steps,
            minibatches=config.minibatches,
            kl=config.kl,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            temperature=config.temperature,
        )

    async def prepare(self, ctx: RunContext) -> None:
        if self.trains and self.config.top_p < 1:
            ctx.warn(
                f"method.top_p={self.config.top_p}: completions drawn from a part of the vocabulary are learned from "
                "as if drawn from all of it, which biases the gradient; method.top_p=1 does not"
            )

    async def learn(self, ctx: RunContext) -> AsyncIterator[Mapping[str, Step]]:
        """Run Algorithm 1; leave the best system prompt and the trained adapter in artifacts/."""
        config, task = self.config, ctx.training.task
        prompts, tests = self._prompts(ctx), Evaluations(ctx, config, self._after_problem)
        bonus, penalties = config.format_reward, (config.format_penalty, config.overflow_penalty)
        rewards = Graded(ctx.shared, task, ctx.training.grade, bonus, *penalties)
        rollouts = Rollouts(ctx.shared, task, ROLLOUT, rewards, learned=self.trains)
        divergence = Divergence(ctx.warn)
        yield await tests.evaluate(0, self._tested(prompts))
        evaluated = step = 0
        start, ahead = self._start(ctx, prompts, rollouts, tests, 1), None
        while start is not None:
            step = start.step
            batch = await start.play() if ahead is None else ahead.result()
            prompts.rate(batch)  # TrueSkill, by the ranking of mean rewards
            # With a lag the next batch is played meanwhile, by weights and prompts that this step has not changed.
            early = bool(ctx.max_lag)
            start = self._start(ctx, prompts, rollouts, tests, step + 1) if early else None
            async with asyncio.TaskGroup() as together:  # weights and prompts at once; the update is issued first
                update = together.create_task(self._update(ctx, step, batch.episodes))
                evolution = together.create_task(prompts.evolve(step, batch))
                ahead = together.create_task(start.play()) if start is not None else None
            of_step = figures(batch.episodes, config.group) | update.result()
            signs = divergence.signs(step, of_step) if self.trains else {}
            ctx.record(step, {**of_step, **signs, **evolution.result()}, prompts.candidates)
            if step % config.eval_every == 0:
                if config.eval_beside_rollouts and not early:
                    start, early = self._start(ctx, prompts, rollouts, tests, step + 1, tests.most_calls), True
                async with asyncio.TaskGroup() as together:  # both by the weights after this step's update
                    evaluation = together.create_task(tests.evaluate(step, self._tested(prompts)))
                    if start is not None and ahead is None:
                        ahead = together.create_task(start.play())
                yield evaluation.result()
                await self._keep(ctx, step)
                evaluated = step
            if not early:
                start = self._start(ctx, prompts, rollouts, tests, step + 1)
        if evaluated < step:
            yield await tests.evaluate(step, self._tested(prompts))
            await self._keep(ctx, step)
        await self._leave(ctx, prompts)

    def _start(
        self,
        ctx: RunContext,
        prompts: Prompts,
        rollouts: Rollouts,
        tests: Evaluations,
        step: int,
        pending: int = 0,
    ) -> "_Start | None":
        """Draw problems and prompts of a step; None when there are no more steps, or the budget does not pay for it.

        pending: calls at most that are still to be made before it.
        """
        config, task = self.config, ctx.training.task
        if step > config.steps:
            return None
        problems, drawn = ctx.batch(step, config.problems_per_step), prompts.select(step)  # equation 4
        after = self._after_problem
        tried = [(x, s.id, s.prompt.text) for x in problems for s in drawn]
        asked = [Asked(x, answer_prompt(task, x, text, after_problem=after), name) for x, name, text in tried]
        asked = [one for one in asked for _ in range(config.group)]
        # A step is made only if the budget covers the evaluation after it, too; with a lag the step before still has
        # its own ahead of it.
        later = tests.most_calls + prompts.most_calls(len(problems), config.group)
        needed = rollouts.most_calls([one.problem for one in asked]) + later * (2 if ctx.max_lag and step > 1 else 1)
        needed += pending
        if ctx.shared.affordable(needed, ROLLOUT) < needed:
            ctx.warn(
                f"the budget ends training before step {step} of {config.steps}: a step and the evaluation after it "
                f"take {needed} calls"
            )
            return None
        return _Start(step, drawn, asked, rollouts, config)

    @property
    def _after_problem(self) -> bool:
        return isinstance(self.config, EvolutionSettings) and self.config.principles_in == "user"

    def _prompts(self, ctx: RunContext) -> Prompts:
        """Return the system prompts that the run starts with."""
        config = self.config
        if not isinstance(config, EvolutionSettings):
            return FixedPrompt(config.system_prompt or "")
        own = ctx.training.task.seed_instruction() if config.principles_in == "system" else ""
        return Evolution(ctx, config, config.system_prompt or own)

    def _tested(self, prompts: Prompts) -> str:
        config = self.config
        latest = isinstance(config, EvolutionSettings) and config.eval_prompt == "latest"
        return (prompts.latest if latest else prompts.best).prompt.text

    async def _update(self, ctx: RunContext, step: int, episodes: Sequence[Episode]) -> dict[str, float]:
        """Learn from a batch, where weights are trained."""
        config = self.config
        if not isinstance(config, GradientSettings):
            ctx.record_rollouts(step, episodes, [None] * len(episodes))
            return {}
        signals = advantages(episodes, config.group, leave_one_out=self.leave_one_out)
        ctx.record_rollouts(step, episodes, signals)
        # Nothing is learned from what the engine refused or the task could not score.
        rows = [one.row(signal) for one, signal in zip(episodes, signals, strict=True) if signal is not None]
        if any(signals) or (config.kl and rows):
            return await ctx.policy.update(step, rows)
        # All advantages and so the gradient are zero; the optimiser's momentum alone would move the weights.
        ctx.warn(f"step {step}: in each group all rewards are equal, so there is nothing to learn: no update")
        return {}

    async def _keep(self, ctx: RunContext, step: int) -> None:
        """Keep the weights of an evaluation, where they are to be tested under other system prompts."""
        if isinstance(self.config, EsplConfig) and self.config.transplant:
            await ctx.policy.export(step)

    async def _leave(self, ctx: RunContext, prompts: Prompts) -> None:
        """Save what was found: the best system prompt, and the trained weights."""
        if prompts.candidates:
            best, prompt = prompts.best.candidate, prompts.best.prompt
            ctx.save_artifact(
                "system_prompt.json",
                {"id": best.id, "mean": best.mean, "sd": best.sd, "text": prompt.text, **prompt._asdict()},
            )
        if self.trains:
            await ctx.policy.export()


class EsplEvolution(Espl):
    """The same with frozen weights: evolution alone (section 4.1)."""

    name = "espl_evolution"
    description = "system prompts evolve by self-reflection, under frozen weights (E-SPL's evolution alone)"
    trains = False
    Config = EsplEvolutionConfig


class EsplSelfReflection(EsplEvolution):
    """Mutation alone on a population of one: each system prompt takes its parent's place (section 4.1)."""

    name = "espl_self_reflection"
    description = "one system prompt is refined by self-reflection, under frozen weights (E-SPL's baseline)"
