"""Supervised fine-tuning with TRL's SFTTrainer, one step per command of the run.

The loss is the mean over the assistant's tokens of a batch, however many passes the batch takes.

Imports TRL: only the trainer process imports this module.
"""

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import SFTConfig, SFTTrainer

from evorun.errors import DataError, TrainingError
from evorun.models.transformers.batch_decoder import eos_tokens
from evorun.runs.streams import stream
from evorun.training.accumulation import accumulate
from evorun.training.chat_template import NOT_LEARNED, TokenizedExample, tokenize_example
from evorun.training.config import TrainingConfig
from evorun.training.conversation_passes import ConversationPass, divide, without_labels
from evorun.training.conversations import count_examples, read_conversations
from evorun.training.ranks import RANK
from evorun.training.reference import Reference
from evorun.training.serving import Serving, seed_everything
from evorun.training.settings import count_processes, keep_settings, require_share, shared_arguments
from evorun.training.sharding import ShardsWeights
from evorun.training.weights import adapter, keep_adapter_precise
from evorun.training.wire import FineTuning, Job

HELD_OUT_AT_ONCE = 64
"""Held-out conversations whose order by length decides passes. `ours`."""


class Data(NamedTuple):
    """Conversations as tokens."""

    kept: list[TokenizedExample]
    cut: int
    """Number of kept conversations that exceed the allowed length and are truncated."""
    dropped: int
    """Number of conversations in which no answer begins within the allowed length."""

    @property
    def dataset(self) -> Dataset:
        """The conversations in TRL's columns."""
        return Dataset.from_dict(
            {
                "input_ids": [example.tokens for example in self.kept],
                "labels": [example.labels for example in self.kept],
            }
        )


def make_trainer(job: Job, objective: FineTuning, model: Any, tokenizer: Any, serving: Serving) -> Any:
    """Return TRL's trainer for the job.

    Raises TrainingError or DataError for conversations without anything to learn, ConfigError when the processes cannot
    share a batch equally.
    """
    require_share(objective.batch, count_processes())
    batches: dict[str, Any] = {
        # `FineTuner` divides a batch into passes.
        "per_device_train_batch_size": objective.batch // count_processes(),
        "per_device_eval_batch_size": HELD_OUT_AT_ONCE,
        "gradient_accumulation_steps": 1,
        # One pass through a data set that holds all epochs in evorun's order, not transformers'.
        "num_train_epochs": 1,
        "train_sampling_strategy": "sequential",
        "dataset_kwargs": {"skip_prepare_dataset": True},
        "max_length": None,
        # A sparse model's loss for balanced routers: these are frozen, and the layers below should not answer for them.
        "router_aux_loss_coef": 0.0,
    }
    ends = eos_tokens(model, tokenizer)
    train = _read(objective.train, job, objective, tokenizer, ends)
    held_out = None if objective.held_out is None else _read(objective.held_out, job, objective, tokenizer, ends)
    order = _order(job.seed, len(train.kept), objective.epochs)
    trainer = FineTuner(
        job.training,
        train,
        held_out,
        model=model,
        args=SFTConfig(**shared_arguments(job), **batches),
        train_dataset=train.dataset.select(order),
        eval_dataset=None if held_out is None else held_out.dataset,
        processing_class=tokenizer,
        peft_config=adapter(job.training, model) if job.training.weights == "lora" else None,
        callbacks=[_WaitForSteps(job, serving)],
    )
    trainer.reference = Reference(job)
    return trainer


