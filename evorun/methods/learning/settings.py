"""Settings of the loop of reinforcement learning (`evorun.methods.learning.loop`)."""

from dataclasses import dataclass

from evorun.errors import ConfigError, above, at_least
from evorun.methods.base import SamplingSettings
from evorun.methods.learning.evaluation import RepeatedEvaluationSettings
from evorun.rollouts.rubric_settings import RubricSettings


@dataclass(kw_only=True)
class LearningSettings(RepeatedEvaluationSettings, SamplingSettings, RubricSettings):
    """Hyperparameters of the loop; the YAML files of its methods give each default and its source."""

    name: str
    steps: int | None
    """Steps, one batch each; null: as many as `data_epochs` take."""
    data_epochs: int
    """Times that each problem of the training split is in a batch, where `steps` is null; the last batch has what is
    left for it."""
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
        RubricSettings.__post_init__(self)
        for key in ("steps", "data_epochs", "problems_per_step", "group"):
            at_least(f"method.{key}", getattr(self, key), 1)
        for key in ("format_reward", "format_penalty", "overflow_penalty"):
            at_least(f"method.{key}", getattr(self, key), 0)
        above("method.temperature", self.temperature, 0)
        for key in ("format_reward", "format_penalty"):
            if self.rubric is not None and getattr(self, key):
                raise ConfigError(f"method.{key}: has no effect beside method.rubric={self.rubric}; leave it 0")

    @property
    def sees_answers(self) -> bool:
        """True when right answers have a part in the rewards."""
        return self.rubric is None or self.exact_match_rate > 0 or self.plan_reference
