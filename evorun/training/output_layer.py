"""Computes log-probabilities through an adapter on the output layer.

TRL computes them from that layer's own weights, and therefore refuses an adapter on it. A model with such an adapter
gets evorun's forward pass instead of TRL's.

Imports TRL: only the trainer process imports this module.
"""

import contextlib
import functools
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from trl.trainer.utils import FusedCausalLMOutput

TOKENS_AT_ONCE = 512
"""Tokens whose logits are in memory at once: 600 MB in float32 with a vocabulary of 150,000. `ours`."""


@contextlib.contextmanager
def hide_output_adapter(model: Any) -> Iterator[None]:
    """Hide the output layer's adapter from TRL, which would refuse it, while the block runs."""
    output = model.get_output_embeddings()
    model.get_output_embeddings = lambda: output
    try:
        yield
    finally:
        del model.get_output_embeddings


def score_through_adapter(model: Any, temperature: float) -> None:
    """Let `model(..., labels=labels, fused_lm_head=True)` give log-probabilities and entropies through the adapter.

    model: the base model under an adapter; its other forward passes do not change. temperature: divides the logits.
    Gradients reach the adapter and the layers below it; the entropy has no gradient.
    """
    whole = model.forward

    @functools.wraps(type(model).forward)  # `generate` looks at the signature
    def forward(self: Any, *args: Any, fused_lm_head: bool = False, labels: Any = None, **settings: Any) -> Any:
        if not fused_lm_head:
            return whole(*args, labels=labels, **settings)
        hidden = self.base_model(*args, **{**settings, "use_cache": False}).last_hidden_state[:, :-1]
        wanted = labels[:, 1:] != -100
        states, targets = hidden[wanted], labels[:, 1:][wanted]
        head = self.get_output_embeddings()
        # Start with an empty part that still depends on the weights, so that a backward pass always works.
        parts = [_log_probability(head, states[:0], targets[:0], temperature)]
        for start in range(0, len(states), TOKENS_AT_ONCE):
            part = slice(start, start + TOKENS_AT_ONCE)
            # Logits and gradients of a whole pass would not fit in memory, so the backward pass recomputes logits.
            parts.append(
                checkpoint(_log_probability, head, states[part], targets[part], temperature, use_reentrant=False)
            )
        both = [torch.cat(own) for own in zip(*parts, strict=True)]
        spread = [values.new_zeros(wanted.shape).masked_scatter(wanted, values) for values in both]
        return FusedCausalLMOutput(log_probs=spread[0], entropy=spread[1])

    model.forward = types.MethodType(forward, model)


def _log_probability(
    head: Any, states: torch.Tensor, targets: torch.Tensor, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probability of each target given its state, and the entropy there: shape [tokens]."""
    logits = head(states).float() / temperature
    every = logits.log_softmax(-1)
    entropy = -(every.exp() * every).sum(-1)
    return every.gather(-1, targets[:, None])[:, 0], entropy.detach()
