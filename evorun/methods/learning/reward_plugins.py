"""Rewards from plug-ins: `method.reward_source=NAME` chooses one for any method that learns from fixed rewards.

A package offers one as an entry point in the group `evorun.rewards`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from evorun.fields import Checked
from evorun.rollouts.calls import Role

if TYPE_CHECKING:  # the command line imports this module, and no method
    from evorun.methods.context import RunContext
    from evorun.methods.learning.parts import LearningSettings, RewardSource


@dataclass
class RewardConfig(Checked):
    """Base of a reward's settings: a plug-in's subclass, whose fields are keys of `method.reward_settings`."""

    section = "method.reward_settings"
    roles: ClassVar[Mapping[str, Role]] = {}
    """The model role that answers each call role of the reward; empty for a reward that asks no model."""
    sees_answers: ClassVar[bool] = True
    """False: it uses neither grades nor right answers, so it also suits tasks that are graded by opinion."""

    def make(self, ctx: "RunContext", settings: "LearningSettings") -> "RewardSource":
        """Return the source of a run's rewards. Raises ConfigError when something is missing.

        settings: the method's, such as `format_reward`, which the source applies where it keeps them.
        """
        raise NotImplementedError
