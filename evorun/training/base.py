"""The policy that a run trains, as a method sees it: with weights, or simulated."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from evorun.models.base import LanguageModel, Trained
from evorun.training.wire import Row


class TrainedPolicy(Protocol):
    """Completions from what is trained, and updates of it. Belongs to one event loop."""

    current: Trained
    """Completions from the weights of a step."""
    reference: LanguageModel
    """Completions without what was learned."""

    async def update(self, step: int, rows: Sequence[Row]) -> dict[str, float]:
        """Learn from a batch of completions; return the trainer's figures.

        Requests for the step's weights (`Role.lag` 0) wait for the update.
        """
        ...

    async def export(self) -> Path:
        """Write what was learned into artifacts/; return where."""
        ...

    async def close(self) -> None:
        """Release processes and memory; idempotent."""
        ...
