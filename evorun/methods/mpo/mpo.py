"""Meta policy optimisation: the rubric that rewards evolves while the weights learn (MPO, section 2.3).

MPO owns the reward, not the trainer: its update is that of another method (`method.trainer`) under one configuration. A
meta reward model rewrites the rubric beside the update, every so many batches.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

from evorun.errors import ConfigError, at_least, one_of
from evorun.methods.context import RunContext
from evorun.methods.learning.evaluation import answer_prompt
from evorun.methods.learning.loop import Learning
from evorun.methods.learning.parts import (
    Batch,
    RewardSource,
    RubricReward,
    RubricVersions,
    Update,
    is_scored_by_rubric,
    rubric_rewards,
)
from evorun.methods.learning.updates import GroupRelative, Proximal
from evorun.methods.mpo.meta_prompts import MetaPrompts, Sample
from evorun.methods.mpo.refinement import Checks, MetaRewardModel, RefinementKey, answered, choose
from evorun.methods.mpo.refinement_settings import (
    ANALYSE,
    CALIBRATE,
    MERGE,
    NEVER,
    REFINE,
    RefinedLearningSettings,
    RefinementSettings,
)
from evorun.methods.mpo.rubric_trials import Answered, known_exploit
from evorun.models.base import Sampling
from evorun.rollouts.calls import Role
from evorun.rollouts.episodes import Asked, Episode, Rollouts
from evorun.rollouts.rubric_rewards import RubricRewards
from evorun.tasks.capabilities import SupportsGeneration, SupportsRubrics
from evorun.training.objectives import LOSSES, GradientSettings, ProximalSettings

META_ROLES: Mapping[str, Role] = {**dict.fromkeys((ANALYSE, REFINE, MERGE), Role("meta")), CALIBRATE: Role("policy")}


def make_rubric_source(ctx: RunContext, config: RefinedLearningSettings, last_step: int | None) -> RewardSource:
    """Return rewards by a rubric that is refined, unless its schedule is never to.

    Raises ConfigError for a rubric that the task does not know, and for the user's prompt files that cannot be used.
    """
    versions = RubricVersions(ctx, config.rubric or "")
    rewards = rubric_rewards(ctx, config, versions)
    if config.refine_schedule == NEVER:
        return RubricReward(versions, rewards)
    return RefinedRubric(ctx, config, versions, rewards, last_step)


class RefinedRubric(RubricReward):
    """A reward model scores by rubrics that a meta reward model rewrites: MPO's source of rewards."""

    def __init__(
        self,
        ctx: RunContext,
        settings: RefinementSettings,
        versions: RubricVersions,
        rewards: RubricRewards,
        last_step: int | None = None,
    ) -> None:
        """last_step: a rubric that no batch up to this step would be scored by is not made."""
        super().__init__(versions, rewards)
        self._ctx = ctx
        self._settings = settings
        self._last_step = last_step
        self._keys = tuple(versions.latest)
        self._seen: dict[str, list[Sample]] = {key: [] for key in self._keys}
        """Episodes since the last refinement."""
        self._held_out: dict[str, list[Sample]] = {key: [] for key in self._keys}
        """Episodes of each key's first batch that no refinement sees, with `keep_rubric=validated`."""
        self._last_refined = 0
        known = ctx.training.demonstrations if settings.references else {}
        self._meta = MetaRewardModel(ctx.shared, MetaPrompts(versions.task, settings, known), settings, rewards)

    async def evolve(self, batch: Batch, figures: Mapping[str, float]) -> dict[str, float]:
        """Every k batches analyse, refine, merge and replace (section 2.3, figure 3); return figures of the step.

        figures: of the batch, the hacking monitors' among them (`monitor_<name>`).
        """
        settings, step = self._settings, batch.step
        spread = await super().evolve(batch, figures)
        if settings.refine_schedule == "before" or not self._has_use(step):
            return spread
        # Samples come from the batches since the last refinement.
        scored = [episode.without_tokens() for episode in batch.episodes if is_scored_by_rubric(episode)]
        self._add_samples(self._seen, scored, step)
        if settings.keep_rubric == "validated":
            self._hold_out(settings.validation_samples, step)
        if not self._is_due(step, {**figures, **spread}):
            return spread
        samples, self._last_refined = self._seen, step
        self._seen = {key: [] for key in self._keys}
        return spread | await self._refine(step, samples, settings.choose_samples)

    async def _refine(
        self, step: int, samples: Mapping[str, Sequence[Sample]], how: str, number: int = 0
    ) -> dict[str, float]:
        """Refine all rubrics at once, each on samples of its own; one without samples stays as it is."""
        rng, count, task = self._ctx.shared.rng, self._settings.refine_samples, self.versions.task
        async with asyncio.TaskGroup() as together:
            refining = {
                key: together.create_task(
                    self._meta.refine(  # meta-analysis, meta-refinement, meta-merging
                        RefinementKey(step, number * len(self._keys) + index),
                        self.versions.latest[key].rubric,
                        choose(samples[key], count, how, rng(REFINE, step, number, key), task.script),  # n of them
                        self._checks(key),
                    )
                )
                for index, key in enumerate(self._keys)
                if samples[key]
            }
        self._meta.charge()
        refined = {key: one.result() for key, one in refining.items()}
        for key, one in refined.items():
            if one.rubric is not None:  # it rewards from the next batch on
                self.versions.add(key, one.rubric, generation=step, operator="refinement", **one.origin)
        figures = sum((one.figures for one in refined.values()), Counter[str]())
        rubrics = [version.rubric for version in self.versions.latest.values()]
        return dict(figures) | {
            "rubric_total": fmean(one.maximum for one in rubrics),
            "rubric_words": fmean(one.words for one in rubrics),
            "rubric_item_words": fmean(one.words_per_item for one in rubrics),
        }

    def _is_due(self, step: int, figures: Mapping[str, float]) -> bool:
        settings = self._settings
        if settings.refine_schedule == "fixed":
            return step % settings.refine_every == 0
        if step - self._last_refined < settings.refine_every:
            return False
        collapsed = figures.get("reward_spread", settings.collapse_below) < settings.collapse_below
        fired = [figures.get(f"monitor_{name}", 0.0) > most for name, most in settings.monitors_above.items()]
        return collapsed or any(fired)

    def _has_use(self, step: int) -> bool:
        """Tell whether a batch is left that a rubric made after a step would score."""
        return self._last_step is None or step + 1 + self._ctx.max_lag <= self._last_step

    def max_calls_after(self, step: int) -> int:
        settings = self._settings
        if settings.refine_schedule == "before" or not self._has_use(step):
            return 0
        due = settings.refine_schedule == "adaptive" or step % settings.refine_every == 0
        return due * len(self._keys) * self._meta.most_calls

    async def prepare(self, sampling: Sampling, system_prompt: str) -> None:
        """Refine the rubrics on responses of the untrained policy before the first step, where the schedule says so.

        The baseline AutoPrompt (Levi et al., 2024) as far as it applies to a rubric: in each round the present one is
        tried on fresh responses, those that it is the least sure of are looked at, and the next one takes its place.
        The last one stays fixed.
        """
        settings, ctx, task = self._settings, self._ctx, self.versions.task
        if settings.refine_schedule != "before":
            return
        rollouts = Rollouts(ctx.shared, ctx.training.task, CALIBRATE, self.rewards)
        problems = ctx.training.problems
        for number in range(settings.refine_rounds):
            drawn = ctx.shared.rng(CALIBRATE, number).integers(len(problems), size=settings.refine_pool).tolist()
            asked = [Asked(problems[at], answer_prompt(task, problems[at], system_prompt)) for at in drawn]
            needed = rollouts.most_calls([one.problem for one in asked]) + self.rewards.most_calls(len(asked), 0)
            needed += len(self._keys) * self._meta.most_calls
            if ctx.shared.affordable(needed, CALIBRATE) < needed:
                ctx.warn(
                    f"the budget ends the refinement of rubrics before round {number + 1} of {settings.refine_rounds}: "
                    f"a round takes {needed} calls"
                )
                return
            indices = range(number * len(asked), (number + 1) * len(asked))
            episodes = await rollouts.play(0, asked, sampling, indices)
            samples: dict[str, list[Sample]] = {key: [] for key in self._keys}
            self._add_samples(samples, filter(is_scored_by_rubric, episodes), 0)
            figures = await self._refine(0, samples, "boundary", number)
            if not figures.get("rubrics_refined"):
                counts = ", ".join(f"{name} {count:g}" for name, count in figures.items() if "refused" in name)
                ctx.warn(f"round {number + 1} of the refinement of rubrics has refined none: {counts or 'no samples'}")

    def _add_samples(self, samples: Mapping[str, list[Sample]], scored: Iterable[Episode], step: int) -> None:
        for episode in scored:
            key = self.versions.task.rubric_key(episode.asked.problem)
            samples[key].append(Sample(episode, self.versions.at(key, step).rubric))

    def _hold_out(self, count: int, step: int) -> None:
        """Set episodes of each key's first batch aside: before the policy has learned what the rubric pays for."""
        for key in self._keys:
            if self._seen[key] and not self._held_out[key]:
                drawn = self._ctx.shared.rng("held_out", step, key).permutation(len(self._seen[key]))[:count].tolist()
                self._held_out[key] = [self._seen[key][at] for at in sorted(drawn)]
                self._seen[key] = [one for at, one in enumerate(self._seen[key]) if at not in drawn]

    def _checks(self, key: str) -> Checks | None:
        """Return what a key's new rubrics are validated on; None without anything."""
        held_out, task = answered(self._held_out[key]), self.versions.task
        exploits = [
            Answered(one.problem, task.parse(one.problem, known_exploit(number, one.response.text)))
            for number, one in enumerate(held_out)
        ]
        return Checks(held_out, exploits) if held_out else None


