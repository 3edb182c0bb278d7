"""The log-probabilities of tokens by a plain forward pass: an oracle for what engines say of their completions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evorun.models.base import Sampling
from evorun.testing.engines import Score


def plain_model(folder: Path) -> Any:
    """Load a model as transformers does, with its own attention and cache."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def scorer(model: Any) -> Score:
    """Return a function that scores tokens with a model of transformers."""
    import torch

    def score(prompt: Sequence[int], tokens: Sequence[int], sampling: Sampling) -> list[float]:
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1].double().numpy()
        return [float(np.log(distribution(row, sampling)[token])) for row, token in zip(logits, tokens, strict=True)]

    return score


def distribution(logits: Any, sampling: Sampling) -> Any:
    """Return the probabilities of the next token, shape [vocabulary]; greedy decoding's are those of temperature 1."""
    scaled = logits / (sampling.temperature or 1.0)
    probabilities = np.exp(scaled - scaled.max())
    probabilities /= probabilities.sum()
    if sampling.temperature and sampling.top_p < 1:
        order = np.argsort(-probabilities)
        kept = order[: 1 + int(np.searchsorted(np.cumsum(probabilities[order]), sampling.top_p))]
        mass = np.zeros_like(probabilities)
        mass[kept] = probabilities[kept]
        probabilities = mass / mass.sum()
    return probabilities


def plain_confidences(model: Any, prompt: Sequence[int], tokens: Sequence[int], top: int) -> Any:
    """Return minus the mean of the `top` largest log-probabilities in the place of each token, shape [tokens]."""
    import torch

    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1].double().numpy()
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return -np.sort(logprobs, axis=1)[:, -top:].mean(axis=1)
