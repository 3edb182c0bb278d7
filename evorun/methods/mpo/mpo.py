"""Meta policy optimization: the rubric behind the rewards evolves while the weights learn (MPO, section 2.3).

MPO changes the reward, not the trainer: its update is that of another method (`method.trainer`). Every k batches, a
meta reward model rewrites the rubric during the update.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, ClassVar

from evorun.errors import ConfigError
from evorun.fields import OneOf, require_at_least
from evorun.methods.context import RunContext
from evorun.methods.learning.evaluation import answer_prompt
from evorun.methods.learning.group_advantages import subtract_mean, subtract_mean_of_others
from evorun.methods.learning.loop import Learning
from evorun.methods.learning.parts import (
    Batch,
    RewardSource,
    RubricReward,
    RubricVersions,
    UpdateRule,
    make_rubric_reward,
)
from evorun.methods.learning.updates import GroupRelative, Proximal
from evorun.methods.mpo.meta_prompts import MetaPrompts, Sample
from evorun.methods.mpo.refinement import MetaRewardModel, Validation, answered, choose
from evorun.methods.mpo.refinement_settings import (
    ANALYSE,
    CALIBRATE,
    MERGE,
    NEVER,
    REFINE,
    RefinedLearningSettings,
    RefinementSettings,
)
from evorun.methods.mpo.rubric_trials import Answered
from evorun.models.base import Sampling
from evorun.rollouts.calls import Role
from evorun.rollouts.episodes import Asked, Episode, Rollouts
from evorun.rollouts.monitors import known_exploit
from evorun.rollouts.rubric_rewards import RubricRewards, is_scored_by_rubric
from evorun.tasks.capabilities import SupportsGeneration, SupportsRubrics
from evorun.training.objectives import LOSSES, GradientSettings, ProximalSettings

META_ROLES: Mapping[str, Role] = {**dict.fromkeys((ANALYSE, REFINE, MERGE), Role("meta")), CALIBRATE: Role("policy")}


def make_rubric_source(ctx: RunContext, config: RefinedLearningSettings, last_step: int | None) -> RewardSource:
    """Return rewards by a rubric, which is refined unless the schedule is never.

    Raises ConfigError for a rubric that the task does not know, or for unusable prompt files of the user.
    """
    fixed = make_rubric_reward(ctx, config)
    if config.refine_schedule == NEVER:
        return fixed
    return RefinedRubric(ctx, config, fixed.versions, fixed.rewards, last_step)


class RefinedRubric(RubricReward):
    """MPO's source of rewards: a reward model scores by rubrics that a meta reward model rewrites."""

    def __init__(
        self,
        ctx: RunContext,
        settings: RefinementSettings,
        versions: RubricVersions,
        rewards: RubricRewards,
        last_step: int | None = None,
    ) -> None:
        """last_step: no rubric is made that would score no batch up to this step."""
        super().__init__(versions, rewards)
        self._ctx = ctx
        self._settings = settings
        self._last_step = last_step
        self._keys = tuple(versions.latest)
        self._seen: dict[str, list[Sample]] = {key: [] for key in self._keys}
        """Episodes since the last refinement, by key."""
        self._held_out: dict[str, list[Sample]] = {key: [] for key in self._keys}
        """Episodes of each key's first batch that no refinement sees, with `keep_rubric=validated`."""
        self._last_refined = 0
        known = ctx.training.demonstrations if settings.references else {}
        self._meta = MetaRewardModel(ctx.shared, MetaPrompts(versions.task, settings, known), settings, rewards)

    async def evolve(self, batch: Batch, figures: Mapping[str, float]) -> dict[str, float]:
        """Every k batches analyse, refine, merge and replace (section 2.3, figure 3); return figures of the step.

        figures: the batch's figures, including those of hacking monitors (`monitor_<name>`).
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
        """Refine all rubrics concurrently, each on its own samples; a rubric without samples stays unchanged."""
        rng, count, task = self._ctx.shared.rng, self._settings.refine_samples, self.versions.task
        async with asyncio.TaskGroup() as together:
            refining = {
                key: together.create_task(
                    self._meta.refine(  # meta-analysis, meta-refinement, meta-merging
                        step,
                        number * len(self._keys) + index,
                        self.versions.latest[key].rubric,
                        choose(samples[key], count, how, rng(REFINE, step, number, key), task.script),  # n of them
                        self._validation(key),
                    )
                )
                for index, key in enumerate(self._keys)
                if samples[key]
            }
        self._meta.charge()
        results = {key: task.result() for key, task in refining.items()}
        for key, refined in results.items():
            if refined.rubric is not None:  # it rewards from the next batch on
                self.versions.add(key, refined.rubric, generation=step, operator="refinement", **refined.origin)
        figures = sum((refined.figures for refined in results.values()), Counter[str]())
        rubrics = [version.rubric for version in self.versions.latest.values()]
        return dict(figures) | {
            "rubric_total": fmean(rubric.maximum for rubric in rubrics),
            "rubric_words": fmean(rubric.words for rubric in rubrics),
            "rubric_item_words": fmean(rubric.words_per_item for rubric in rubrics),
        }

    def _is_due(self, step: int, figures: Mapping[str, float]) -> bool:
        settings = self._settings
        if settings.refine_schedule == "fixed":
            return step % settings.refine_every == 0
        if step - self._last_refined < settings.refine_every:
            return False
        collapsed = figures.get("reward_spread", settings.collapse_below) < settings.collapse_below
        fired = [figures.get(f"monitor_{name}", 0.0) > threshold for name, threshold in settings.monitors_above.items()]
        return collapsed or any(fired)

    def _has_use(self, step: int) -> bool:
        """Return whether a rubric made after a step would still score a batch."""
        return self._last_step is None or step + 1 + self._ctx.max_lag <= self._last_step

    def max_calls_after(self, step: int) -> int:
        settings = self._settings
        if settings.refine_schedule == "before" or not self._has_use(step):
            return 0
        due = settings.refine_schedule == "adaptive" or step % settings.refine_every == 0
        return due * len(self._keys) * self._meta.max_calls

    async def prepare(self, sampling: Sampling, system_prompt: str) -> None:
        """Refine the rubrics on responses of the untrained policy before the first step, with the schedule `before`.

        This is the baseline AutoPrompt (Levi et al., 2024), as far as it applies to a rubric. Each round scores fresh
        responses by the present rubric, analyses those of which it is least certain, and replaces the rubric. The last
        one stays fixed.
        """
        settings, ctx, task = self._settings, self._ctx, self.versions.task
        if settings.refine_schedule != "before":
            return
        rollouts = Rollouts(ctx.shared, ctx.training.task, CALIBRATE, self.rewards)
        problems = ctx.training.problems
        for number in range(settings.refine_rounds):
            drawn = ctx.shared.rng(CALIBRATE, number).integers(len(problems), size=settings.refine_pool).tolist()
            asked = [Asked(problems[at], answer_prompt(task, problems[at], system_prompt)) for at in drawn]
            needed = rollouts.max_calls([request.problem for request in asked]) + self.rewards.max_calls(len(asked), 0)
            needed += len(self._keys) * self._meta.max_calls
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
                ctx.warn(f"round {number + 1} of the refinement of rubrics refined none: {counts or 'no samples'}")

    def _add_samples(self, samples: Mapping[str, list[Sample]], scored: Iterable[Episode], step: int) -> None:
        for episode in scored:
            key = self.versions.task.rubric_key(episode.asked.problem)
            samples[key].append(Sample(episode, self.versions.at(key, step).rubric))

    def _hold_out(self, count: int, step: int) -> None:
        """Hold out episodes of each key's first batch, before the policy has learned to exploit the rubric."""
        for key in self._keys:
            if self._seen[key] and not self._held_out[key]:
                drawn = self._ctx.shared.rng("held_out", step, key).permutation(len(self._seen[key]))[:count].tolist()
                self._held_out[key] = [self._seen[key][at] for at in sorted(drawn)]
                self._seen[key] = [sample for at, sample in enumerate(self._seen[key]) if at not in drawn]

    def _validation(self, key: str) -> Validation | None:
        """Return the data that validate a key's new rubrics; None where there are none."""
        held_out, task = answered(self._held_out[key]), self.versions.task
        exploits = [
            Answered(sample.problem, task.parse(sample.problem, known_exploit(number, sample.response.text)))
            for number, sample in enumerate(held_out)
        ]
        return Validation(held_out, exploits) if held_out else None


