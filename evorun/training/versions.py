"""Keeps the trained adapter after the newest update and after the one before it.

During an update, a run still asks for completions without it (`Role.lag`). A resumed run does so again.

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
    """The adapter's weights of version `newest - 1`; empty if they are not kept."""

    @classmethod
    def resumed(cls, updates: int, checkpoint: str | None) -> "Versions":
        """Return the versions in a checkpoint; None: only the untrained adapter."""
        file = Path(checkpoint or "") / FORMER
        return cls(updates, load_file(file) if checkpoint and file.is_file() else {})

    def advance(self, model: Any, newest: int) -> None:
        """Keep the model's adapter before update `newest` changes it. model: None for sharded weights keeps nothing."""
        self.newest = newest
        self.former = {name: parameter.detach().to("cpu", copy=True) for name, parameter in _adapter(model)}

    def save(self, folder: Path) -> None:
        """Write the former adapter into a checkpoint."""
        if self.former:
            save_file(self.former, folder / FORMER)

    def weights_kind(self, version: int | None) -> WeightsKind:
        """Return the kind of a version's weights; None: the base model's."""
        return "reference" if version is None else "newest" if version == self.newest else "former"

    @contextlib.contextmanager
    def use(self, model: Any, version: int | None) -> Iterator[None]:
        """Give the model the weights of a version while the block runs; None: leave them as they are.

        Raises TrainingError if they are not kept.
        """
        if version in (None, self.newest):
            yield
            return
        if version != self.newest - 1 or not self.former:
            raise TrainingError(
                f"expected a request for the weights of update {self.newest}, got one for update {version}"
            )
        newest = {name: parameter.detach().clone() for name, parameter in _adapter(model)}
        _put(model, self.former)
        try:
            yield
        finally:
            _put(model, newest)


def _adapter(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the trained parameters of a model with an adapter; nothing if all weights are trained."""
    if hasattr(model, "peft_config"):
        yield from ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)


def _put(model: Any, weights: Weights) -> None:
    with torch.no_grad():
        for name, parameter in _adapter(model):
            parameter.copy_(weights[name])
