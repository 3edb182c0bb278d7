"""Supervised fine-tuning with TRL's SFTTrainer, whose steps are asked for by the run.

The loss is the mean over the assistant's tokens of a batch, however it is divided into passes.

Imports TRL: only the trainer process imports this module.
"""

import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import SFTConfig, SFTTrainer

from evorun.errors import DataError, TrainingError
from evorun.models.transformers.batch_decoder import eos_tokens
from evorun.runs.streams import stream
from evorun.training.chat_template import NOT_LEARNED, TokenizedExample, tokenize_example
from evorun.training.conversations import read_conversations
from evorun.training.serving import Serving, seed_everything
from evorun.training.settings import micro_batch, processes, require_share, shared_arguments
from evorun.training.weights import adapter
from evorun.training.wire import FineTuning, Job


class Data(NamedTuple):
    """Conversations as the model reads them."""

    kept: list[TokenizedExample]
    cut: int
    """Of those kept: longer than allowed, so that only their beginning is used."""
    dropped: int
    """No token of an answer lies within the length that is allowed."""

    @property
    def dataset(self) -> Dataset:
        """In the words of TRL."""
        return Dataset.from_dict(
            {"input_ids": [one.tokens for one in self.kept], "labels": [one.labels for one in self.kept]}
        )


def make_trainer(job: Job, objective: FineTuning, model: Any, tokenizer: Any, serving: Serving) -> Any:
    """Return the trainer of TRL.

    Raises TrainingError or DataError for conversations that cannot be learned from, ConfigError when a batch cannot be
    divided among the processes.
    """
    reading = _Reading(job, objective, tokenizer, eos_tokens(model, tokenizer))
    train = reading.read(objective.train)
    held_out = None if objective.held_out is None else reading.read(objective.held_out)
    order = _order(job.seed, len(train.kept), objective.epochs)
    return FineTuner(
        train,
        held_out,
        math.ceil(len(order) / objective.batch),
        model=model,
        args=SFTConfig(**_arguments(job, objective)),
        train_dataset=train.dataset.select(order),
        eval_dataset=None if held_out is None else held_out.dataset,
        processing_class=tokenizer,
        peft_config=adapter(job.training, model),
        callbacks=[_AsksForSteps(job, serving)],
    )


class FineTuner(SFTTrainer):  # type: ignore[misc]
    """SFTTrainer that also says what its data are."""

    def __init__(self, train: Data, held_out: Data | None, steps: int, **arguments: Any) -> None:
        self._parts = [part for part in (train, held_out) if part is not None]
        self._described = {
            "steps": steps,
            "conversations": len(train.kept),
            "held_out": 0 if held_out is None else len(held_out.kept),
            "cut": sum(part.cut for part in self._parts),
            "dropped": sum(part.dropped for part in self._parts),
        }
        super().__init__(**arguments)

    def evaluate(self) -> dict[str, float]:
        """Return the number of steps and what became of the conversations; `held_out_loss` where some are held out.

        The loss is the mean over all held-out answers' tokens (transformers' own evaluation weighs each batch alike).
        """
        described = {name: float(value) for name, value in self._described.items()}
        return described if self.eval_dataset is None else {**described, "held_out_loss": self._held_out_loss()}

    def _held_out_loss(self) -> float:
        training = self.model.training
        self.model.eval()
        sums = []
        with torch.no_grad(), self.compute_loss_context_manager():
            for batch in self.get_eval_dataloader():
                # As SFTTrainer computes its loss: log-probabilities without all logits at once.
                output = self.model_wrapped(**self._prepare_inputs(batch), use_cache=False, fused_lm_head=True)
                rows = torch.stack([-output.log_probs.sum(-1), output.label_mask.sum(-1)], dim=-1)
                sums.append(self.accelerator.gather_for_metrics(rows).double().cpu())
        self.model.train(training)
        loss, tokens = torch.cat(sums).sum(dim=0).tolist()
        return float(loss / tokens)


class _AsksForSteps(TrainerCallback):
    """Waits before each step until the run asks for it, and carries out what else it asks for meanwhile."""

    def __init__(self, job: Job, serving: Serving) -> None:
        self._seed = job.seed
        self._serving = serving

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Return when the step is asked for. Raises Finished when none will be."""
        train = self._serving.next_training()
        # Makes what is drawn (dropout) a function of the step, so that a resumed run repeats it.
        seed_everything(self._seed, train.number, args.process_index)


class _Reading(NamedTuple):
    """Turns conversations into tokens."""

    job: Job
    objective: FineTuning
    tokenizer: Any
    ends: set[int]

    def read(self, file: str) -> Data:
        """Return the conversations of a file. Raises DataError when none is left of them."""
        longest = min(self.objective.max_length, self.job.model.context_length)
        kept, cut, dropped = [], 0, 0
        for conversation in read_conversations(Path(file)):
            whole = self._tokenized(conversation.line, conversation.messages)
            beginning = TokenizedExample(whole.tokens[:longest], whole.labels[:longest])
            # The first token is never predicted.
            if all(label == NOT_LEARNED for label in beginning.labels[1:]):
                dropped += 1
            else:
                kept.append(beginning)
                cut += len(whole.tokens) > longest
        if not kept:
            raise DataError(
                f"{self.objective.source}: expected conversations whose answers begin within {longest} tokens, none of "
                f"the {dropped} in {Path(file).name} does; raise method.max_length or model.context_length"
            )
        return Data(kept, cut, dropped)

    def _tokenized(self, line: int, messages: Any) -> TokenizedExample:
        try:
            return tokenize_example(self.tokenizer, messages, self.job.model, self.ends)
        except TrainingError as error:
            raise TrainingError(f"{self.objective.source}, line {line}: {error}") from error


def _order(seed: int, conversations: int, epochs: float) -> list[int]:
    """Return which conversation is learned from at which index: each epoch has them all, in an order of its own."""
    count = max(1, round(epochs * conversations))
    order: list[int] = []
    for epoch in range(math.ceil(count / conversations)):
        order += stream(seed, "sft", "epoch", epoch).permutation(conversations).tolist()
    return order[:count]


def _arguments(job: Job, objective: FineTuning) -> dict[str, Any]:
    require_share(objective.batch, processes())
    size = micro_batch(objective.batch, processes(), 1, job.training.micro_batch)
    return shared_arguments(job) | {
        "per_device_train_batch_size": size,
        "per_device_eval_batch_size": job.training.micro_batch,
        "gradient_accumulation_steps": objective.batch // (processes() * size),
        # All epochs are one pass through a data set in their order.
        "num_train_epochs": 1,
        "train_sampling_strategy": "sequential",
        "dataset_kwargs": {"skip_prepare_dataset": True},
        "max_length": None,
    }
