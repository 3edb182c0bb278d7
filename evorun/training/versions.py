"""The trained adapter after the newest update and after the one before it.

While an update is made, a run still asks for completions without it (`Role.lag`), and does so again when it is resumed.

Imports torch: only the trainer process imports this module.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from evorun.errors import TrainingError
from evorun.training.checkpoints import FORMER
from evorun.training.rollouts import Whose

Weights = dict[str, torch.Tensor]


@dataclass
class Versions:
    """The model that is trained has the weights of `newest`; those of the version before it wait in main memory."""

    newest: int
    """Number of updates."""
    former: Weights = field(default_factory=dict)
    """The adapter's weights of version `newest - 1`; empty where they are not kept."""

    @classmethod
    def resumed(cls, updates: int, checkpoint: str | None) -> "Versions":
        """Return the versions that a checkpoint holds; None: the untrained adapter's alone."""
        file = Path(checkpoint or "") / FORMER
        return cls(updates, load_file(file) if checkpoint and file.is_file() else {})

    def advance(self, model: Any, newest: int) -> None:
        """Keep the model's present adapter, before an update changes it; nothing of None (of sharded weights)."""
        self.newest = newest
        self.former = {name: one.detach().to("cpu", copy=True) for name, one in _adapter(model)}

    def save(self, folder: Path) -> None:
        """Write the former adapter into a checkpoint."""
        if self.former:
            save_file(self.former, folder / FORMER)

    def whose(self, version: int | None) -> Whose:
        """Return which weights those of a version are; None: the base model's."""
        return "reference" if version is None else "newest" if version == self.newest else "former"

    @contextlib.contextmanager
    def under(self, model: Any, version: int | None) -> Iterator[None]:
        """Give the model the weights of a version while the block runs; None: any.

        Raises TrainingError when they are not kept.
        """
        if version in (None, self.newest):
            yield
            return
        if version != self.newest - 1 or not self.former:
            raise TrainingError(f"expected to be asked for the weights of update {self.newest}, got update {version}")
        newest = {name: one.detach().clone() for name, one in _adapter(model)}
        _put(model, self.former)
        try:
            yield
        finally:
            _put(model, newest)


def _adapter(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the trained parameters of a model with an adapter; nothing where all weights are trained."""
    if hasattr(model, "peft_config"):
        yield from ((name, one) for name, one in model.named_parameters() if one.requires_grad)


def _put(model: Any, weights: Weights) -> None:
    with torch.no_grad():
        for name, parameter in _adapter(model):
            parameter.copy_(weights[name])
