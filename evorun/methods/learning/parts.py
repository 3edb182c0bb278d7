"""The parts of a learning method: a source of prompts, a source of rewards, and an update of the weights.

The loop (`evorun.methods.learning.loop`) uses only the id and text of a prompt and the value of a reward. The sources
here are fixed; those that evolve are in `evorun.methods.espl` (prompts) and `evorun.methods.mpo` (rewards).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from msgspec.structs import replace

from evorun.errors import ConfigError
from evorun.fields import NonNegativeFloat, PositiveFloat, PositiveInt
from evorun.methods.base import SamplingSettings
from evorun.methods.context import RunContext
from evorun.methods.learning.evaluation import RepeatedEvaluationSettings
from evorun.models.base import Sampling
from evorun.rollouts.episodes import Episode
from evorun.rollouts.rewards import Graded, Rewards
from evorun.rollouts.rubric_rewards import RubricRewards, is_scored_by_rubric, normalised_score
from evorun.rollouts.rubric_settings import RubricSettings
from evorun.runs.candidates import Candidate, CandidateId
from evorun.tasks.base import Problem
from evorun.tasks.rubrics import Rubric
from evorun.training.wire import Objective, Row


@dataclass(kw_only=True)
class LearningSettings(RepeatedEvaluationSettings, SamplingSettings, RubricSettings):
    """Hyperparameters of the loop; the YAML files of its methods give each default and its source."""

    own_rewards: ClassVar[str] = ""
    """Where a method's rewards come from, if it always makes its own: nothing else gives or changes them."""

    name: str
    steps: PositiveInt | None
    """Steps, with one batch each; null: as many as `data_epochs` take."""
    data_epochs: PositiveInt
    """Passes through the training split, where `steps` is null; the last batch may be smaller."""
    problems_per_step: PositiveInt
    """Problems in a batch (B)."""
    temperature: PositiveFloat
    """Of rollouts: at 0 all completions of a prompt would be equal."""
    group: PositiveInt
    """Completions of each problem under each system prompt (N)."""
    system_prompt: str | None
    """The initial system prompt; null: the task's own, or for RL alone its own prompt for an answer."""
    format_reward: NonNegativeFloat
    """Added to the reward of a response in the task's format.

    The reward is 1 for a correct response, else 0. On a task without right and wrong it is the primary score, scaled to
    [0, 1] with 1 as the best if its range is known. Otherwise it is unscaled, and negated if lower is better.
    """
    format_penalty: NonNegativeFloat
    """Subtracted from the reward of a response that is not in the task's format."""
    overflow_penalty: NonNegativeFloat
    """If above 0: the negated value is the reward of any episode that ran out of tokens or context."""
    reward_source: str | None
    """The plug-in that gives the rewards; null: the task's grade, or the rubric."""
    reward_settings: dict[str, Any]
    """The plug-in's own keys."""

    eval_beside_rollouts: bool
    """Evaluate while the next step's rollouts are played, which keeps the engine's batches full; the cost recorded with
    an evaluation then includes these rollouts. With `training.max_lag` they are under way in any case."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("reward_source", "format_reward", "format_penalty") if self.own_rewards else ():
            if value := getattr(self, key):
                raise ConfigError(
                    f"method.{key}={value}: has no effect with method={self.name}, whose rewards come from "
                    f"{self.own_rewards}; choose a method without rewards of its own, such as grpo, or leave it "
                    f"{'null' if key == 'reward_source' else 0}"
                )
        for key in ("format_reward", "format_penalty"):
            if self.rubric is not None and getattr(self, key):
                raise ConfigError(f"method.{key}: has no effect with method.rubric={self.rubric}; leave it 0")
        if self.reward_source is not None and self.rubric is not None:
            raise ConfigError(
                f"method.reward_source={self.reward_source}: has no effect with method.rubric={self.rubric}; set only "
                "one of the two"
            )
        if self.reward_settings and self.reward_source is None:
            raise ConfigError(
                f"method.reward_settings: expected a plug-in's reward (method.reward_source=NAME) with "
                f"{', '.join(self.reward_settings)}, got none"
            )

    @property
    def first_change(self) -> int:
        """The first step after which all that evolves may have changed, for the rollouts that come later."""
        return 1

    @property
    def sees_answers(self) -> bool:
        """True when the rewards depend on right answers."""
        return self.rubric is None or self.exact_match_rate > 0 or self.plan_reference


class DrawnPrompt(NamedTuple):
    """A system prompt as the loop sees it."""

    id: str
    """Empty for a prompt that no record mentions."""
    text: str


class Batch(NamedTuple):
    """The episodes of a step under the system prompts drawn for it."""

    step: int
    prompts: Sequence[DrawnPrompt]
    """The M prompts in the order drawn; a prompt may be drawn more than once."""
    episodes: Sequence[Episode]
    """Ordered by problem (B), then by system prompt (M), with N episodes each."""
    group: int
    """N, the episodes per problem and system prompt."""


class PromptSource(ABC):
    """The source of a run's system prompts. A source of fixed prompts implements only the abstract members."""

    @property
    @abstractmethod
    def evaluated(self) -> DrawnPrompt:
        """The system prompt under which the run's problems are answered."""

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All system prompts so far, for the records."""
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
        """Add children of the batch's system prompts; return figures for the step."""
        return {}

    def save(self, ctx: RunContext) -> None:  # noqa: B027
        """Save the best system prompt in artifacts/, if the run evolved it."""


