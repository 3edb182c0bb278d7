"""Reinforcement learning on a task's training split under one fixed prompt: `grpo`, `cispo` and `rloo`.

These are E-SPL's "RL only" baselines (section 4.1): its loop under one fixed prompt, with its objective (section 3.1).
Each problem gets N rewarded completions. An advantage is the reward minus the mean of the N (with `rloo`: of the
others), not divided by their standard deviation; `grpo` and `cispo` also have TTT-Discover's entropic advantages
(`method.advantage`). TRL's GRPOTrainer does the rest. With `method.draws` a problem has N
completions per draw of the prompt, as E-SPL has N per prompt.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from evorun.errors import ConfigError
from evorun.fields import GroupSize, OneOf, PositiveInt
from evorun.methods.context import RunContext
from evorun.methods.learning.group_advantages import subtract_mean, subtract_mean_of_others
from evorun.methods.learning.loop import Learning
from evorun.methods.learning.parts import FixedPrompt, LearningSettings, PromptSource, UpdateRule
from evorun.methods.learning.updates import AdvantageSettings, BaselineSettings, GroupAdvantages, GroupRelative
from evorun.tasks.base import Task
from evorun.tasks.capabilities import SupportsSystemPrompts
from evorun.training.objectives import LOSSES, GradientSettings


@dataclass(kw_only=True)
class PolicyGradientConfig(LearningSettings, GradientSettings, BaselineSettings):
    """Hyperparameters; the methods' YAML files give each default and its source."""

    group: GroupSize
    """Completions of each problem under each system prompt (N)."""
    draws: PositiveInt
    """Draws of the prompt per problem of a batch, with `group` completions each."""
    task_instruction: bool
    """Use the task's instruction as the system prompt, as in the root of E-SPL's population; false: use the task's own
    prompt for an answer."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task_instruction and self.system_prompt is not None:
            raise ConfigError(
                "method.task_instruction: has no effect with method.system_prompt, which replaces the instruction; "
                "set only one of the two"
            )


@dataclass(kw_only=True)
class GroupAdvantageConfig(PolicyGradientConfig, AdvantageSettings):
    """Hyperparameters of the methods whose advantages may be entropic."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_group(self.group * (self.draws if self.baseline == "problem" else 1))


@dataclass(kw_only=True)
class GrpoConfig(GroupAdvantageConfig):
    """Hyperparameters; `conf/method/grpo.yaml` gives each default and its source."""

    loss: Annotated[str, OneOf(LOSSES)]
    """grpo | dr_grpo | dapo | bnpo: how a batch's tokens are weighted (`evorun.training.batches.token_weight`)."""


@dataclass(kw_only=True)
class CispoConfig(GroupAdvantageConfig):
    """Hyperparameters; `conf/method/cispo.yaml` gives each default and its source."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_bounds_of_cispo()


class PolicyGradientMethod(Learning):
    """RL alone: the loop under one fixed prompt."""

    Config: ClassVar[type[PolicyGradientConfig]] = PolicyGradientConfig
    config: PolicyGradientConfig

    def group_relative(
        self,
        loss: str = "dr_grpo",
        advantages: GroupAdvantages = subtract_mean,
        kind: type[GroupRelative] = GroupRelative,
    ) -> UpdateRule:
        """Return the update with one of TRL's losses (`evorun.training.objectives.LOSSES`, or cispo).

        kind: a subclass, whose advantages depend on more than a group's rewards.
        """
        config = self.config
        group = config.group * (config.draws if config.baseline == "problem" else 1)
        return kind(config, config.temperature, group, loss, advantages)

    def prompts(self, ctx: RunContext) -> PromptSource:
        config = self.config
        seed = ctx.training.task.seed_instruction() if config.task_instruction else ""
        return FixedPrompt(config.system_prompt or seed, config.draws)

    def incompatibility(self, task: type[Task]) -> str | None:
        if self.config.task_instruction and not issubclass(task, SupportsSystemPrompts):
            return f"method.task_instruction: task={task.name} takes no system prompt; leave it false"
        return super().incompatibility(task)


class Grpo(PolicyGradientMethod):
    """Group-relative policy optimization."""

    name = "grpo"
    description = "reinforcement learning by group-relative advantages (TRL's GRPOTrainer)"
    Config: ClassVar[type[GrpoConfig]] = GrpoConfig
    config: GrpoConfig

    @property
    def update_rule(self) -> UpdateRule:
        return self.group_relative(self.config.loss, self.config.group_advantages)


class Cispo(PolicyGradientMethod):
    """The same advantages with clipped importance weights; every token keeps its gradient."""

    name = "cispo"
    description = "reinforcement learning with clipped importance weights (CISPO, TRL's GRPOTrainer)"
    Config = CispoConfig
    config: CispoConfig

    @property
    def update_rule(self) -> UpdateRule:
        return self.group_relative("cispo", self.config.group_advantages)


class Rloo(PolicyGradientMethod):
    """REINFORCE with the mean reward of a completion's siblings as its baseline."""

    name = "rloo"
    description = "REINFORCE with a leave-one-out baseline (TRL's GRPOTrainer)"

    @property
    def update_rule(self) -> UpdateRule:
        return self.group_relative(advantages=subtract_mean_of_others)
