"""Prompts and rewards that stay as they are: one system prompt, the task's grade, a given rubric."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from evorun.methods.context import RunContext
from evorun.methods.learning.parts import Batch, DrawnPrompt
from evorun.methods.learning.settings import LearningSettings
from evorun.models.base import Sampling
from evorun.rollouts.episodes import Episode
from evorun.rollouts.rewards import Graded
from evorun.rollouts.rubric_rewards import RubricRewards
from evorun.runs.candidates import Candidate, CandidateId
from evorun.tasks.base import Problem
from evorun.tasks.capabilities import ScoresByRubric
from evorun.tasks.rubrics import Rubric


class FixedPrompt:
    """One system prompt that never changes, drawn equally often for each batch; no record mentions it."""

    candidates: Sequence[Candidate] = ()

    def __init__(self, text: str, draws: int = 1) -> None:
        """text: empty for the task's own prompt for an answer."""
        self._draws = draws
        self.evaluated = DrawnPrompt("", text)

    def max_calls(self, problems: int, group: int) -> int:
        return 0

    def draw(self, step: int) -> Sequence[DrawnPrompt]:
        return [self.evaluated] * self._draws

    def rate(self, batch: Batch) -> None:
        """Do nothing: there is no ranking of one."""

    def follow_update(self) -> None:
        """Do nothing: there is no rating."""

    async def evolve(self, batch: Batch) -> dict[str, float]:
        return {}

    def save(self, ctx: RunContext) -> None:
        """Do nothing: the prompt is the user's or the task's."""


class TaskReward:
    """The task's grade; no record mentions what rewards."""

    candidates: Sequence[Candidate] = ()

    def __init__(self, ctx: RunContext, config: LearningSettings) -> None:
        split = ctx.training
        penalties = config.format_penalty, config.overflow_penalty
        self.rewards = Graded(ctx.shared, split.task, split.grade, config.format_reward, *penalties)

    def candidate_id(self, problem: Problem, step: int) -> CandidateId | None:
        return None

    def changed_after(self, step: int) -> int:
        return 0

    def max_calls(self, episodes: int, step: int) -> int:
        return 0

    def max_calls_after(self, step: int) -> int:
        return 0

    async def prepare(self, sampling: Sampling, system_prompt: str) -> None:
        """Do nothing: grades need no preparation."""

    async def evolve(self, batch: Batch, figures: Mapping[str, float]) -> dict[str, float]:
        return {}

    def save(self, ctx: RunContext) -> None:
        """Do nothing: the task has its grade."""


class Version(NamedTuple):
    """A rubric as the records know it and as responses are scored by it."""

    candidate: Candidate
    rubric: Rubric


class FixedRubric:
    """A reward model scores by a given rubric, one for each of the task's rubric keys."""

    def __init__(self, ctx: RunContext, config: LearningSettings) -> None:
        """Raise ConfigError for a rubric that the task does not know."""
        self._task = ctx.training.task
        self._versions = given_versions(self._task, config.rubric or "")
        self.rewards = rubric_rewards(ctx, config, lambda key, step: self._versions[key].rubric)

    @property
    def candidates(self) -> Sequence[Candidate]:
        return [version.candidate for version in self._versions.values()]

    def candidate_id(self, problem: Problem, step: int) -> CandidateId | None:
        return self._versions[self._task.rubric_key(problem)].candidate.id

    def changed_after(self, step: int) -> int:
        return 0

    def max_calls(self, episodes: int, step: int) -> int:
        return self.rewards.most_calls(episodes, step)

    def max_calls_after(self, step: int) -> int:
        return 0

    async def prepare(self, sampling: Sampling, system_prompt: str) -> None:
        """Do nothing: the rubric is given."""

    async def evolve(self, batch: Batch, figures: Mapping[str, float]) -> dict[str, float]:
        return reward_spread(batch.episodes)

    def save(self, ctx: RunContext) -> None:
        save_rubrics(ctx, self._versions)


def rubric_rewards(ctx: RunContext, config: LearningSettings, rubric_of: Callable[[str, int], Rubric]) -> RubricRewards:
    """Return rewards by rubrics. rubric_of: see `RubricRewards`."""
    split = ctx.training
    references = {name: demonstration.reference for name, demonstration in split.demonstrations.items()}
    return RubricRewards(
        ctx.shared,
        split.task,
        rubric_of,
        config,
        split.grade,
        references=references if config.plan_reference else {},
        overflow_penalty=config.overflow_penalty,
    )


def given_versions(task: ScoresByRubric, name: str) -> dict[str, Version]:
    """Return the first rubric of each key. Raises ConfigError for a name that the task does not know."""
    versions = {}
    for key in task.rubric_keys():
        rubric = task.given_rubric(name, key)
        candidate = Candidate(
            id=version_id(key, 0),
            kind="rubric",
            generation=0,
            operator="root",
            text=rubric.text,
            answer=None,
            survivor=True,
        )
        versions[key] = Version(candidate, rubric)
    return versions


def version_id(key: str, number: int) -> str:
    """Return the id of a key's rubric: `KEY#NUMBER`, and `rubric#NUMBER` where there is one for all problems."""
    return f"{key or 'rubric'}#{number}"


def save_rubrics(ctx: RunContext, versions: Mapping[str, Version]) -> None:
    """Save the rubrics of all keys in artifacts/."""
    ctx.save_artifact(
        "rubrics.json",
        {
            key: {"id": candidate.id, "maximum": rubric.maximum, "text": rubric.text}
            for key, (candidate, rubric) in versions.items()
        },
    )


def reward_spread(episodes: Iterable[Episode]) -> dict[str, float]:
    """Return the figure `reward_spread`, the standard deviation of normalised scores; nothing without any score."""
    scores = [normalised_score(episode) for episode in filter(is_scored_by_rubric, episodes)]
    return {"reward_spread": float(np.std(scores))} if scores else {}


def normalised_score(episode: Episode) -> float:
    """Return the share of the rubric's points that an episode was given."""
    return episode.reward.parts["normalised"]


def is_scored_by_rubric(episode: Episode) -> bool:
    """Return whether an episode was answered, and scored by a reward model rather than by the task's grade."""
    parts = episode.reward.parts
    return episode.replies[-1].error is None and "normalised" in parts and not parts.get("exact_match")
