"""Decodes completions from the weights under training, with the batch decoder of the transformers engine.

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
from evorun.training.ranks import RANK


@dataclass
class Decoding:
    """Decodes requests with a model whose weights change between steps."""

    tokenizer: Any
    model: ModelConfig
    max_batch_size: int
    """Completions decoded together."""
    prefix_cache_tokens: int
    _decoders: dict[int | None, BatchDecoder] = field(default_factory=dict)
    """Decoders by the update of their weights (None: the reference): cached prompts are valid only for these."""

    def weights_changed(self) -> None:
        """Drop cached prompts, which belong to the former weights."""
        # Also those of weights that stay: the next step needs the memory.
        self._decoders.clear()

    def decode(self, weights: Any, requests: Sequence[Request], version: int | None) -> list[Reply]:
        """Answer the requests with the model `weights`, that of an update; None: the reference.

        Raises EngineError when decoding fails.
        """
        training = weights.training
        weights.eval()  # no dropout while sampling
        try:
            with torch.no_grad():
                return self._decode(weights, requests, version)
        finally:
            weights.train(training)

    def _decode(self, weights: Any, requests: Sequence[Request], version: int | None) -> list[Reply]:
        if version not in self._decoders:
            self._decoders[version] = BatchDecoder(
                weights, self.tokenizer, self.model, self.max_batch_size, self.prefix_cache_tokens
            )
        decoder = self._decoders[version]
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
