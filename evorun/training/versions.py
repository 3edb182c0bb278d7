"""Keeps the trained weights after the newest update and those before it.

During an update, a run still asks for completions without it and without earlier ones (`Role.lag`). A resumed run does
so again. The trained weights are an adapter's, or all weights of the model.

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
from evorun.training.checkpoints import find_former, former_file
from evorun.training.sharding import gather_trained, is_sharded, own_part, put

Weights = dict[str, torch.Tensor]


@dataclass
class Versions:
    """The trained model holds the weights of version `newest`; main memory holds those of former versions."""

    newest: int
    """Number of updates."""
    former: dict[int, Weights] = field(default_factory=dict)
    """The trained weights of former versions, by version."""
    count: int = 1
    """Maximum number of former versions to keep; 0 where no completion lacks the newest update."""

    @classmethod
    def resumed(cls, updates: int, checkpoint: str | None, count: int = 1) -> "Versions":
        """Return the versions in a checkpoint; None: only the untrained weights."""
        files = find_former(Path(checkpoint)) if checkpoint else {}
        former = {version: load_file(file) for version, file in files.items() if version >= updates - count}
        return cls(updates, former, count)

    def advance(self, model: Any, newest: int) -> None:
        """Keep the trained weights before update `newest` changes them; of sharded ones, this process's part."""
        self.newest = newest
        kept = model if self.count else None
        if weights := {name: own_part(parameter).to("cpu", copy=True) for name, parameter in _trained(kept)}:
            self.former[newest - 1] = weights
        self.former = {version: kept for version, kept in self.former.items() if version >= newest - self.count}

    def save(self, model: Any, folder: Path | None) -> None:
        """Write the former weights into a checkpoint. folder: None in all processes except the first."""
        for version, own in self.former.items():
            weights = own
            if is_sharded(model):
                with self.use(model, version):
                    gathered = gather_trained(model)
                weights = {name: gathered[name] for name in own if name in gathered}
            if folder is not None:
                save_file(weights, former_file(folder, version))

    @contextlib.contextmanager
    def use(self, model: Any, version: int | None) -> Iterator[Any]:
        """Yield the model with the weights of a version; None: leave them as they are.

        Raises TrainingError if they are not kept.
        """
        if version in (None, self.newest):
            yield model
            return
        if version not in self.former:
            kept = ", ".join(map(str, [*sorted(self.former), self.newest]))
            raise TrainingError(f"expected a request for the weights of update {kept}, got one for update {version}")
        _exchange(model, self.former[version])
        try:
            yield model
        finally:
            _exchange(model, self.former[version])


def _trained(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield the trained parameters of a model; nothing for None."""
    if model is not None:
        yield from ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)


def _exchange(model: Any, weights: Weights) -> None:
    """Exchange a model's trained weights with those in main memory, one tensor at a time: a GPU holds no two models."""
    with torch.no_grad():
        for name, parameter in _trained(model):
            kept, weights[name] = weights[name], own_part(parameter).to("cpu", copy=True)
            put(parameter, kept)
