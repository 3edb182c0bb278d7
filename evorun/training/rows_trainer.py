"""Base of the trainers on completions: TRL's GRPOTrainer on rows that the run gives, one batch at a time.

It does not use TRL's data loader, rewards, groups and normalisation, which assume batches of one size. A step has as
many passes as its rows need, and each token has a weight in the loss.

Imports TRL: only the trainer process imports this module.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from evorun.training.accumulation import accumulate
from evorun.training.output_layer import hide_output_adapter, score_through_adapter
from evorun.training.ranks import RANK
from evorun.training.reference import Reference
from evorun.training.serving import Serving
from evorun.training.settings import count_processes, keep_settings, shared_arguments
from evorun.training.sharding import ShardsWeights, full_shape
from evorun.training.weights import adapter, adapts_output, keep_adapter_precise
from evorun.training.wire import Job

LOGPROB_TOLERANCE = 1e-4
"""Log-probabilities that differ by less count as equal: sums in float32 differ this much between batches. A killed run
samples its remaining completions in another batch, and must learn exactly the same from it."""


class Scores(NamedTuple):
    """The policy's outputs for all tokens of some rows except the first: shape [rows, T - 1]."""

    logprobs: torch.Tensor
    """Log-probabilities at the sampling temperature; 0 for a token that is not learned."""
    entropy: torch.Tensor


class RowsTrainer(ShardsWeights, GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer on the run's rows."""

    model: Any
    SUMS: ClassVar[tuple[str, ...]]
    """Names of the entries of `_sums`, to which `compute_loss` adds over passes and processes of an optimiser step."""

    def __init__(
        self,
        job: Job,
        serving: Serving,
        model: Any,
        tokenizer: Any,
        *,
        batches: int,
        steps_per_batch: int,
        temperature: float,
        **settings: Any,
    ) -> None:
        """batches: maximum number. steps_per_batch: of the optimiser. temperature: of sampling. settings: for TRL."""
        steps = batches * steps_per_batch
        lora = job.training.weights == "lora"
        adapts_output_layer = lora and adapts_output(model, job.training.target_modules)
        arguments = shared_arguments(job) | {
            # TRL requires groups of at least two and data set entries for them. evorun uses neither.
            "per_device_train_batch_size": 2,
            "num_generations": 2,
            "gradient_accumulation_steps": 1,
            "max_steps": steps,
            "temperature": temperature,
            # The run knows its position; to skip batches on resume would request them again.
            "ignore_data_skip": True,
            "remove_unused_columns": False,
        }
        with hide_output_adapter(model):
            super().__init__(
                model=model,
                args=GRPOConfig(**arguments, **settings),
                reward_funcs=lambda completions, **_: [0.0] * len(completions),
                train_dataset=Dataset.from_dict({"prompt": ["-"] * (steps * count_processes())}),
                processing_class=tokenizer,
                peft_config=adapter(job.training, model) if lora else None,
            )
        if job.training.quantise is not None:
            keep_adapter_precise(self.model)
        if adapts_output_layer:
            score_through_adapter(self.model.get_base_model(), temperature)
        self._job = job
        self._steps_per_rate = steps_per_batch if job.training.schedule_by == "batch" else 1
        """Optimiser steps per learning rate of the schedule."""
        self._serving = serving
        self.reference = Reference(job, temperature)
        self._steps: list[list[Any]] = []
        """This process's passes of each remaining optimiser step of the batch."""
        self._sums = torch.zeros(len(self.SUMS))

    @property
    def policy(self) -> Any:
        """The model that is trained."""
        return self.accelerator.unwrap_model(self.model)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Return transformers' schedule, or one that changes the learning rate once per batch."""
        schedule = super().create_scheduler(num_training_steps // self._steps_per_rate, optimizer)
        for index, factor in enumerate(schedule.lr_lambdas):
            schedule.lr_lambdas[index] = lambda step, factor=factor: factor(step // self._steps_per_rate)
        return schedule

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with keep_settings(self):
            super()._load_optimizer_and_scheduler(checkpoint)

    @abstractmethod
    def _next_batch(self) -> list[list[Any]]:
        """Wait for the run's next batch; return this process's passes for each optimiser step on it."""

    @abstractmethod
    def _figures(self, sums: dict[str, float]) -> dict[str, float]:
        """Return the figures of an optimiser step from its sums."""

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Accumulate the gradient of the next optimiser step; return its loss."""
        if not self._steps:
            self._steps = self._next_batch()
        passes = self._steps.pop(0)
        self._sums = torch.zeros(len(self.SUMS), device=self.accelerator.device)
        learn = partial(super().training_step, model, num_items_in_batch=None)
        loss = accumulate(self.accelerator, model, passes, attrgetter("ids"), learn)
        RANK.note("sums of figures", waits=True)
        sums = self.accelerator.reduce(self._sums, reduction="sum").tolist()
        figures = self._figures(dict(zip(self.SUMS, sums, strict=True)))
        largest = math.log(full_shape(self.policy.get_output_embeddings().weight)[0])
        for name, value in {**figures, "entropy_fraction": figures["entropy"] / largest}.items():
            self._metrics["train"][name].append(value)
        return loss

    def score_by_reference(self, passes: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> list[torch.Tensor]:
        """Return the reference policy's log-probabilities of some passes (`Scores.logprobs`).

        passes: token ids and, for each, true if it is learned.
        """
        scored = []
        with self.reference.use(self.policy) as reference, torch.no_grad(), self.accelerator.autocast():
            for ids, learned in passes:
                RANK.note("scores of the reference policy", rows=ids.shape[0], tokens=ids.numel())
                scored.append(score(reference, ids, learned).logprobs)
        return scored

    @contextmanager
    def compute_loss_context_manager(self) -> Iterator[None]:
        """Note the end of the forward pass: in the backward pass, processes wait for each other's gradients."""
        with super().compute_loss_context_manager():
            yield
        RANK.note("backward pass", rows=RANK.status.rows, tokens=RANK.status.tokens)

    def _prepare_inputs(self, inputs: Any) -> Any:
        return inputs


def score(model: Any, ids: torch.Tensor, learned: torch.Tensor) -> Scores:
    """Return log-probability and entropy of each token except the first, at the sampling temperature."""
    labels = ids.masked_fill(~learned, -100)
    # No mask is needed: padding is on the right, where a causal model does not see it.
    output = model(input_ids=ids, labels=labels, fused_lm_head=True)
    return Scores(output.log_probs, output.entropy)
