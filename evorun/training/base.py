"""The policy that a run trains, as a method sees it: with weights, or simulated."""

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from evorun.errors import TrainingError
from evorun.models.base import LanguageModel, Trained
from evorun.training.wire import Figures, Row


class TrainedPolicy(Protocol):
    """Completions from what is trained, and updates of it. Belongs to one event loop."""

    current: Trained
    """Completions from the weights of a step."""
    max_lag: int
    """Updates that the rollouts of a step may lack, beside its own (`training.max_lag`)."""
    reference: LanguageModel
    """Completions without what was learned."""

    async def update(self, step: int, rows: Sequence[Row], *, rewards_changed: bool = False) -> Figures:
        """Learn from a batch of completions; return the trainer's figures, and the advantages that it estimates.

        rewards_changed: what rewards is another than in the update before, see `Train`.
        Requests for the step's weights (`Role.lag` 0) come after this call and wait for the update; those for the
        weights before it (lag 1) may come at any time until the next update.
        """
        ...

    async def export(self, step: int | None = None) -> Path:
        """Write what was learned into artifacts/; return where. step: into a place of its own, named by it."""
        ...

    async def close(self) -> None:
        """Release processes and memory; idempotent."""
        ...


class UpdatesByStep:
    """The updates that have been issued, by step: a call's weights are those of its step, never of the moment."""

    def __init__(self) -> None:
        self._steps: list[int] = []
        """The step of each update, also of one that waits for others."""
        self._last_asked = -1
        """The latest step whose weights have been asked for."""

    def issue(self, step: int) -> int:
        """Return the number of the update of a step. Raises TrainingError where its weights were asked for before."""
        # Else those calls are recorded as of the weights before the update, and a resume may ask them of those after.
        if step <= self._last_asked:
            raise TrainingError(
                f"the method asked for the weights of step {self._last_asked} before the update of step {step}; a role "
                "that is asked before or beside an update needs Role(lag=1)"
            )
        self._steps.append(step)
        return len(self._steps)

    def version(self, step: int) -> int:
        """Return the number of updates up to a step, its own included."""
        self._last_asked = max(self._last_asked, step)
        return bisect_right(self._steps, step)
