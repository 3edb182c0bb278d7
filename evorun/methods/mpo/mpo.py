"""Meta policy optimisation: the rubric that rewards evolves while the weights learn (MPO, section 2.3).

MPO owns the reward, not the trainer: its update is that of another method (`method.trainer`) under one configuration. A
meta reward model rewrites the rubric beside the update, every so many batches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from evorun.errors import ConfigError, at_least, one_of
from evorun.methods.learning.gradient import LOSSES, GradientSettings
from evorun.methods.learning.loop import Reinforcement
from evorun.methods.learning.policy_gradient import Cispo, Grpo, Rloo
from evorun.methods.learning.ppo import Ppo
from evorun.methods.learning.proximal import ProximalSettings
from evorun.methods.learning.round_settings import ReinforcementSettings
from evorun.methods.mpo.refinement_settings import RefinementSettings
from evorun.methods.mpo.rubrics import ROLES
from evorun.rollouts.episodes import Episode
from evorun.tasks.capabilities import Generates, ScoresByRubric
from evorun.training.wire import Objective, Row

TRAINERS: dict[str, type[Reinforcement]] = {"ppo": Ppo, "grpo": Grpo, "cispo": Cispo, "rloo": Rloo}
"""The methods whose updates can be made."""


@dataclass(kw_only=True)
class MpoConfig(ReinforcementSettings, RefinementSettings, ProximalSettings, GradientSettings):
    """Hyperparameters; `conf/method/mpo.yaml` gives each default and its source.

    Those of other trainers than the chosen one have no effect.
    """

    trainer: str
    """ppo | grpo | cispo | rloo: the method whose update is made, with its settings."""
    loss: str
    """Of grpo: grpo | dr_grpo | dapo | bnpo, how a batch's tokens are weighed."""

    def __post_init__(self) -> None:
        ReinforcementSettings.__post_init__(self)
        RefinementSettings.__post_init__(self)
        ProximalSettings.__post_init__(self)
        GradientSettings.__post_init__(self)
        one_of("method.trainer", self.trainer, tuple(TRAINERS))
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

    @property
    def sees_answers(self) -> bool:
        return self.references or super().sees_answers


class Mpo(Reinforcement):
    """Reinforcement learning by a rubric that a meta reward model refines."""

    name = "mpo"
    description = "the reward model's rubric evolves by a meta reward model while the weights learn (MPO)"
    roles: ClassVar = {**Reinforcement.roles, **ROLES}
    Config: ClassVar[type[MpoConfig]] = MpoConfig
    config: MpoConfig
    regime = "problem_only"
    needs = (Generates, ScoresByRubric)

    @property
    def trainer(self) -> Reinforcement:
        """The method whose update is made."""
        return TRAINERS[self.config.trainer](self.config)

    def objective(self, run: Path) -> Objective:
        return self.trainer.objective(run)

    def rewards(self, episodes: Sequence[Episode]) -> list[float | None]:
        return self.trainer.rewards(episodes)

    def advantages(self, episodes: Sequence[Episode]) -> list[float | None]:
        return self.trainer.advantages(episodes)

    def has_gradient(self, rows: Sequence[Row]) -> bool:
        return self.trainer.has_gradient(rows)