class RewardSource(ABC):
    """The source of a run's rewards. A source of fixed rewards that no record mentions needs no methods."""

    rewards: Rewards
    """The reward of each episode."""

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All rubrics so far, for the records."""
        return ()

    def candidate_id(self, problem: Problem, step: int) -> CandidateId | None:
        """Return the id of the rubric that rewards a step's episode; None where the task's grade is the reward."""
        return None

    def changed_after(self, step: int) -> int:
        """Return the step after which the rewards in use at `step` were made; 0: they are the initial ones."""
        return 0

    def max_calls(self, episodes: int, step: int) -> int:
        """Return an upper bound on the calls for the rewards of `episodes` episodes of a step."""
        return 0

    def max_calls_after(self, step: int) -> int:
        """Return an upper bound on the calls of `evolve` after a step."""
        return 0

    async def complete(self, step: int, episodes: Sequence[Episode]) -> Sequence[Episode]:
        """Return a step's episodes with rewards that depend on one another; by default they have theirs already."""
        return episodes

    async def prepare(self, sampling: Sampling, system_prompt: str) -> None:  # noqa: B027
        """Prepare for the first step; sampling and system_prompt are those of the rollouts."""

    async def evolve(self, batch: Batch, figures: Mapping[str, float]) -> dict[str, float]:
        """Evolve the rewards of later steps, given a batch and its figures; return further figures."""
        return {}

    def save(self, ctx: RunContext) -> None:  # noqa: B027
        """Save the last rubrics in artifacts/."""


class UpdateRule(Protocol):
    """An update of the weights by a batch of episodes."""

    @property
    def baseline_group(self) -> int:
        """Number of consecutive episodes that share a baseline; 1: none do."""
        ...

    def make_objective(self, steps: int) -> Objective:
        """Return the trainer's objective. steps: maximum number of batches."""
        ...

    def rewards(self, episodes: Sequence[Episode]) -> list[float | None]:
        """Return the reward of each episode as used for learning; None without one."""
        ...

    def advantages(self, episodes: Sequence[Episode]) -> list[float | None]:
        """Return the advantage of each episode; None without a reward, or if the trainer estimates it."""
        ...

    def has_gradient(self, rows: Sequence[Row]) -> bool:
        """Return whether an update by these rows has a gradient."""
        ...


class FixedPrompt(PromptSource):
    """A single fixed system prompt, drawn `draws` times per batch; no record mentions it."""

    def __init__(self, text: str, draws: int = 1) -> None:
        """text: empty means the task's own prompt for an answer."""
        self._text = text
        self._draws = draws

    @property
    def evaluated(self) -> DrawnPrompt:
        return DrawnPrompt("", self._text)

    def draw(self, step: int) -> Sequence[DrawnPrompt]:
        return [self.evaluated] * self._draws


