"""The examples that PPO learns from: rows with the estimates of an update, padded into tensors.

Imports torch: only the trainer process imports this module.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from evorun.training.advantages import Estimate, Floats
from evorun.training.batches import NOTHING, width
from evorun.training.wire import Row


class Example(Row, frozen=True, kw_only=True):
    """A row with n learned tokens, as scored before an update."""

    old: Floats
    """Log-probabilities of the learned tokens under the policy that drew them: shape [n]."""
    values: Floats
    """Outputs of the value head, before the update, for the states that the critic is trained on: as many as the
    estimate's returns, and in the same scale."""
    estimate: Estimate


def tokens_at(row: Row) -> NDArray[np.int64]:
    """Return the positions of a row's learned tokens, counted from the start of its prompt."""
    return len(row.prompt) + np.flatnonzero(row.learned)


def states_at(row: Row) -> NDArray[np.int64]:
    """Return the positions of a row's states: the token before each learned token, and the last learned token.

    The critic's output at such a position is the state's value.
    """
    at = tokens_at(row)
    return np.append(at - 1, at[-1:])


_NONE = np.zeros(0)
NO_EXAMPLE = Example(
    **{name: getattr(NOTHING, name) for name in NOTHING.__struct_fields__},
    old=_NONE,
    values=_NONE,
    estimate=Estimate(_NONE, _NONE),
)
"""An example without learned tokens."""


class ExamplePass(NamedTuple):
    """Examples of one forward and backward pass of one process, padded on the right to T tokens: shape [rows, T]."""

    ids: torch.Tensor
    learned: torch.Tensor
    """True for learned tokens."""
    weights: torch.Tensor
    """Weight of a learned token in the policy loss of its optimiser step; 0 for the others."""
    advantages: torch.Tensor
    old: torch.Tensor
    """Log-probabilities of learned tokens before the update."""
    state_weights: torch.Tensor
    """Weight of the state after a token in the value loss of its optimiser step; 0 if it is not learned."""
    values: torch.Tensor
    """Values of these states before the update."""
    returns: torch.Tensor


def pad_examples(
    examples: Sequence[Example], learned_tokens: int, learned_states: int, device: torch.device
) -> ExamplePass:
    """Return examples as tensors. learned_tokens, learned_states: of the whole optimiser step."""
    shape = (len(examples), max(map(width, examples)))
    ids, learned = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
    weights, advantages, old, state_weights, values, returns = (np.zeros(shape, dtype=np.float32) for _ in range(6))
    for index, example in enumerate(examples):
        ids[index, : width(example)] = (*example.prompt, *example.tokens)
        at, after = tokens_at(example), states_at(example)[: len(example.values)]
        learned[index, at] = True
        weights[index, at] = 1 / learned_tokens
        advantages[index, at] = example.estimate.advantages
        old[index, at] = example.old
        state_weights[index, after] = 1 / learned_states
        values[index, after] = example.values
        returns[index, after] = example.estimate.returns
    arrays: tuple[NDArray[Any], ...] = (ids, learned, weights, advantages, old, state_weights, values, returns)
    return ExamplePass(*(torch.from_numpy(array).to(device) for array in arrays))
