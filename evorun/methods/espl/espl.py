"""E-SPL: system prompts that evolve while the weights learn (Algorithms 1 and 2).

`espl` does both. `espl_evolution` keeps the weights as they are, and `espl_self_reflection` is its mutation alone on a
population of one (section 4.1). RL alone is the same loop under one prompt that never changes (`grpo` and its kin).
The rewards are the task's grades or, with `method.rubric`, a reward model's, by a rubric that is refined as MPO does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from evorun.errors import at_least, one_of
from evorun.methods.context import RunContext
from evorun.methods.espl.evolution import OPERATORS, EvolutionSettings, PromptPopulation
from evorun.methods.learning.loop import Learning
from evorun.methods.learning.parts import PromptSource, RewardSource, Update
from evorun.methods.learning.policy_gradient import BaselineSettings, GroupRelative
from evorun.methods.mpo.refinement_settings import RefinedLearningSettings
from evorun.methods.mpo.rubrics import META_ROLES, make_rubric_source
from evorun.rollouts.calls import Role
from evorun.tasks.base import Task
from evorun.tasks.capabilities import Generates, Instructs
from evorun.training.objectives import LOSSES, GradientSettings


@dataclass(kw_only=True)
class EsplEvolutionConfig(RefinedLearningSettings, EvolutionSettings):
    """Hyperparameters; `conf/method/espl_evolution.yaml` gives each default and its source."""

    def __post_init__(self) -> None:
        RefinedLearningSettings.__post_init__(self)
        EvolutionSettings.__post_init__(self)
        at_least("method.group", self.group, 2)


@dataclass(kw_only=True)
class EsplConfig(EsplEvolutionConfig, GradientSettings, BaselineSettings):
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
        BaselineSettings.__post_init__(self)
        one_of("method.loss", self.loss, (*LOSSES, "cispo"))
        if self.loss == "cispo":
            self.require_bounds_of_cispo()


class EsplEvolution(Learning):
    """A population of system prompts under frozen weights: evolution alone (section 4.1)."""

    name = "espl_evolution"
    description = "system prompts evolve by self-reflection, under frozen weights (E-SPL's evolution alone)"
    needs = (Instructs,)
    # Reflections go out beside the update.
    roles: ClassVar = {**Learning.roles, **META_ROLES, **dict.fromkeys(OPERATORS, Role("reference"))}
    trains = False
    Config: ClassVar[type[EsplEvolutionConfig]] = EsplEvolutionConfig
    config: EsplEvolutionConfig

    @property
    def update(self) -> Update | None:
        return None

    def prompts(self, ctx: RunContext) -> PromptSource:
        config = self.config
        own = ctx.training.task.seed_instruction() if config.principles_in == "system" else ""
        return PromptPopulation(ctx, config, config.system_prompt or own)

    def rewards(self, ctx: RunContext) -> RewardSource:
        config = self.config
        return super().rewards(ctx) if config.rubric is None else make_rubric_source(ctx, config, self.last_step)

    @property
    def after_problem(self) -> bool:
        return self.config.principles_in == "user"

    @property
    def roles_here(self) -> Mapping[str, Role]:
        reflecting = Role("policy", lag=1) if self.config.reflect_with == "policy" else Role("reference")  # figure 15
        return {**super().roles_here, **dict.fromkeys(OPERATORS, reflecting)}

    def incompatibility(self, task: type[Task]) -> str | None:
        if self.config.principles_in == "user" and not issubclass(task, Generates):
            return f"method.principles_in: task={task.name} asks under a system prompt only; set it to system"
        return super().incompatibility(task)


class EsplSelfReflection(EsplEvolution):
    """Mutation alone on a population of one: each system prompt takes its parent's place (section 4.1)."""

    name = "espl_self_reflection"
    description = "one system prompt is refined by self-reflection, under frozen weights (E-SPL's baseline)"


class Espl(EsplEvolution):
    """Policy gradients under a population of system prompts, which evolves by reflection on the same data."""

    name = "espl"
    description = "system prompts evolve by self-reflection while the weights learn (E-SPL)"
    trains = True
    Config = EsplConfig
    config: EsplConfig

    @property
    def update(self) -> Update:
        config = self.config
        group = config.group * (config.prompts if config.baseline == "problem" else 1)
        return GroupRelative(config, config.temperature, group, config.loss)

    @property
    def transplants(self) -> bool:
        return self.config.transplant

    async def save_evaluation(self, ctx: RunContext, step: int) -> None:
        """Keep the weights of an evaluation, where they are to be tested under other system prompts."""
        if self.config.transplant:
            await ctx.policy.export(step)