class TaskReward(RewardSource):
    """Rewards from the task's grade."""

    def __init__(self, ctx: RunContext, config: LearningSettings, make: Callable[..., Graded] = Graded) -> None:
        """make: called with the arguments of `Graded`, for rewards that change the grade."""
        split = ctx.training
        penalties = config.format_penalty, config.overflow_penalty
        self.rewards = make(ctx.shared, split.task, split.grade, config.format_reward, *penalties)


class Version(NamedTuple):
    """A rubric: its candidate for the records, and the rubric that scores responses."""

    candidate: Candidate
    rubric: Rubric


class RubricVersions:
    """The rubrics of a run and all their versions, by the task's rubric keys."""

    def __init__(self, ctx: RunContext, name: str) -> None:
        """name: the initial rubric. Raises ConfigError if the task does not know it."""
        self.task = ctx.training.task
        self._max_lag = ctx.max_lag
        self._by_key: dict[str, list[Version]] = {key: [] for key in self.task.rubric_keys()}
        for key in self._by_key:
            self.add(key, self.task.starting_rubric(name, key), generation=0, operator="root")

    def add(self, key: str, rubric: Rubric, **origin: Any) -> None:
        """Add a new version of a key's rubric. origin: fields of the candidate."""
        versions = self._by_key[key]
        parents = tuple(version.candidate.id for version in versions[-1:])
        name = f"{key or 'rubric'}#{len(versions)}"
        candidate = Candidate(id=name, kind="rubric", parents=parents, text=rubric.text, answer=None, **origin)
        versions.append(Version(candidate, rubric))

    def at(self, key: str, step: int) -> Version:
        """Return the version that scores a step's responses: the latest one when they were played.

        It depends on the step, never on the moment: with `training.max_lag`, a step is played while previous ones
        refine.
        """
        last_finished_step = max(0, step - 1 - self._max_lag)
        return next(
            version for version in reversed(self._by_key[key]) if version.candidate.generation <= last_finished_step
        )

    @property
    def latest(self) -> dict[str, Version]:
        """The last version of each key."""
        return {key: versions[-1] for key, versions in self._by_key.items()}

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All versions in the order of their appearance, a step's by key; the last of each key is a survivor."""
        last = {version.candidate.id for version in self.latest.values()}
        versions = [version.candidate for key_versions in self._by_key.values() for version in key_versions]
        versions.sort(key=lambda candidate: candidate.generation)
        return [replace(candidate, survivor=candidate.id in last) for candidate in versions]


class RubricReward(RewardSource):
    """Rewards from a reward model that scores by a fixed rubric."""

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
        return self.rewards.max_calls(episodes, step)

    async def evolve(self, batch: Batch, figures: Mapping[str, float]) -> dict[str, float]:
        scores = [normalised_score(episode) for episode in filter(is_scored_by_rubric, batch.episodes)]
        return {"reward_spread": spread(scores)} if scores else {}

    def save(self, ctx: RunContext) -> None:
        saved = {
            key: {"id": candidate.id, "maximum": rubric.maximum, "text": rubric.text}
            for key, (candidate, rubric) in self.versions.latest.items()
        }
        ctx.save_artifact("rubrics.json", saved)


def make_rubric_reward(ctx: RunContext, config: LearningSettings) -> RubricReward:
    """Return rewards by the settings' rubric. Raises ConfigError if the task does not know it."""
    split, versions = ctx.training, RubricVersions(ctx, config.rubric or "")
    references = {name: demonstration.reference for name, demonstration in split.demonstrations.items()}
    rewards = RubricRewards(
        ctx.shared,
        split.task,
        lambda key, step: versions.at(key, step).rubric,
        config,
        split.grade,
        references=references if config.plan_reference else {},
        overflow_penalty=config.overflow_penalty,
    )
    return RubricReward(versions, rewards)


def spread(scores: Sequence[float]) -> float:
    """Return the standard deviation of normalized scores; 0 without any."""
    return float(np.std(scores)) if scores else 0.0
