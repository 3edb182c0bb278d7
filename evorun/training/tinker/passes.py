"""The passes of an update on Tinker's API, by objective: each is followed by an optimiser step."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from evorun.training.batches import minibatches, token_weight
from evorun.training.fine_tuning_data import FineTuningData, order_conversations
from evorun.training.tinker.losses import (
    CROSS_ENTROPY,
    Loss,
    choose_loss,
    make_conversation_data,
    make_datum,
    make_targets,
    measure,
    measure_cross_entropy,
)
from evorun.training.wire import FineTuning, Job, PolicyGradient, Row, Train


class Pass(NamedTuple):
    """One forward and backward pass."""

    data: list[Any]
    """Tinker's Datums."""
    loss: Loss
    measure: Callable[[Sequence[np.ndarray]], dict[str, float]]
    """Returns the figures of the step from the log-probabilities of each datum's targets before it."""


class Passes(Protocol):
    """Makes the passes of a run's updates."""

    steps: int
    """Optimiser steps of the whole run."""
    steps_per_batch: int

    async def make(self, command: Train, done: int) -> list[Pass]:
        """Return the passes of an update. done: number of optimiser steps before it."""
        ...


ReferenceScores = Callable[[Sequence[Row]], Awaitable[Mapping[int, np.ndarray]]]
"""Returns the base model's log-probabilities of all tokens of each row but the first, by the row's identity."""


class RowPasses:
    """Passes on completions with advantages: a minibatch each."""

    def __init__(self, job: Job, objective: PolicyGradient, score_by_reference: ReferenceScores) -> None:
        self.steps_per_batch = objective.settings.minibatches
        self.steps = objective.steps * self.steps_per_batch
        self._seed = job.seed
        self._objective = objective
        self._score_by_reference = score_by_reference

    async def make(self, command: Train, done: int) -> list[Pass]:
        settings, loss = self._objective.settings, choose_loss(self._objective)
        parts = minibatches(command.rows, settings.minibatches, np.random.default_rng((self._seed, command.number)))
        mean_tokens = sum(sum(row.learned) for row in command.rows) / len(parts)
        references = await self._score_by_reference(command.rows) if settings.kl else {}
        passes = []
        for part in parts:
            weight = token_weight(self._objective.loss, part, mean_tokens)
            targets = [make_targets(row, weight, settings.kl, references.get(id(row))) for row in part]
            data = [make_datum(row, target) for row, target in zip(part, targets, strict=True)]
            passes.append(Pass(data, loss, partial(measure, loss, targets)))
        return passes


class ConversationPasses:
    """Passes on conversations: one per update, on the next `batch` of them."""

    def __init__(self, job: Job, objective: FineTuning, data: FineTuningData) -> None:
        order = order_conversations(job.seed, len(data.train), objective.epochs)
        self._batches = [order[start : start + objective.batch] for start in range(0, len(order), objective.batch)]
        self.steps_per_batch = 1
        self.steps = len(self._batches)
        self.data = data

    async def make(self, command: Train, done: int) -> list[Pass]:
        examples = [self.data.train[index] for index in self._batches[done]]

        def measure_step(logprobs: Sequence[np.ndarray]) -> dict[str, float]:
            return {"loss": measure_cross_entropy(examples, logprobs)}

        return [Pass(make_conversation_data(examples), CROSS_ENTROPY, measure_step)]
