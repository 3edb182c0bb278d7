"""Divides a batch of conversations into passes for fine-tuning, with little or no padding.

Where attention works on documents of any length (flash attention), a pass is one row without padding, and position ids
that restart keep the documents apart. Elsewhere that row would cost attention over all pairs of its tokens, so a pass
has a row per conversation, of similar lengths.

Imports torch: only the trainer process imports this module.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch

from evorun.training.chat_template import NOT_LEARNED

Batch = Mapping[str, torch.Tensor]
"""TRL's columns: `input_ids`, `attention_mask` and `labels`, padded on the right: shape [rows, T]."""


class ConversationPass(NamedTuple):
    """Some conversations of a batch."""

    places: list[int]
    """Their places in the batch."""
    inputs: dict[str, torch.Tensor]
    """Arguments of the model."""


def divide(batch: Batch, max_rows: int, max_tokens: int, *, packed: bool) -> list[ConversationPass]:
    """Return the passes of a batch, the longest conversations first.

    A pass has at most `max_rows` conversations and `max_tokens` tokens, including padding, but at least one
    conversation. packed: without padding, in one row.
    """
    lengths = batch["attention_mask"].sum(dim=1).tolist()
    groups: list[list[int]] = []
    held = 0
    for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
        group = groups[-1] if groups else []
        size = held + lengths[place] if packed else (len(group) + 1) * lengths[group[0]] if group else 0
        if not group or len(group) == max_rows or size > max_tokens:
            groups.append([])
            held = 0
        groups[-1].append(place)
        held += lengths[place]
    make = _pack if packed else _pad
    return [ConversationPass(group, make(batch, group, lengths)) for group in groups]


def without_labels(own: ConversationPass) -> ConversationPass:
    """Return a pass of which nothing is learned, for a process that has fewer passes than others."""
    labels = torch.full_like(own.inputs["labels"], NOT_LEARNED)
    return own._replace(inputs={**own.inputs, "labels": labels})


def _pad(batch: Batch, places: list[int], lengths: list[int]) -> dict[str, torch.Tensor]:
    longest = lengths[places[0]]
    return {name: batch[name][places, :longest] for name in ("input_ids", "attention_mask", "labels")}


def _pack(batch: Batch, places: list[int], lengths: list[int]) -> dict[str, torch.Tensor]:
    def joined(name: str) -> torch.Tensor:
        return torch.cat([batch[name][place, : lengths[place]] for place in places])[None]

    labels = joined("labels")
    # A model never predicts a conversation's first token, and must not from the end of the one before.
    starts = torch.tensor([0, *[lengths[place] for place in places[:-1]]]).cumsum(0)
    labels[0, starts] = NOT_LEARNED
    positions = torch.cat([torch.arange(lengths[place], device=labels.device) for place in places])[None]
    # Without a mask, attention looks at the position ids for the conversations' boundaries.
    return {"input_ids": joined("input_ids"), "labels": labels, "position_ids": positions}
