"""Conversations as a trainer's tokens: the same data, in the same order, for every trainer."""

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evorun.errors import DataError, TrainingError
from evorun.models.config import ModelConfig
from evorun.runs.streams import stream
from evorun.training.chat_template import NOT_LEARNED, TokenizedExample, tokenize_example
from evorun.training.conversations import count_examples, read_conversations
from evorun.training.wire import FineTuning


class FineTuningData(NamedTuple):
    """The conversations of a fine-tuning."""

    train: Sequence[TokenizedExample]
    held_out: Sequence[TokenizedExample]
    cut: int
    """Number of conversations, of both parts, that exceed the allowed length and are truncated."""
    dropped: int
    """Number of conversations, of both parts, in which no answer begins within the allowed length."""

    def describe(self) -> dict[str, float]:
        """Return the numbers of conversations, by the names of `Evaluate`'s figures."""
        return {
            "conversations": float(len(self.train)),
            "held_out": float(len(self.held_out)),
            "cut": float(self.cut),
            "dropped": float(self.dropped),
        }


def read_data(objective: FineTuning, model: ModelConfig, tokenizer: Any, ends: Collection[int]) -> FineTuningData:
    """Return the conversations of an objective's files as tokens.

    tokenizer: a fast tokenizer of transformers. ends: the tokens that end a completion. Raises TrainingError for a
    chat template that does not show where answers begin and end, DataError for a file with nothing to learn.
    """
    longest = min(objective.max_length, model.context_length)
    parts: list[list[TokenizedExample]] = []
    cut, dropped = 0, 0
    for file in (objective.train, objective.held_out):
        kept: list[TokenizedExample] = []
        parts.append(kept)
        left_out = 0
        for conversation in () if file is None else read_conversations(Path(file)):
            try:
                whole = tokenize_example(tokenizer, conversation.messages, model, ends)
            except TrainingError as error:
                raise TrainingError(f"{objective.source}, line {conversation.line}: {error}") from error
            beginning = TokenizedExample(whole.tokens[:longest], whole.labels[:longest])
            # The model never predicts the first token, so its label does not count.
            if all(label == NOT_LEARNED for label in beginning.labels[1:]):
                left_out += 1
            else:
                kept.append(beginning)
                cut += len(whole.tokens) > longest
        dropped += left_out
        if file is not None and not kept:
            raise DataError(
                f"{objective.source}: expected conversations whose answers begin within {longest} tokens, none of "
                f"the {left_out} in {Path(file).name} does; raise method.max_length or model.context_length"
            )
    train, held_out = parts
    return FineTuningData(train, held_out, cut, dropped)


def order_conversations(seed: int, conversations: int, epochs: float) -> list[int]:
    """Return the indices of conversations in training order: each epoch has them all, in another order."""
    count = count_examples(conversations, epochs)
    order: list[int] = []
    for epoch in range(math.ceil(count / conversations)):
        order += stream(seed, "sft", "epoch", epoch).permutation(conversations).tolist()
    return order[:count]
