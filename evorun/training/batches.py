"""Divides batches of rows into passes of several processes, and pads them into tensors.

Any number of rows works: processes wait for each other in each pass, so those without a row get `NOTHING`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from evorun.training.wire import Row

if TYPE_CHECKING:
    import torch

NOTHING = Row(prompt=(0,), tokens=(0,), learned=(False,), reward=0.0, advantage=0.0, logprobs=(0.0,))
"""A row without learned tokens."""


R = TypeVar("R", bound=Row)


class Pass(NamedTuple):
    """Rows of one forward and backward pass of one process, padded on the right to T tokens: shape [rows, T]."""

    ids: torch.Tensor
    learned: torch.Tensor
    """True for learned tokens."""
    weights: torch.Tensor
    """Weight of a learned token in the loss of its optimiser step; 0 for the others."""
    advantages: torch.Tensor
    logprobs: torch.Tensor
    """Log-probabilities under the sampler."""
    reference: torch.Tensor | None = None
    """Log-probabilities under the reference policy, of all tokens except the first: shape [rows, T - 1]."""


def minibatches(rows: Sequence[R], count: int, rng: np.random.Generator) -> list[list[R]]:
    """Return the rows in random order, divided into `count` parts of about equal size, at most one part per row."""
    count = min(count, len(rows))
    parts = np.array_split(rng.permutation(len(rows)), count) if count > 1 else [range(len(rows))]
    return [[rows[index] for index in part] for part in parts]


def passes(rows: Sequence[R], processes: int, max_rows: int, max_tokens: int, nothing: R) -> list[list[list[R]]]:
    """Return the passes of an optimiser step: for each pass the rows of each process.

    A process's part of a pass has at most `max_rows` rows and `max_tokens` tokens, including padding, but at least one
    row. `nothing` fills the last pass of processes that lack a row.
    """
    # Group rows of similar length, to pad little. The longest come first, so that a lack of memory shows at once.
    ordered = sorted(rows, key=width, reverse=True)
    parts: list[list[list[R]]] = []
    longest = 0
    for start in range(0, len(ordered), processes):
        dealt = ordered[start : start + processes]  # a row for each process
        held = len(parts[-1][0]) if parts else max_rows
        if held == max_rows or (held + 1) * longest > max_tokens:
            parts.append([[] for _ in range(processes)])
            longest = width(dealt[0])
        for own, row in zip(parts[-1], [*dealt, *[nothing] * (processes - len(dealt))], strict=True):
            own.append(row)
    return parts


def token_weight(loss: str, rows: Sequence[Row], mean_tokens: float) -> Callable[[Row], float]:
    """Return a function that gives the weight of each of a row's learned tokens in the loss of a step on `rows`.

    loss: TRL's `loss_type`. dr_grpo sums over a completion's tokens and takes the mean over completions (E-SPL, section
    3.1). TRL's version also divides by the maximum number of tokens, so that its step depends on a sampling setting.
    grpo takes the mean over a completion's tokens, bnpo the mean over all tokens. dapo and cispo divide by
    `mean_tokens`, the mean number of tokens per step of the batch.
    """
    if loss == "dr_grpo":
        return lambda row: 1 / len(rows)
    if loss == "grpo":
        return lambda row: 1 / (len(rows) * max(sum(row.learned), 1))
    tokens = max(sum(sum(row.learned) for row in rows) if loss == "bnpo" else mean_tokens, 1)
    return lambda row: 1 / tokens


def padded(rows: Sequence[Row], weight: Callable[[Row], float], device: torch.device) -> Pass:
    """Return rows as tensors. weight: gives the weight of each learned token of a row."""
    import torch  # here, since not every trainer has it

    shape = (len(rows), max(map(width, rows)))
    ids, learned = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
    each, advantages, logprobs = (np.zeros(shape, dtype=np.float32) for _ in range(3))
    for index, row in enumerate(rows):
        start, end = len(row.prompt), width(row)
        ids[index, :end] = (*row.prompt, *row.tokens)
        learned[index, start:end] = row.learned
        each[index, start:end] = np.where(row.learned, weight(row), 0.0)
        advantages[index] = row.advantage or 0.0  # None with PPO, which estimates advantages from this pass
        logprobs[index, start:end] = row.logprobs
    return Pass(*(torch.from_numpy(array).to(device) for array in (ids, learned, each, advantages, logprobs)))


def width(row: Row) -> int:
    """Return the number of a row's tokens, including its prompt."""
    return len(row.prompt) + len(row.tokens)
