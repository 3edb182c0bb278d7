"""The parts that a method of learning is made of: where prompts come from, what rewards, and how weights change.

The loop (`evorun.methods.learning.loop`) knows of a prompt its id and text, and of a reward its value. What evolves
prompts (`evorun.methods.espl`) and what evolves rewards (`evorun.methods.mpo`) implement these protocols.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from evorun.methods.context import RunContext
from evorun.models.base import Sampling
from evorun.rollouts.episodes import Episode
from evorun.rollouts.rewards import Rewards
from evorun.runs.candidates import Candidate, CandidateId
from evorun.tasks.base import Problem
from evorun.training.wire import Objective, Row


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


class PromptSource(Protocol):
    """The system prompts of a run: one that never changes, or a population."""

    @property
    def evaluated(self) -> DrawnPrompt:
        """The system prompt that the run's problems are answered under."""
        ...

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All system prompts so far, as records take them."""
        ...

    def max_calls(self, problems: int, group: int) -> int:
        """Return an upper bound on the calls of `evolve`."""
        ...

    def draw(self, step: int) -> Sequence[DrawnPrompt]:
        """Draw the system prompts of a step's batch."""
        ...

    def rate(self, batch: Batch) -> None:
        """Update the ratings by the ranking of a batch."""
        ...

    def follow_update(self) -> None:
        """Update the ratings after an update of the weights."""
        ...

    async def evolve(self, batch: Batch) -> dict[str, float]:
        """Add children of the batch's system prompts; return figures of the step."""
        ...

    def save(self, ctx: RunContext) -> None:
        """Save the best system prompt in artifacts/, where the run has evolved it."""
        ...


class RewardSource(Protocol):
    """What rewards a run's episodes: the task's grade, or a rubric that may change between steps."""

    @property
    def rewards(self) -> Rewards:
        """The reward of each episode."""
        ...

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All rubrics so far, as records take them."""
        ...

    def candidate_id(self, problem: Problem, step: int) -> CandidateId | None:
        """Return the id of the rubric that rewards an episode of a step; None where the task's grade does."""
        ...

    def changed_after(self, step: int) -> int:
        """Return the latest step whose end changed the reward of a step's episodes; 0: none did."""
        ...

    def max_calls(self, episodes: int, step: int) -> int:
        """Return an upper bound on the calls that the rewards of so many episodes of a step take."""
        ...

    def max_calls_after(self, step: int) -> int:
        """Return an upper bound on the calls of `evolve` after a step."""
        ...

    async def prepare(self, sampling: Sampling, system_prompt: str) -> None:
        """Prepare for the first step; sampling, system_prompt: of the rollouts."""
        ...

    async def evolve(self, batch: Batch, figures: Mapping[str, float]) -> dict[str, float]:
        """Change what rewards later steps, given a batch and its figures; return more figures of the step."""
        ...

    def save(self, ctx: RunContext) -> None:
        """Save the last rubrics in artifacts/, where the run has evolved them."""
        ...


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
