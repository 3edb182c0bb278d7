"""Completions from the weights that are being trained, by the batch decoder of the transformers engine.

Imports torch: only the trainer process imports this module.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from evorun.errors import EngineError
from evorun.models.base import Reply, Request
from evorun.models.config import ModelConfig
from evorun.models.transformers.batch_decoder import BatchDecoder, Ticket


@dataclass
class Decoding:
    """Decodes requests with a model whose weights change between steps."""

    tokenizer: Any
    model: ModelConfig
    max_batch_size: int
    """Completions decoded together."""
    prefix_cache_tokens: int
    _decoders: dict[bool, BatchDecoder] = field(default_factory=dict)
    """Decoders with the adapter on (True) and off: their processed prompts are valid for one of these alone."""

    def weights_changed(self) -> None:
        """Drop processed prompts, which belong to the former weights."""
        # The base model's too, though its weights stay: the step that follows needs the memory.
        for decoder in self._decoders.values():
            decoder.forget()

    def decode(self, weights: Any, requests: Sequence[Request], *, adapter: bool) -> list[Reply]:
        """Answer the requests with the adapter on or off. Raises EngineError when decoding fails."""
        training = weights.training
        weights.eval()  # no dropout while sampling
        try:
            with torch.no_grad():
                if adapter:
                    return self._decode(weights, requests, True)
                with weights.disable_adapter():
                    return self._decode(weights, requests, False)
        finally:
            weights.train(training)

    def _decode(self, weights: Any, requests: Sequence[Request], adapter: bool) -> list[Reply]:
        if adapter not in self._decoders:
            self._decoders[adapter] = BatchDecoder(
                weights, self.tokenizer, self.model, self.max_batch_size, self.prefix_cache_tokens
            )
        decoder = self._decoders[adapter]
        results: dict[int, Reply | EngineError] = {}
        for index, request in enumerate(requests):
            decoder.submit(Ticket(request, lambda result, index=index: results.__setitem__(index, result)))  # type: ignore[misc]
        while decoder.busy:
            decoder.step()
        replies = []
        for index in range(len(requests)):
            result = results[index]
            if isinstance(result, EngineError):
                raise result
            replies.append(result)
        return replies