class FineTuner(ShardsWeights, SFTTrainer):  # type: ignore[misc]
    """SFTTrainer that divides batches into passes; reports the numbers of its conversations and the held-out loss."""

    current_gradient_accumulation_steps: int
    reference: Reference

    def __init__(self, training: TrainingConfig, train: Data, held_out: Data | None, **arguments: Any) -> None:
        self.step_tokens = 0
        """Tokens of the batch, without padding."""
        self._limits = (training.micro_batch, training.micro_batch_tokens)
        parts = [part for part in (train, held_out) if part is not None]
        self._described = {
            "conversations": len(train.kept),
            "held_out": 0 if held_out is None else len(held_out.kept),
            "cut": sum(part.cut for part in parts),
            "dropped": sum(part.dropped for part in parts),
        }
        super().__init__(**arguments)
        if training.quantise is not None:
            keep_adapter_precise(self.model)

    @property
    def policy(self) -> Any:
        """The model that is trained."""
        return self.accelerator.unwrap_model(self.model)

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Accumulate the gradient of a batch; return its loss."""
        passes = divide(inputs, *self._limits, packed=self._packs)
        own = torch.tensor([[len(passes), int(inputs["attention_mask"].sum())]], device=self.accelerator.device)
        counts = self.accelerator.gather(own)
        self.step_tokens = int(counts[:, 1].sum())
        passes += [without_labels(passes[-1])] * (int(counts[:, 0].max()) - len(passes))
        steps, self.current_gradient_accumulation_steps = self.current_gradient_accumulation_steps, len(passes)

        def learn(own: ConversationPass) -> torch.Tensor:
            loss: torch.Tensor = super(FineTuner, self).training_step(model, own.inputs, num_items_in_batch)
            return loss

        try:
            return accumulate(self.accelerator, model, passes, lambda own: own.inputs["input_ids"], learn)
        finally:
            self.current_gradient_accumulation_steps = steps

    @property
    def _packs(self) -> bool:
        """True where attention takes conversations in one row without looking at all pairs of tokens."""
        return "flash" in (self.policy.config._attn_implementation or "")

    @contextmanager
    def compute_loss_context_manager(self) -> Iterator[None]:
        """Note the end of the forward pass: in the backward pass, processes wait for each other's gradients."""
        with super().compute_loss_context_manager():
            yield
        RANK.note("backward pass", rows=RANK.status.rows, tokens=RANK.status.tokens)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with keep_settings(self):
            super()._load_optimizer_and_scheduler(checkpoint)

    def evaluate(self) -> dict[str, float]:
        """Return the numbers of conversations, and `held_out_loss` if any conversations are held out.

        The loss is the mean over the tokens of all held-out answers.
        """
        described = {name: float(value) for name, value in self._described.items()}
        if self.eval_dataset is None:
            return described
        # Not transformers' evaluation, which gives each batch the same weight, whatever its number of tokens.
        training = self.model.training
        self.model.eval()
        sums = []
        with torch.no_grad(), self.compute_loss_context_manager():
            for batch in self.get_eval_dataloader():
                rows = torch.zeros(len(batch["input_ids"]), 2, device=self.accelerator.device)
                passes = divide(batch, *self._limits, packed=False)
                count = torch.tensor([len(passes)], device=self.accelerator.device)
                # Processes with sharded weights need each other in every pass.
                passes += [passes[-1]] * (int(self.accelerator.gather(count).max()) - len(passes))
                for own in passes:
                    ids = own.inputs["input_ids"]
                    RANK.note("held-out conversations", rows=len(ids), tokens=ids.numel())
                    # Like SFTTrainer's loss: log-probabilities without all logits in memory.
                    inputs = self._prepare_inputs(own.inputs)
                    output = self.model_wrapped(**inputs, use_cache=False, fused_lm_head=True)
                    rows[own.places] = torch.stack([-output.log_probs.sum(-1), output.label_mask.sum(-1)], dim=-1)
                sums.append(self.accelerator.gather_for_metrics(rows).double().cpu())
        self.model.train(training)
        loss, tokens = torch.cat(sums).sum(dim=0).tolist()
        return {**described, "held_out_loss": float(loss / tokens)}


class _WaitForSteps(TrainerCallback):
    """Before each step, serves the run's commands until the run asks for the step."""

    def __init__(self, job: Job, serving: Serving) -> None:
        self._seed = job.seed
        self._serving = serving

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Return when the run asks for the step. Raises Finished if the run ends instead."""
        train = self._serving.next_training()
        # This makes dropout a function of the step, so that a resumed run repeats it.
        seed_everything(self._seed, train.number, args.process_index)


def _read(file: str, job: Job, objective: FineTuning, tokenizer: Any, ends: Collection[int]) -> Data:
    """Return the conversations of a file as tokens. Raises TrainingError or DataError if there is nothing to learn."""
    longest = min(objective.max_length, job.model.context_length)
    kept, cut, dropped = [], 0, 0
    for conversation in read_conversations(Path(file)):
        try:
            whole = tokenize_example(tokenizer, conversation.messages, job.model, ends)
        except TrainingError as error:
            raise TrainingError(f"{objective.source}, line {conversation.line}: {error}") from error
        beginning = TokenizedExample(whole.tokens[:longest], whole.labels[:longest])
        # The model never predicts the first token, so its label does not count.
        if all(label == NOT_LEARNED for label in beginning.labels[1:]):
            dropped += 1
        else:
            kept.append(beginning)
            cut += len(whole.tokens) > longest
    if not kept:
        raise DataError(
            f"{objective.source}: expected conversations whose answers begin within {longest} tokens, none of "
            f"the {dropped} in {Path(file).name} does; raise method.max_length or model.context_length"
        )
    return Data(kept, cut, dropped)


def _order(seed: int, conversations: int, epochs: float) -> list[int]:
    """Return the indices of conversations in training order: each epoch has them all, in another order."""
    count = count_examples(conversations, epochs)
    order: list[int] = []
    for epoch in range(math.ceil(count / conversations)):
        order += stream(seed, "sft", "epoch", epoch).permutation(conversations).tolist()
    return order[:count]
