"""The rewards of a run's episodes: by a rubric, which may change meanwhile, or by the task's grade, which does not."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from evorun.methods.context import RunContext
from evorun.methods.mpo.refinement_settings import RefinementSettings
from evorun.methods.mpo.rubrics import Rubrics
from evorun.models.base import Sampling
from evorun.rollouts.episodes import Episode
from evorun.rollouts.rewards import Rewards
from evorun.rollouts.rubric_rewards import RubricRewards
from evorun.rollouts.rubric_settings import RubricSettings
from evorun.runs.candidates import Candidate, CandidateId
from evorun.tasks.base import Problem


class Rewarding(Protocol):
    """The reward side of a run, as `evorun.methods.espl.evolution.Prompts` is its prompts' side."""

    @property
    def rewards(self) -> Rewards:
        """The source of each episode's reward."""
        ...

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All that it has ever rewarded by, as records take them."""
        ...

    def candidate(self, problem: Problem, step: int) -> CandidateId | None:
        """Return what an episode of a step is rewarded by; None where it is the task's grade."""
        ...

    def changed_after(self, step: int) -> int:
        """Return the step after which what rewards a step was last changed; 0: it never was."""
        ...

    def most_calls(self, episodes: int, step: int) -> int:
        """Return how many calls the rewards of so many episodes of a step take at most."""
        ...

    def most_calls_after(self, step: int) -> int:
        """Return how many calls `evolve` makes after a step at most."""
        ...

    async def prepare(self, sampling: Sampling, system_prompt: str) -> None:
        """Prepare for the first step; sampling, system_prompt: of the rollouts."""
        ...

    async def evolve(self, step: int, episodes: Sequence[Episode], figures: Mapping[str, float]) -> dict[str, float]:
        """Change what rewards later steps, in view of a batch and its figures; return more figures of the step."""
        ...

    def save(self, ctx: RunContext) -> None:
        """Save in artifacts/ what rewarded last, where it is the run's own."""
        ...


class GradesOnly:
    """The task's grade rewards, which never changes, and which no record speaks of."""

    candidates: Sequence[Candidate] = ()

    def __init__(self, rewards: Rewards) -> None:
        self.rewards = rewards

    def candidate(self, problem: Problem, step: int) -> CandidateId | None:
        return None

    def changed_after(self, step: int) -> int:
        return 0

    def most_calls(self, episodes: int, step: int) -> int:
        return 0

    def most_calls_after(self, step: int) -> int:
        return 0

    async def prepare(self, sampling: Sampling, system_prompt: str) -> None:
        """Do nothing: grades need no preparation."""

    async def evolve(self, step: int, episodes: Sequence[Episode], figures: Mapping[str, float]) -> dict[str, float]:
        return {}

    def save(self, ctx: RunContext) -> None:
        """Do nothing: the task has its grade."""


class ByRubric:
    """A reward model scores by rubrics, which a meta reward model rewrites where there are settings for that."""

    def __init__(
        self, ctx: RunContext, settings: RubricSettings, overflow_penalty: float, last_step: int | None
    ) -> None:
        """overflow_penalty: see `Graded`. last_step: see `Rubrics`.

        Raises ConfigError for a rubric that the task does not know.
        """
        task, known = ctx.training.task, ctx.training.demonstrations
        self._task = task
        self.rewards = RubricRewards(
            ctx.shared,
            task,
            lambda key, step: self._rubrics.at(key, step),
            settings,
            ctx.training.grade,
            references={name: one.reference for name, one in known.items()} if settings.plan_reference else {},
            overflow_penalty=overflow_penalty,
        )
        assert settings.rubric is not None  # noqa: S101 - else the task's grade rewards
        refinement = settings if isinstance(settings, RefinementSettings) else None
        self._rubrics = Rubrics(ctx, settings.rubric, refinement, self.rewards, last_step)

    @property
    def candidates(self) -> Sequence[Candidate]:
        return self._rubrics.candidates

    def candidate(self, problem: Problem, step: int) -> CandidateId | None:
        return self._rubrics.version_at(self._task.rubric_key(problem), step).candidate.id

    def changed_after(self, step: int) -> int:
        return max(self._rubrics.version_at(key, step).candidate.generation for key in self._task.rubric_keys())

    def most_calls(self, episodes: int, step: int) -> int:
        return self.rewards.most_calls(episodes, step)

    def most_calls_after(self, step: int) -> int:
        return self._rubrics.most_calls(step)

    async def prepare(self, sampling: Sampling, system_prompt: str) -> None:
        await self._rubrics.prepare(self.rewards, sampling, system_prompt)

    async def evolve(self, step: int, episodes: Sequence[Episode], figures: Mapping[str, float]) -> dict[str, float]:
        return await self._rubrics.evolve(step, episodes, figures)

    def save(self, ctx: RunContext) -> None:
        """Save the last rubric of each key."""
        last = {key: (one.candidate.id, one.rubric) for key, one in self._rubrics.latest.items()}
        ctx.save_artifact(
            "rubrics.json",
            {key: {"id": name, "maximum": rubric.maximum, "text": rubric.text} for key, (name, rubric) in last.items()},
        )
