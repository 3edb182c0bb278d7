"""The interface between a method and the policy that it trains, with weights or simulated."""

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from evorun.errors import TrainingError
from evorun.models.base import LanguageModel, Trained
from evorun.runs.stopwatch import Stopwatch
from evorun.training.wire import Figures, Row

GetScores = Callable[[], Awaitable[Sequence[float] | None]]
"""Returns the task's scores of an update's rows, in their order; None where nobody knows them."""


class TrainedPolicy(Protocol):
    """A policy under training: its completions and its updates. Belongs to one event loop."""

    current: Trained
    """Completions from the weights of a step."""
    max_lag: int
    """Number of steps by which rollouts run ahead of the updates (`training.max_lag`)."""
    reference: LanguageModel
    """Completions of the reference policy, the untrained model."""

    @property
    def stopwatch(self) -> Stopwatch | None:
        """Measures the steps; None where nothing real is trained."""
        ...

    async def update(
        self,
        step: int,
        rows: Sequence[Row],
        *,
        rewards_changed: bool = False,
        get_scores: GetScores | None = None,
    ) -> Figures:
        """Learn from a batch of completions; return the trainer's figures, and the advantages that it estimates.

        rewards_changed: the source of rewards differs from that of the previous update, see `Train`. get_scores: a
        simulated policy asks, to know what the rewards teach.

        Requests for the step's weights (`Role.lag` 0) must come after this call, and wait for the update. Requests for
        those of the step before (lag 1), or of up to `max_lag` steps before, may come until the next update.
        """
        ...

    async def restart(self, step: int) -> None:
        """Go back to the untrained weights and a new optimiser; later updates begin from there.

        It takes the place of the step's update. All requests for earlier weights must have been answered.
        """
        ...

    async def export(self, step: int | None = None) -> Path:
        """Write the trained weights into artifacts/ and return their path. step: names a separate folder for them."""
        ...

    async def close(self) -> None:
        """Release processes and memory; idempotent."""
        ...


class FineTunedPolicy(TrainedPolicy, Protocol):
    """A policy that learns from conversations instead of completions."""

    async def evaluate(self) -> dict[str, float]:
        """Return the numbers of conversations and the loss on those held out, if there are any and it has a loss."""
        ...

    async def train_step(self, step: int) -> dict[str, float]:
        """Make a step on the next conversations; return its figures."""
        ...


class UpdatesByStep:
    """The issued updates by step: a call gets the weights of its step, whenever it comes."""

    def __init__(self) -> None:
        self._steps: list[int] = []
        """The step of each update, including updates that wait for others."""
        self._last_asked = -1
        """The latest step whose weights a call has asked for."""

    def issue(self, step: int) -> int:
        """Return the number of a step's update. Raises TrainingError if a call has already asked for its weights."""
        # Such a call is recorded with the weights before the update; a resumed run might ask those after it.
        if step <= self._last_asked:
            raise TrainingError(
                f"the method asked for the weights of step {self._last_asked} before the update of step {step}; use "
                "Role(lag=1) for calls before or during an update"
            )
        self._steps.append(step)
        return len(self._steps)

    def version(self, step: int) -> int:
        """Return the number of updates up to and including a step."""
        self._last_asked = max(self._last_asked, step)
        return bisect_right(self._steps, step)
