"""Sampling for the transformers engine: draws each row's next token from that row's random stream and grammar.

Imports torch: only `evorun.models.transformers.engine` imports this module, when it opens a model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer
from msgspec import UNSET

from evorun.models.base import Sampling
from evorun.models.confidence import token_confidence


@dataclass
class Draw:
    """The sampling parameters and state of one row."""

    sampling: Sampling
    rng: np.random.Generator
    """The row's random stream: one uniform number per token, whatever else is in the batch."""
    grammar: LLMatcher | None = None
    logprobs: bool = False
    """True if the request asks for log-probabilities."""

    @property
    def top(self) -> int:
        """Number of largest log-probabilities that the row's confidence needs; 0 without one."""
        return 0 if self.sampling.confidence is UNSET else self.sampling.confidence.top


class Drawn(NamedTuple):
    """The next token of each row."""

    ids: list[int]
    logprobs: list[float]
    """0 if no row asks for them."""
    confidences: list[float]
    """0 for a row that does not ask for it."""


class Grammars:
    """Compiles each JSON schema into a matcher once."""

    def __init__(self, tokenizer: Any, vocabulary: int, eos_tokens: Sequence[int]) -> None:
        self._plain_tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._eos_tokens = list(eos_tokens)
        self._compiled: dict[str, LLMatcher] = {}

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        # Created on first use: it takes time and memory, and many runs enforce no schema.
        from llguidance.hf import from_tokenizer

        return from_tokenizer(self._plain_tokenizer, n_vocab=self._vocabulary, eos_token=self._eos_tokens)

    def matcher(self, schema: dict[str, Any]) -> LLMatcher:
        """Return a fresh matcher of a schema. Raises ValueError when the schema cannot be enforced."""
        # One space after colons and commas and none elsewhere: with free whitespace, a small model may fill its budget
        # with newlines.
        options: Any = {"whitespace_flexible": False, "key_separator": ": ", "item_separator": ", "}
        grammar = LLMatcher.grammar_from_json_schema(schema, overrides=options)
        if grammar not in self._compiled:
            matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
            if matcher.is_error():
                raise ValueError(f"JSON schema cannot be enforced: {matcher.get_error().splitlines()[0]}")
            self._compiled[grammar] = matcher
        return self._compiled[grammar].deep_copy()


def next_tokens(logits: torch.Tensor, draws: Sequence[Draw]) -> Drawn:
    """Return the next token of each row of logits, shape [rows, vocabulary]; temperature 0 takes the most likely."""
    if any(draw.grammar is not None for draw in draws):
        logits = logits.masked_fill(_forbidden(draws, logits.shape[-1]).to(logits.device), float("-inf"))
    ids, logprobs = _draw(logits, draws)
    return Drawn(ids, logprobs, _confidences(logits, draws))


def _draw(logits: torch.Tensor, draws: Sequence[Draw]) -> tuple[list[int], list[float]]:
    """Return a token id for each row, and its log-probability."""
    likeliest = logits.argmax(dim=-1)
    wanted = any(draw.logprobs for draw in draws)
    ids: list[int]
    if not wanted and all(draw.sampling.temperature == 0 for draw in draws):
        ids = likeliest.tolist()
        return ids, [0.0] * len(draws)
    temperatures = torch.tensor([draw.sampling.temperature or 1.0 for draw in draws], device=logits.device)
    probabilities = torch.softmax(logits / temperatures[:, None], dim=-1, dtype=torch.float64)
    for row, draw in enumerate(draws):
        if draw.sampling.top_p < 1:
            probabilities[row] = _nucleus(probabilities[row], draw.sampling.top_p)
    # Inverse transform sampling with one uniform number per row. Rounding noise from the rest of the batch changes a
    # choice only if the number falls on a boundary. The probabilities of the nucleus sum to less than 1, hence the
    # factor.
    cumulative = probabilities.cumsum(dim=-1)
    uniform = torch.tensor([draw.rng.random() for draw in draws], dtype=torch.float64, device=logits.device)
    drawn = torch.searchsorted(cumulative, uniform[:, None] * cumulative[:, -1:], right=True)[:, 0]
    greedy = torch.tensor([draw.sampling.temperature == 0 for draw in draws], device=logits.device)
    chosen = torch.where(greedy, likeliest, drawn.clamp(max=logits.shape[-1] - 1))
    ids = chosen.tolist()  # one transfer from the device, whatever the number of rows
    if not wanted:
        return ids, [0.0] * len(draws)
    logprobs: list[float] = (probabilities.gather(1, chosen[:, None]) / cumulative[:, -1:])[:, 0].log().tolist()
    return ids, logprobs


def _confidences(logits: torch.Tensor, draws: Sequence[Draw]) -> list[float]:
    """Return each row's confidence in its next token, of the model itself: before temperature and top_p."""
    most = min(max(draw.top for draw in draws), logits.shape[-1])
    if most == 0:
        return [0.0] * len(draws)
    largest = torch.log_softmax(logits.float(), dim=-1).topk(most, dim=-1).values.cpu().numpy()
    return [token_confidence(row[: draw.top]) for row, draw in zip(largest, draws, strict=True)]


def _forbidden(draws: Sequence[Draw], vocabulary: int) -> torch.Tensor:
    """Return a mask, on the CPU, of the next tokens that the rows' grammars forbid: shape [rows, vocabulary]."""
    forbidden = np.zeros((len(draws), vocabulary), dtype=np.bool_)
    for row, draw in enumerate(draws):
        if draw.grammar is not None:
            allowed = np.frombuffer(draw.grammar.compute_logit_bias(), dtype=np.uint8)
            forbidden[row] = allowed[:vocabulary] == 0
    return torch.from_numpy(forbidden)


def _nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """Zero all probabilities outside the smallest set of most likely tokens with mass `top_p`: shape [vocabulary]."""
    ordered, order = probabilities.sort(descending=True)
    ordered[ordered.cumsum(dim=-1) - ordered >= top_p] = 0
    return torch.zeros_like(probabilities).scatter_(0, order, ordered)
