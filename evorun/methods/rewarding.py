"""What rewards the episodes of a run, and what of it changes meanwhile: with the task's grade, nothing."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from evorun.methods.context import RunContext
from evorun.rollouts.episodes import Episode
from evorun.rollouts.rewards import Rewards
from evorun.runs.candidates import Candidate, CandidateId
from evorun.tasks.base import Problem


class Rewarding(Protocol):
    """The reward side of a run, as `evorun.methods.evolution.Prompts` is its prompts' side."""

    @property
    def rewards(self) -> Rewards:
        """What rewards each episode."""
        ...

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All that it has ever rewarded by, as records take them."""
        ...

    def candidate(self, problem: Problem, step: int) -> CandidateId | None:
        """Return what an episode of a step is rewarded by; None where it is the task's grade."""
        ...

    def most_calls(self, episodes: int) -> int:
        """Return how many calls the rewards of so many episodes take at most."""
        ...

    def most_calls_after(self, step: int) -> int:
        """Return how many calls `evolve` makes after a step at most."""
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

    def most_calls(self, episodes: int) -> int:
        return 0

    def most_calls_after(self, step: int) -> int:
        return 0

    async def evolve(self, step: int, episodes: Sequence[Episode], figures: Mapping[str, float]) -> dict[str, float]:
        return {}

    def save(self, ctx: RunContext) -> None:
        """Do nothing: the task has its grade."""
