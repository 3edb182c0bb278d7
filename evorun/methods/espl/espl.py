"""E-SPL: system prompts that evolve while the weights learn, as settings of one loop (Algorithms 1 and 2).

`espl` does both. `espl_evolution` keeps the weights as they are, and `espl_self_reflection` is its mutation alone on a
population of one (section 4.1). RL alone is the same loop under one prompt that never changes (policy_gradient.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from evorun.errors import at_least, one_of
from evorun.methods.context import RunContext
from evorun.methods.espl.evolution import OPERATORS, Evolution, EvolutionSettings, Prompts
from evorun.methods.learning.gradient import LOSSES, BaselineSettings, GradientSettings
from evorun.methods.learning.loop import ROLLOUT
from evorun.methods.learning.policy_gradient import GroupRelative
from evorun.methods.learning.rewarding import Rewarding
from evorun.methods.learning.round_settings import RoundSettings
from evorun.rollouts.calls import Role
from evorun.tasks.base import Task
from evorun.tasks.capabilities import Generates, Instructs


@dataclass(kw_only=True)
class EsplEvolutionConfig(RoundSettings, EvolutionSettings):
    """Hyperparameters; `conf/method/espl_evolution.yaml` gives each default and its source."""

    def __post_init__(self) -> None:
        RoundSettings.__post_init__(self)
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


class Espl(GroupRelative):
    """Policy gradients under a population of system prompts, which evolves by reflection on the same data."""

    name = "espl"
    description = "system prompts evolve by self-reflection while the weights learn (E-SPL)"
    needs = (Instructs,)
    # Reflections go out beside the update.
    roles: ClassVar = {ROLLOUT: Role("policy", lag=1), **dict.fromkeys(OPERATORS, Role("reference"))}
    Config: ClassVar[type[EsplEvolutionConfig]] = EsplConfig
    config: EsplEvolutionConfig

    @property
    def roles_here(self) -> Mapping[str, Role]:
        if self.config.reflect_with == "policy":  # figure 15
            return {**self.roles, **dict.fromkeys(OPERATORS, Role("policy", lag=1))}
        return self.roles

    @property
    def loss(self) -> str:
        assert isinstance(self.config, EsplConfig)  # noqa: S101 - asked for only where weights are trained
        return self.config.loss

    @property
    def draws(self) -> int:
        return self.config.prompts

    @property
    def after_problem(self) -> bool:
        return self.config.principles_in == "user"

    def incompatibility(self, task: type[Task]) -> str | None:
        if self.config.principles_in == "user" and not issubclass(task, Generates):
            return f"method.principles_in: task={task.name} asks under a system prompt only; set it to system"
        return None

    def prompts(self, ctx: RunContext) -> Prompts:
        config = self.config
        own = ctx.training.task.seed_instruction() if config.principles_in == "system" else ""
        return Evolution(ctx, config, config.system_prompt or own)

    def tested(self, prompts: Prompts) -> str:
        return (prompts.latest if self.config.eval_prompt == "latest" else prompts.best).prompt.text

    async def keep(self, ctx: RunContext, step: int) -> None:
        """Keep the weights of an evaluation, where they are to be tested under other system prompts."""
        if isinstance(self.config, EsplConfig) and self.config.transplant:
            await ctx.policy.export(step)

    async def leave(self, ctx: RunContext, prompts: Prompts, rewarding: Rewarding) -> None:
        """Save what was found: the best system prompt, and the trained weights."""
        best, prompt = prompts.best.candidate, prompts.best.prompt
        ctx.save_artifact(
            "system_prompt.json",
            {"id": best.id, "mean": best.mean, "sd": best.sd, "text": prompt.text, **prompt._asdict()},
        )
        await super().leave(ctx, prompts, rewarding)


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
