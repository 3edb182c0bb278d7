"""Keeps the trained weights after the newest update and those before it.

During an update, a run still asks for completions without it (`Role.lag`). A resumed run does so again. The trained
weights are an adapter's, or all weights of the model.

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
from evorun.training.rollouts import WeightsKind

Weights = dict[str, torch.Tensor]


@dataclass
class Versions:
    """The trained model holds the weights of version `newest`; main memory holds those of the version before."""

    newest: int
    """Number of updates."""
    former: Weights = field(default_factory=dict)
    """The trained weights of version `newest - 1`; empty if they are not kept."""

    keeps_former: bool = True
    """False where no completion lacks the newest update."""

    @classmethod
    def resumed(cls, updates: int, checkpoint: str | None, *, keeps_former: bool = True) -> "Versions":
        """Return the versions in a checkpoint; None: only the untrained weights."""
        file = Path(checkpoint or "") / FORMER
        return cls(updates, load_file(file) if checkpoint and file.is_file() else {}, keeps_former)

    def advance(self, model: Any, newest: int) -> None:
        """Keep the trained weights before update `newest` changes them. model: None for sharded ones keeps nothing."""
        self.newest = newest
        kept = model if self.keeps_former else None
        self.former = {name: parameter.detach().to("cpu", copy=True) for name, parameter in _trained(kept)}

    def save(self, folder: Path) -> None:
        """Write the former weights into a checkpoint."""
        if self.former:
            save_file(self.former, folder / FORMER)

    def weights_kind(self, version: int | None) -> WeightsKind:
        """Return the kind of a version's weights; None: the base model's."""
        return "reference" if version is None else "newest" if version == self.newest else "former"

    @contextlib.contextmanager
    def use(self, model: Any, version: int | None) -> Iterator[Any]:
        """Yield the model with the weights of a version; None: leave them as they are.

        Raises TrainingError if they are not kept.
        """
        if version in (None, self.newest):
            yield model
            return
        if version != self.newest - 1 or not self.former:
            raise TrainingError(
                f"expected a request for the weights of update {self.newest}, got one for update {version}"
            )
        _exchange(model, self.former)
        try:
            yield model
        finally:
            _exchange(model, self.former)


def _trained(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the trained parameters of a model; nothing for None."""
    if model is not None:
        yield from ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)


def _exchange(model: Any, weights: Weights) -> None:
    """Exchange a model's trained weights with those in main memory, one tensor at a time: a GPU holds no two models."""
    with torch.no_grad():
        for name, parameter in _trained(model):
            kept, weights[name] = weights[name], parameter.detach().to("cpu", copy=True)
            parameter.copy_(kept)