TRAINERS = ("ppo", "grpo", "cispo", "rloo")
"""The methods whose updates can be made."""


@dataclass(kw_only=True)
class MpoConfig(RefinedLearningSettings, ProximalSettings, GradientSettings):
    """Hyperparameters; `conf/method/mpo.yaml` gives each default and its source.

    Those of other trainers than the chosen one have no effect.
    """

    trainer: str
    """ppo | grpo | cispo | rloo: the method whose update is made, with its settings."""
    loss: str
    """Of grpo: grpo | dr_grpo | dapo | bnpo, how a batch's tokens are weighed."""

    def __post_init__(self) -> None:
        RefinedLearningSettings.__post_init__(self)
        ProximalSettings.__post_init__(self)
        GradientSettings.__post_init__(self)
        one_of("method.trainer", self.trainer, TRAINERS)
        one_of("method.loss", self.loss, LOSSES)
        if self.trainer != "ppo":
            at_least("method.group", self.group, 2)
        if self.trainer == "cispo":
            self.require_bounds_of_cispo()
        if self.rubric is None:
            raise ConfigError(
                "method.rubric: expected a rubric to begin with (initial, expert, FILE), got null; without one, "
                f"method={self.trainer} learns from the task's grade"
            )


class Mpo(Learning):
    """Reinforcement learning by a rubric that a meta reward model refines."""

    name = "mpo"
    description = "the reward model's rubric evolves by a meta reward model while the weights learn (MPO)"
    roles: ClassVar = {**Learning.roles, **META_ROLES}
    Config: ClassVar[type[MpoConfig]] = MpoConfig
    config: MpoConfig
    regime = "problem_only"
    needs = (SupportsGeneration, SupportsRubrics)

    @property
    def update(self) -> Update:
        config = self.config
        if config.trainer == "ppo":
            return Proximal(config, config.temperature, config.group)
        loss = {"grpo": config.loss, "cispo": "cispo", "rloo": "dr_grpo"}[config.trainer]
        return GroupRelative(config, config.temperature, config.group, loss, leave_one_out=config.trainer == "rloo")

    def rewards(self, ctx: RunContext) -> RewardSource:
        return make_rubric_source(ctx, self.config, self.last_step)
