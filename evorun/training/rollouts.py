"""Decodes completions from the weights under training, with the batch decoder of the transformers engine.

Imports torch: only the trainer process imports this module.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from evorun.errors import EngineError
from evorun.models.base import Reply, Request
from evorun.models.config import ModelConfig
from evorun.models.transformers.batch_decoder import BatchDecoder, Ticket
from evorun.training.ranks import RANK

WeightsKind = Literal["newest", "former", "reference"]
"""The weights of the newest update, of the one before it, or of the base model."""


@dataclass
class Decoding:
    """Decodes requests with a model whose weights change between steps."""

    tokenizer: Any
    model: ModelConfig
    max_batch_size: int
    """Completions decoded together."""
    prefix_cache_tokens: int
    _decoders: dict[WeightsKind, BatchDecoder] = field(default_factory=dict)
    """Decoders by weights: their cached prompts are valid only for these weights."""

    def weights_changed(self) -> None:
        """Drop cached prompts, which belong to the former weights."""
        # Also the base model's, although its weights stay: the next step needs the memory.
        for decoder in self._decoders.values():
            decoder.forget()

    def decode(self, weights: Any, requests: Sequence[Request], kind: WeightsKind) -> list[Reply]:
        """Answer the requests with the model `weights`; `kind` says which version it is.

        Raises EngineError when decoding fails.
        """
        training = weights.training
        weights.eval()  # no dropout while sampling
        try:
            with torch.no_grad():
                return self._decode(weights, requests, kind)
        finally:
            weights.train(training)

    def _decode(self, weights: Any, requests: Sequence[Request], kind: WeightsKind) -> list[Reply]:
        if kind not in self._decoders:
            self._decoders[kind] = BatchDecoder(
                weights, self.tokenizer, self.model, self.max_batch_size, self.prefix_cache_tokens
            )
        decoder = self._decoders[kind]
        results: dict[int, Reply | EngineError] = {}
        for index, request in enumerate(requests):
            decoder.submit(Ticket(request, lambda result, index=index: results.__setitem__(index, result)))  # type: ignore[misc]
        while decoder.busy:
            RANK.note(rows=min(len(requests), self.max_batch_size))
            decoder.step()
        replies = []
        for index in range(len(requests)):
            result = results[index]
            if isinstance(result, EngineError):
                raise result
            replies.append(result)
        return replies
