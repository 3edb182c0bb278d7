"""Meta policy optimisation: the rubric that rewards evolves while the weights learn (MPO, section 2.3).

MPO owns the reward, not the trainer: its update is that of another method (`method.trainer`) under one configuration. A
meta reward model rewrites the rubric beside the update, every so many batches.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

from msgspec.structs import replace

from evorun.errors import ConfigError, at_least, one_of
from evorun.methods.context import RunContext
from evorun.methods.learning.evaluation import answer_prompt
from evorun.methods.learning.loop import Learning
from evorun.methods.learning.parts import (
    Batch,
    FixedRubric,
    RewardSource,
    Update,
    Version,
    given_versions,
    is_scored_by_rubric,
    reward_spread,
    rubric_rewards,
    save_rubrics,
    version_id,
)
from evorun.methods.learning.updates import GroupRelative, Proximal
from evorun.methods.mpo.meta_prompts import MetaPrompts, Sample
from evorun.methods.mpo.refinement import Checks, MetaRewardModel, Refined, Turn, answered, choose
from evorun.methods.mpo.refinement_settings import (
    ANALYSE,
    CALIBRATE,
    MERGE,
    NEVER,
    REFINE,
    RefinedLearningSettings,
    RefinementSettings,
)
from evorun.methods.mpo.rubric_trials import Answered, Scorer, known_exploit
from evorun.models.base import Sampling
from evorun.rollouts.calls import Role
from evorun.rollouts.episodes import Asked, Episode, Rollouts
from evorun.runs.candidates import Candidate, CandidateId
from evorun.tasks.base import Problem
from evorun.tasks.capabilities import Generates, ScoresByRubric
from evorun.tasks.rubrics import Rubric
from evorun.training.objectives import LOSSES, GradientSettings, ProximalSettings

META_ROLES: Mapping[str, Role] = {**dict.fromkeys((ANALYSE, REFINE, MERGE), Role("meta")), CALIBRATE: Role("policy")}


def make_rubric_source(ctx: RunContext, config: RefinedLearningSettings, last_step: int | None) -> RewardSource:
    """Return rewards by a rubric that is refined, unless its schedule is never to.

    Raises ConfigError for a rubric that the task does not know, and for the user's prompt files that cannot be used.
    """
    return FixedRubric(ctx, config) if config.refine_schedule == NEVER else RefinedRubric(ctx, config, last_step)


class RefinedRubric:
    """A reward model scores by rubrics that a meta reward model rewrites: MPO's source of rewards."""

    def __init__(self, ctx: RunContext, config: RefinedLearningSettings, last_step: int | None) -> None:
        self._task = ctx.training.task
        self.rewards = rubric_rewards(ctx, config, lambda key, step: self._rubrics.at(key, step))
        self._rubrics = Rubrics(ctx, config.rubric or "", config, self.rewards, last_step)

    @property
    def candidates(self) -> Sequence[Candidate]:
        return self._rubrics.candidates

    def candidate_id(self, problem: Problem, step: int) -> CandidateId | None:
        return self._rubrics.version_at(self._task.rubric_key(problem), step).candidate.id

    def changed_after(self, step: int) -> int:
        return max(self._rubrics.version_at(key, step).candidate.generation for key in self._task.rubric_keys())

    def max_calls(self, episodes: int, step: int) -> int:
        return self.rewards.most_calls(episodes, step)

    def max_calls_after(self, step: int) -> int:
        return self._rubrics.max_calls(step)

    async def prepare(self, sampling: Sampling, system_prompt: str) -> None:
        await self._rubrics.prepare(self.rewards, sampling, system_prompt)

    async def evolve(self, batch: Batch, figures: Mapping[str, float]) -> dict[str, float]:
        return await self._rubrics.evolve(batch.step, batch.episodes, figures)

    def save(self, ctx: RunContext) -> None:
        save_rubrics(ctx, self._rubrics.latest)


