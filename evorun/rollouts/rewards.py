"""Rewards of episodes: the task's own grade, with what a response's format adds or takes away."""

from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Protocol

import msgspec

from evorun.rollouts.calls import Calls
from evorun.runs.candidates import Response
from evorun.runs.scores import primary_score
from evorun.tasks.base import Grade, Problem, Task


class Reward(msgspec.Struct, frozen=True):
    """The reward of an episode."""

    value: float | None
    """None where nothing can be learned: the engine refused a request, or the task could not score the response."""
    parts: dict[str, float] = {}
    """Other measures of the response, by name."""
    correct: bool | None = None
    """None on a task without right and wrong."""
    unscored: str = ""
    """Kind of the failure of the model that was to score the response; empty where there was none."""
    rationale: str = ""
    """The words of the model that scored the response."""


class Rewards(Protocol):
    """Rewards responses, as soon as each is there."""

    async def reward(self, step: int, index: int, problem: Problem, response: Response) -> Reward:
        """Return the reward of an episode's response; `index` tells episodes of one step apart."""
        ...

    def charge(self, step: int, index: int) -> None:
        """Charge the calls that an episode's reward took; asked for in the episodes' order, see `Calls.charge`."""
        ...

    @property
    def overflow(self) -> Reward | None:
        """The reward of an episode that ran out of tokens or context; None: as of any other."""
        ...


class Graded:
    """Ground truth rewards: the task's score for that, and what the format adds or takes away."""

    def __init__(
        self,
        calls: Calls,
        task: Task,
        grade: Callable[[Problem, Response], Awaitable[Grade]],
        format_reward: float,
        format_penalty: float = 0.0,
        overflow_penalty: float = 0.0,
    ) -> None:
        """format_reward: added for a response in the task's format. format_penalty: subtracted for one that is not.

        overflow_penalty: the whole reward, negated, of an episode that ran out of tokens or context; 0: it is rewarded
        like any other.
        """
        self._calls = calls
        primary = primary_score(task.scores)
        self._measure = task.reward_score or primary
        self._has_correct = primary.rate
        self._grade = grade
        self._format_reward = format_reward
        self._format_penalty = format_penalty
        self._overflow_penalty = overflow_penalty

    @property
    def overflow(self) -> Reward | None:
        if not self._overflow_penalty:
            return None
        return Reward(-self._overflow_penalty, {"formatted": 0.0}, False if self._has_correct else None)

    def charge(self, step: int, index: int) -> None:
        """Do nothing: a grade takes no call of the method's."""

    async def reward(self, step: int, index: int, problem: Problem, response: Response) -> Reward:
        async def compute() -> Reward:
            grade = await self._grade(problem, response)
            form, worth = formatted(response, grade), self._measure.value_in(grade)
            change = self._format_reward * form - self._format_penalty * (1 - form)
            value = None if worth is None else self._measure.utility(worth) + change
            return Reward(value, {"formatted": float(bool(form))}, grade.correct)

        # The text's digest, not the text, which the journal has already; surrogates can come from a model's JSON.
        digest = blake2b(response.text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        about = (problem.id, digest, self._format_reward, self._format_penalty)
        # Through the journal: grading may run programs, and a resumed run must learn from the same rewards.
        return await self._calls.remember(step, "reward", about, compute, Reward, index=index)


def formatted(response: Response, grade: Grade) -> float:
    """Return 1 for a response in the task's format, else 0; parsing decides where the task has no such score."""
    return grade.scores.get("format", float(response.error is None))
