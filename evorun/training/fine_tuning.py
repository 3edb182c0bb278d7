"""Supervised fine-tuning with TRL's SFTTrainer, one step per command of the run.

The loss is the mean over the assistant's tokens of a batch, however many passes the batch takes.

Imports TRL: only the trainer process imports this module.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import SFTConfig, SFTTrainer

from evorun.models.transformers.batch_decoder import eos_tokens
from evorun.training.accumulation import accumulate
from evorun.training.chat_template import TokenizedExample
from evorun.training.config import TrainingConfig
from evorun.training.conversation_passes import ConversationPass, divide, without_labels
from evorun.training.fine_tuning_data import FineTuningData, order_conversations, read_data
from evorun.training.ranks import RANK
from evorun.training.reference import Reference
from evorun.training.serving import Serving, seed_everything
from evorun.training.settings import count_processes, keep_settings, require_share, shared_arguments
from evorun.training.sharding import ShardsWeights
from evorun.training.weights import adapter, keep_adapter_precise
from evorun.training.wire import FineTuning, Job

HELD_OUT_AT_ONCE = 64
"""Held-out conversations whose order by length decides passes. `ours`."""


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
    data = read_data(objective, job.model, tokenizer, eos_tokens(model, tokenizer))
    order = order_conversations(job.seed, len(data.train), objective.epochs)
    trainer = FineTuner(
        job.training,
        data,
        model=model,
        args=SFTConfig(**shared_arguments(job), **batches),
        train_dataset=_make_dataset(data.train).select(order),
        eval_dataset=_make_dataset(data.held_out) if data.held_out else None,
        processing_class=tokenizer,
        peft_config=adapter(job.training, model) if job.training.weights == "lora" else None,
        callbacks=[_WaitForSteps(job, serving)],
    )
    trainer.reference = Reference(job)
    return trainer


def _make_dataset(examples: Sequence[TokenizedExample]) -> Dataset:
    """Return conversations in TRL's columns."""
    return Dataset.from_dict(
        {"input_ids": [example.tokens for example in examples], "labels": [example.labels for example in examples]}
    )


class FineTuner(ShardsWeights, SFTTrainer):  # type: ignore[misc]
    """SFTTrainer that divides batches into passes; reports the numbers of its conversations and the held-out loss."""

    current_gradient_accumulation_steps: int
    reference: Reference

    def __init__(self, training: TrainingConfig, data: FineTuningData, **arguments: Any) -> None:
        self.step_tokens = 0
        """Tokens of the batch, without padding."""
        self._limits = (training.micro_batch, training.micro_batch_tokens)
        self._described = data.describe()
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
        if self.eval_dataset is None:
            return dict(self._described)
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
        return {**self._described, "held_out_loss": float(loss / tokens)}


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
