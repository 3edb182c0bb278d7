"""Completions from the weights that are being trained, by the batch decoder of the transformers engine.

Imports torch: only the trainer process imports this module.
"""

from collections.abc import Sequence
from typing import Any

import torch

from evorun.errors import EngineError
from evorun.models.base import Reply, Request
from evorun.models.config import ModelConfig
from evorun.models.transformers.batch_decoder import BatchDecoder, Ticket


class Decoding:
    """Decodes requests with a model whose weights change between steps."""

    def __init__(self, tokenizer: Any, model: ModelConfig, max_batch_size: int, prefix_cache_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._model = model
        self._max_batch_size = max_batch_size
        self._prefix_cache_tokens = prefix_cache_tokens
        self._decoders: dict[bool, BatchDecoder] = {}
        """With the adapter on, and off; a decoder keeps processed prompts, which hold for one state of the weights."""

    def weights_changed(self) -> None:
        """Forget what was computed with the weights as they have been."""
        for decoder in self._decoders.values():
            decoder.forget()  # the base model's too: memory is needed for the step that follows

    def decode(self, weights: Any, requests: Sequence[Request], *, adapter: bool) -> list[Reply]:
        """Answer the requests with the adapter on or off. Raises EngineError when decoding breaks down."""
        training = weights.training
        weights.eval()
        try:
            with torch.no_grad():
                if adapter:
                    return self._decode(weights, requests, True)
                with weights.disable_adapter():
                    return self._decode(weights, requests, False)
        finally:
            weights.train(training)

    def _decode(self, weights: Any, requests: Sequence[Request], adapter: bool) -> list[Reply]:
        decoder = self._decoders.get(adapter) or self._decoder(weights)
        self._decoders[adapter] = decoder
        results: dict[int, Reply | EngineError] = {}
        for index, request in enumerate(requests):
            decoder.submit(Ticket(request, lambda result, index=index: results.__setitem__(index, result)))  # type: ignore[misc]
        while decoder.busy:
            decoder.step()
        return [_reply(results[index]) for index in range(len(requests))]

    def _decoder(self, weights: Any) -> BatchDecoder:
        return BatchDecoder(weights, self._tokenizer, self._model, self._max_batch_size, self._prefix_cache_tokens)


def _reply(result: Reply | EngineError) -> Reply:
    if isinstance(result, EngineError):
        raise result
    return result
