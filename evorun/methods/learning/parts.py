"""The parts that a method of learning is made of: where prompts come from, what rewards, and how weights change.

The loop (`evorun.methods.learning.loop`) knows of a prompt its id and text, and of a reward its value. What evolves
prompts (`evorun.methods.espl`) and what evolves rewards (`evorun.methods.mpo`) stand
beside the sources here, which never change.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from msgspec.structs import replace

from evorun.errors import ConfigError, above, at_least
from evorun.methods.base import SamplingSettings
from evorun.methods.context import RunContext
from evorun.methods.learning.evaluation import RepeatedEvaluationSettings
from evorun.models.base import Sampling
from evorun.rollouts.episodes import Episode
from evorun.rollouts.rewards import Graded, Rewards
from evorun.rollouts.rubric_rewards import RubricRewards
from evorun.rollouts.rubric_settings import RubricSettings
from evorun.runs.candidates import Candidate, CandidateId
from evorun.tasks.base import Problem
from evorun.tasks.rubrics import Rubric
from evorun.training.wire import Objective, Row


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


class DrawnPrompt(NamedTuple):
    """A system prompt as the loop sees it."""

    id: str
    """Empty for one that no record mentions."""
    text: str


class Batch(NamedTuple):
    """The episodes of a step under the system prompts that were drawn for it."""

    step: int
    prompts: Sequence[DrawnPrompt]
    """M, in the order drawn; a prompt may be drawn more than once."""
    episodes: Sequence[Episode]
    """Of B problems; of each, N under the first system prompt, N under the second, ..."""
    group: int
    """N."""


class PromptSource(ABC):
    """The system prompts of a run. Those that never change leave out what is not abstract."""

    @property
    @abstractmethod
    def evaluated(self) -> DrawnPrompt:
        """The system prompt that the run's problems are answered under."""

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All system prompts so far, as records take them."""
        return ()

    def max_calls(self, problems: int, group: int) -> int:
        """Return an upper bound on the calls of `evolve`."""
        return 0

    @abstractmethod
    def draw(self, step: int) -> Sequence[DrawnPrompt]:
        """Draw the system prompts of a step's batch."""

    def rate(self, batch: Batch) -> None:  # noqa: B027
        """Update the ratings by the ranking of a batch."""

    def follow_update(self) -> None:  # noqa: B027
        """Update the ratings after an update of the weights."""

    async def evolve(self, batch: Batch) -> dict[str, float]:
        """Add children of the batch's system prompts; return figures of the step."""
        return {}

    def save(self, ctx: RunContext) -> None:  # noqa: B027
        """Save the best system prompt in artifacts/, where the run has evolved it."""


class RewardSource(ABC):
    """What rewards a run's episodes. Rewards that never change, and that no record mentions, leave out the methods."""

    rewards: Rewards
    """The reward of each episode."""

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All rubrics so far, as records take them."""
        return ()

    def candidate_id(self, problem: Problem, step: int) -> CandidateId | None:
        """Return the id of the rubric that rewards an episode of a step; None where the task's grade does."""
        return None

    def changed_after(self, step: int) -> int:
        """Return the latest step whose end changed the reward of a step's episodes; 0: none did."""
        return 0

    def max_calls(self, episodes: int, step: int) -> int:
        """Return an upper bound on the calls that the rewards of so many episodes of a step take."""
        return 0

    def max_calls_after(self, step: int) -> int:
        """Return an upper bound on the calls of `evolve` after a step."""
        return 0

    async def prepare(self, sampling: Sampling, system_prompt: str) -> None:  # noqa: B027
        """Prepare for the first step; sampling, system_prompt: of the rollouts."""

    async def evolve(self, batch: Batch, figures: Mapping[str, float]) -> dict[str, float]:
        """Change what rewards later steps, given a batch and its figures; return more figures of the step."""
        return {}

    def save(self, ctx: RunContext) -> None:  # noqa: B027
        """Save the last rubrics in artifacts/."""


class Update(Protocol):
    """A change of the weights by a batch of episodes."""

    @property
    def baseline_group(self) -> int:
        """Consecutive episodes of a batch that share a baseline; 1: each stands alone."""
        ...

    def objective(self, steps: int) -> Objective:
        """Return the trainer's objective. steps: batches at most."""
        ...

    def rewards(self, episodes: Sequence[Episode]) -> list[float | None]:
        """Return the reward that each episode is learned from; None without one."""
        ...

    def advantages(self, episodes: Sequence[Episode]) -> list[float | None]:
        """Return the advantage of each episode; None without a reward, or where the trainer estimates it."""
        ...

    def has_gradient(self, rows: Sequence[Row]) -> bool:
        """Return whether an update by these rows has a gradient."""
        ...