class Rubrics:
    """The lineages of a run's rubrics; each step's responses are scored by the versions of a step before it."""

    def __init__(
        self,
        ctx: RunContext,
        name: str,
        settings: RefinementSettings,
        scorer: Scorer,
        last_step: int | None = None,
    ) -> None:
        """name: of the rubric to start from (`ScoresByRubric.given_rubric`).

        scorer: of samples by rubrics that are tried. last_step: a rubric that no batch up to this step would be scored
        by is not made.
        Raises ConfigError for a name that the task does not know, and for the user's prompt files that cannot be used.
        """
        self._ctx = ctx
        self._settings = settings
        self._last_step = last_step
        self._task = ctx.training.task
        self._keys: tuple[str, ...] = self._task.rubric_keys()
        self._lineages = {key: [version] for key, version in given_versions(self._task, name).items()}
        self._seen: dict[str, list[Sample]] = {key: [] for key in self._keys}
        """Episodes since the last refinement."""
        self._held_out: dict[str, list[Sample]] = {key: [] for key in self._keys}
        """Episodes of each key's first batch that no refinement sees, with `keep_rubric=validated`."""
        self._last_refined = 0
        known = ctx.training.demonstrations if settings.references else {}
        self._meta = MetaRewardModel(ctx.shared, MetaPrompts(self._task, settings, known), settings, scorer)

    def at(self, key: str, step: int) -> Rubric:
        """Return the rubric that a step's responses are scored by: the latest that was there when they were played.

        By the step, never by the moment: with `training.max_lag` a step is played while the one before refines.
        """
        return self.version_at(key, step).rubric

    def version_at(self, key: str, step: int) -> Version:
        """Return the rubric of `at` with its candidate."""
        known = max(0, step - 1 - self._ctx.max_lag)
        return next(one for one in reversed(self._lineages[key]) if one.candidate.generation <= known)

    @property
    def latest(self) -> Mapping[str, Version]:
        """The last version of each key."""
        return {key: lineage[-1] for key, lineage in self._lineages.items()}

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All versions, as records take them; the last one of each key is marked as a survivor."""
        last = {lineage[-1].candidate.id for lineage in self._lineages.values()}
        versions = [one.candidate for lineage in self._lineages.values() for one in lineage]
        # in the order of their appearance, a step's by key
        return [replace(one, survivor=one.id in last) for one in sorted(versions, key=lambda one: one.generation)]

    def max_calls(self, step: int) -> int:
        """Return how many calls `evolve` makes at a step at most."""
        settings = self._settings
        if settings.refine_schedule == "before" or not self._has_use(step):
            return 0
        due = settings.refine_schedule == "adaptive" or step % settings.refine_every == 0
        return due * len(self._keys) * self._meta.most_calls

    async def evolve(self, step: int, episodes: Sequence[Episode], figures: Mapping[str, float]) -> dict[str, float]:
        """Refine the rubrics after a step where that is due; return figures of the step.

        episodes, figures: of the step's batch, the hacking monitors' among them (`monitor_<name>`).
        """
        scored = [one for one in episodes if is_scored_by_rubric(one)]
        result = reward_spread(scored)
        if self._settings.refine_schedule == "before" or not self._has_use(step):
            return result
        for one in scored:
            key = self._task.rubric_key(one.asked.problem)
            self._seen[key].append(Sample(one.without_tokens(), self.at(key, step)))
        if self._settings.keep_rubric == "validated":
            self._hold_out(self._settings.validation_samples, step)
        if not self._due(self._settings, step, {**figures, **result}):
            return result
        samples, self._last_refined = self._seen, step
        self._seen = {key: [] for key in self._keys}
        return result | await self._refine(self._settings, step, samples, self._settings.choose_samples)

    async def prepare(self, rewards: Scorer, sampling: Sampling, system_prompt: str = "") -> None:
        """Refine the rubrics on responses of the untrained policy before the first step, where the schedule says so.

        The baseline AutoPrompt (Levi et al., 2024) as far as it applies to a rubric: in each round the present one is
        tried on fresh responses, those that it is the least sure of are looked at, and the next one takes its place.
        The last one stays fixed.
        """
        settings, ctx = self._settings, self._ctx
        if settings.refine_schedule != "before":
            return
        rollouts = Rollouts(ctx.shared, self._task, CALIBRATE, rewards)
        problems = ctx.training.problems
        for number in range(settings.refine_rounds):
            drawn = ctx.shared.rng(CALIBRATE, number).integers(len(problems), size=settings.refine_pool).tolist()
            asked = [Asked(problems[at], answer_prompt(self._task, problems[at], system_prompt)) for at in drawn]
            needed = rollouts.most_calls([one.problem for one in asked]) + rewards.most_calls(len(asked), 0)
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
            for one in filter(is_scored_by_rubric, episodes):
                key = self._task.rubric_key(one.asked.problem)
                samples[key].append(Sample(one, self.at(key, 0)))
            figures = await self._refine(settings, 0, samples, "boundary", number)
            if not figures.get("rubrics_refined"):
                counts = ", ".join(f"{name} {count:g}" for name, count in figures.items() if "refused" in name)
                ctx.warn(f"round {number + 1} of the refinement of rubrics has refined none: {counts or 'no samples'}")

    def _has_use(self, step: int) -> bool:
        """Tell whether a batch is left that a rubric made after a step would score."""
        return self._last_step is None or step + 1 + self._ctx.max_lag <= self._last_step

    def _hold_out(self, count: int, step: int) -> None:
        """Set episodes of each key's first batch aside: before the policy has learned what the rubric pays for."""
        for key in self._keys:
            if self._seen[key] and not self._held_out[key]:
                drawn = self._ctx.shared.rng("held_out", step, key).permutation(len(self._seen[key]))[:count].tolist()
                self._held_out[key] = [self._seen[key][at] for at in sorted(drawn)]
                self._seen[key] = [one for at, one in enumerate(self._seen[key]) if at not in drawn]

    def _checks(self, key: str) -> Checks | None:
        """Return what a key's new rubrics are validated on; None without anything."""
        held_out = answered(self._held_out[key])
        exploits = [
            Answered(one.problem, self._task.parse(one.problem, known_exploit(number, one.response.text)))
            for number, one in enumerate(held_out)
        ]
        return Checks(held_out, exploits) if held_out else None

    def _due(self, settings: RefinementSettings, step: int, figures: Mapping[str, float]) -> bool:
        if settings.refine_schedule == "fixed":
            return step % settings.refine_every == 0
        if step - self._last_refined < settings.refine_every:
            return False
        collapsed = figures.get("reward_spread", settings.collapse_below) < settings.collapse_below
        fired = [figures.get(f"monitor_{name}", 0.0) > most for name, most in settings.monitors_above.items()]
        return collapsed or any(fired)

    async def _refine(
        self, settings: RefinementSettings, step: int, samples: Mapping[str, list[Sample]], how: str, number: int = 0
    ) -> dict[str, float]:
        """Refine all rubrics at once, each on samples of its own; one without samples stays as it is."""
        rng, count = self._ctx.shared.rng, settings.refine_samples
        async with asyncio.TaskGroup() as together:
            refining = {
                key: together.create_task(
                    self._meta.refine(
                        Turn(step, number * len(self._keys) + index),
                        self._lineages[key][-1].rubric,
                        choose(samples[key], count, how, rng(REFINE, step, number, key), self._task.script),
                        self._checks(key),
                    )
                )
                for index, key in enumerate(self._keys)
                if samples[key]
            }
        self._meta.charge()
        refined = {key: one.result() for key, one in refining.items()}
        for key, one in refined.items():
            self._add(key, step, one)
        figures = sum((one.figures for one in refined.values()), Counter[str]())
        rubrics = [lineage[-1].rubric for lineage in self._lineages.values()]
        return dict(figures) | {
            "rubric_total": fmean(one.maximum for one in rubrics),
            "rubric_words": fmean(one.words for one in rubrics),
            "rubric_item_words": fmean(one.words_per_item for one in rubrics),
        }

    def _add(self, key: str, step: int, refined: Refined) -> None:
        if refined.rubric is None:
            return
        lineage = self._lineages[key]
        parent, fields = lineage[-1].candidate, dict[str, Any](refined.origin)
        candidate = Candidate(
            id=version_id(key, len(lineage)),
            kind="rubric",
            generation=step,
            parents=(parent.id,),
            operator="refinement",
            text=refined.rubric.text,
            answer=None,
            **fields,
        )
        lineage.append(Version(candidate, refined.rubric))


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
    needs = (Generates, ScoresByRubric)

    @property
    def update(self) -> Update:
        config = self.config
        if config.trainer == "ppo":
            return Proximal(config, config.temperature, config.group)
        loss = {"grpo": config.loss, "cispo": "cispo", "rloo": "dr_grpo"}[config.trainer]
        return GroupRelative(config, config.temperature, config.group, loss, leave_one_out=config.trainer == "rloo")

    def rewards(self, ctx: RunContext) -> RewardSource:
        return make_rubric_source(ctx, self.config, self.last_step)
