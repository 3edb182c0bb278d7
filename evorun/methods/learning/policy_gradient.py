"""Reinforcement learning on a task's training split under one fixed prompt: `grpo`, `cispo` and `rloo`.

The baselines "RL only" of E-SPL (section 4.1): its loop under one prompt that never changes, with its objective
(section 3.1): N completions of each problem are sampled and rewarded, and each one's advantage is its reward minus the
mean of the N (with `rloo`: of the others), not divided by their standard deviation. TRL's GRPOTrainer does the rest.
With `method.draws` a problem has N completions for each draw of the prompt, as E-SPL has N for each of its prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from evorun.errors import ConfigError, at_least, one_of
from evorun.methods.context import RunContext
from evorun.methods.espl.evolution import FixedPrompt, Prompts
from evorun.methods.learning.gradient import LOSSES, BaselineSettings, GradientSettings, advantages
from evorun.methods.learning.loop import Reinforcement
from evorun.methods.learning.round_settings import ReinforcementSettings
from evorun.rollouts.episodes import Episode
from evorun.training.wire import PolicyGradient, Row


@dataclass(kw_only=True)
class PolicyGradientConfig(ReinforcementSettings, GradientSettings, BaselineSettings):
    """Hyperparameters; the methods' YAML files give each default and its source."""

    draws: int
    """Draws of the prompt for each problem of a batch, with `group` completions each."""
    task_instruction: bool
    """The prompt is the task's own instruction as system prompt, the root of E-SPL's population; false: the task's own
    prompt for an answer."""

    def __post_init__(self) -> None:
        ReinforcementSettings.__post_init__(self)
        GradientSettings.__post_init__(self)
        BaselineSettings.__post_init__(self)
        at_least("method.group", self.group, 2)
        at_least("method.draws", self.draws, 1)
        if self.task_instruction and self.system_prompt is not None:
            raise ConfigError(
                "method.task_instruction: has no effect beside method.system_prompt, which stands in the instruction's "
                "place; set one of the two"
            )


@dataclass(kw_only=True)
class GrpoConfig(PolicyGradientConfig):
    """Hyperparameters; `conf/method/grpo.yaml` gives each default and its source."""

    loss: str
    """grpo | dr_grpo | dapo | bnpo: how a batch's tokens are weighed (`evorun.training.batches.token_weight`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("method.loss", self.loss, LOSSES)


@dataclass(kw_only=True)
class CispoConfig(PolicyGradientConfig):
    """Hyperparameters; `conf/method/cispo.yaml` gives each default and its source."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_bounds_of_cispo()


class GroupRelative(Reinforcement):
    """Policy gradients by advantages within groups: completions of one problem are measured by their mean reward."""

    leave_one_out: ClassVar[bool] = False
    """A completion's own reward is left out of its baseline."""

    @property
    def loss(self) -> str:
        """TRL's name of the loss."""
        return "dr_grpo"

    def objective(self, run: Path) -> PolicyGradient:
        config = self.config
        assert isinstance(config, GradientSettings)  # noqa: S101 - asked for only where weights are trained
        return PolicyGradient(
            loss=self.loss,
            steps=self.last_step or 1,  # not known before `fit_to`, and not needed there
            minibatches=config.minibatches,
            kl=config.kl,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            temperature=config.temperature,
        )

    def prompts(self, ctx: RunContext) -> Prompts:
        config = self.config
        assert isinstance(config, PolicyGradientConfig)  # noqa: S101 - others have prompts of their own
        own = ctx.training.task.seed_instruction() if config.task_instruction else ""
        return FixedPrompt(config.system_prompt or own, config.draws)

    @property
    def draws(self) -> int:
        """System prompts that are drawn for a batch."""
        return self.config.draws if isinstance(self.config, PolicyGradientConfig) else 1

    @property
    def baseline_group(self) -> int:
        of_problem = isinstance(self.config, BaselineSettings) and self.config.baseline == "problem"
        return self.config.group * (self.draws if of_problem else 1)

    def advantages(self, episodes: Sequence[Episode]) -> list[float | None]:
        return advantages(episodes, self.baseline_group, leave_one_out=self.leave_one_out)

    def has_gradient(self, rows: Sequence[Row]) -> bool:
        # With equal rewards in each group only the divergence from the reference policy has a gradient.
        divergence = isinstance(self.config, GradientSettings) and self.config.kl
        return any(row.advantage for row in rows) or bool(divergence and rows)


class Grpo(GroupRelative):
    """Group-relative policy optimisation."""

    name = "grpo"
    description = "reinforcement learning by group-relative advantages (TRL's GRPOTrainer)"
    Config = GrpoConfig
    config: GrpoConfig

    @property
    def loss(self) -> str:
        return self.config.loss


class Cispo(GroupRelative):
    """The same advantages with importance weights that are cut, while every token keeps its gradient."""

    name = "cispo"
    description = "reinforcement learning with clipped importance weights (CISPO, TRL's GRPOTrainer)"
    Config = CispoConfig

    @property
    def loss(self) -> str:
        return "cispo"


class Rloo(GroupRelative):
    """REINFORCE with the mean reward of a completion's siblings as its baseline."""

    name = "rloo"
    description = "REINFORCE with a leave-one-out baseline (TRL's GRPOTrainer)"
    leave_one_out = True
    Config = PolicyGradientConfig