class FixedPrompt(PromptSource):
    """One system prompt that never changes, drawn equally often for each batch; no record mentions it."""

    def __init__(self, text: str, draws: int = 1) -> None:
        """text: empty for the task's own prompt for an answer."""
        self._text = text
        self._draws = draws

    @property
    def evaluated(self) -> DrawnPrompt:
        return DrawnPrompt("", self._text)

    def draw(self, step: int) -> Sequence[DrawnPrompt]:
        return [self.evaluated] * self._draws


class TaskReward(RewardSource):
    """The task's grade."""

    def __init__(self, ctx: RunContext, config: LearningSettings) -> None:
        split = ctx.training
        penalties = config.format_penalty, config.overflow_penalty
        self.rewards = Graded(ctx.shared, split.task, split.grade, config.format_reward, *penalties)


class Version(NamedTuple):
    """A rubric as the records know it and as responses are scored by it."""

    candidate: Candidate
    rubric: Rubric


class RubricVersions:
    """The rubrics of a run, one for each of the task's rubric keys, with all that took their place."""

    def __init__(self, ctx: RunContext, name: str) -> None:
        """name: of the rubric to start from. Raises ConfigError for one that the task does not know."""
        self.task = ctx.training.task
        self._max_lag = ctx.max_lag
        self._by_key: dict[str, list[Version]] = {key: [] for key in self.task.rubric_keys()}
        for key in self._by_key:
            self.add(key, self.task.given_rubric(name, key), generation=0, operator="root")

    def add(self, key: str, rubric: Rubric, **origin: Any) -> None:
        """Add the latest version of a key. origin: fields of the candidate."""
        versions = self._by_key[key]
        parents = tuple(one.candidate.id for one in versions[-1:])
        name = f"{key or 'rubric'}#{len(versions)}"
        candidate = Candidate(id=name, kind="rubric", parents=parents, text=rubric.text, answer=None, **origin)
        versions.append(Version(candidate, rubric))

    def at(self, key: str, step: int) -> Version:
        """Return the version that a step's responses are scored by: the latest that was there when they were played.

        By the step, never by the moment: with `training.max_lag` a step is played while the one before refines.
        """
        known = max(0, step - 1 - self._max_lag)
        return next(one for one in reversed(self._by_key[key]) if one.candidate.generation <= known)

    @property
    def latest(self) -> dict[str, Version]:
        """The last version of each key."""
        return {key: versions[-1] for key, versions in self._by_key.items()}

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All versions in the order of their appearance, a step's by key; the last of each key is a survivor."""
        last = {version.candidate.id for version in self.latest.values()}
        versions = [version.candidate for of_key in self._by_key.values() for version in of_key]
        return [replace(one, survivor=one.id in last) for one in sorted(versions, key=lambda one: one.generation)]


def rubric_rewards(ctx: RunContext, config: LearningSettings, versions: RubricVersions) -> RubricRewards:
    """Return the rewards by the rubric of each step."""
    split = ctx.training
    references = {name: demonstration.reference for name, demonstration in split.demonstrations.items()}
    return RubricRewards(
        ctx.shared,
        split.task,
        lambda key, step: versions.at(key, step).rubric,
        config,
        split.grade,
        references=references if config.plan_reference else {},
        overflow_penalty=config.overflow_penalty,
    )


class RubricReward(RewardSource):
    """A reward model scores by a rubric."""

    def __init__(self, versions: RubricVersions, rewards: RubricRewards) -> None:
        self.versions = versions
        self.rewards: RubricRewards = rewards

    @property
    def candidates(self) -> Sequence[Candidate]:
        return self.versions.candidates

    def candidate_id(self, problem: Problem, step: int) -> CandidateId | None:
        return self.versions.at(self.versions.task.rubric_key(problem), step).candidate.id

    def changed_after(self, step: int) -> int:
        return max(self.versions.at(key, step).candidate.generation for key in self.versions.latest)

    def max_calls(self, episodes: int, step: int) -> int:
        return self.rewards.most_calls(episodes, step)

    async def evolve(self, batch: Batch, figures: Mapping[str, float]) -> dict[str, float]:
        scores = [normalised_score(episode) for episode in filter(is_scored_by_rubric, batch.episodes)]
        return {"reward_spread": spread(scores)} if scores else {}

    def save(self, ctx: RunContext) -> None:
        saved = {
            key: {"id": candidate.id, "maximum": rubric.maximum, "text": rubric.text}
            for key, (candidate, rubric) in self.versions.latest.items()
        }
        ctx.save_artifact("rubrics.json", saved)


def spread(scores: Sequence[float]) -> float:
    """Return the standard deviation of normalised scores; 0 of none."""
    return float(np.std(scores)) if scores else 0.0


def normalised_score(episode: Episode) -> float:
    """Return the share of the rubric's points that an episode was given."""
    return episode.reward.parts["normalised"]


def is_scored_by_rubric(episode: Episode) -> bool:
    """Return whether an episode was answered, and scored by a reward model rather than by the task's grade."""
    parts = episode.reward.parts
    return episode.replies[-1].error is None and "normalised" in parts and not parts.get("exact_match")