TRAINERS = ("ppo", "grpo", "cispo", "rloo")
"""The methods whose updates MPO can use."""


@dataclass(kw_only=True)
class MpoConfig(RefinedLearningSettings, ProximalSettings, GradientSettings):
    """Hyperparameters; `conf/method/mpo.yaml` gives each default and its source.

    Settings of trainers other than the chosen one have no effect.
    """

    own_rewards = "the rubric that it evolves"

    trainer: Annotated[str, OneOf(TRAINERS)]
    """ppo | grpo | cispo | rloo: the method whose update is used, with its settings."""
    loss: Annotated[str, OneOf(LOSSES)]
    """For grpo: grpo | dr_grpo | dapo | bnpo, the weighting of a batch's tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trainer != "ppo":
            require_at_least("method.group", self.group, 2)
        if self.trainer == "cispo":
            self.require_bounds_of_cispo()
        if self.rubric is None:
            raise ConfigError(
                "method.rubric: expected an initial rubric (initial, expert, FILE), got null; without one, "
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
    def update_rule(self) -> UpdateRule:
        config = self.config
        if config.trainer == "ppo":
            return Proximal(config, config.temperature, config.group)
        loss = {"grpo": config.loss, "cispo": "cispo", "rloo": "dr_grpo"}[config.trainer]
        advantages = subtract_mean_of_others if config.trainer == "rloo" else subtract_mean
        return GroupRelative(config, config.temperature, config.group, loss, advantages)

    def rewards(self, ctx: RunContext) -> RewardSource:
        return make_rubric_source(ctx, self.config, self.last_step)
