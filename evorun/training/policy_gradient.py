"""Policy gradients with TRL's GRPOTrainer, on rows whose advantages and sampling log-probabilities are given.

TRL's own data loader, rewards, groups and normalisation, which take batches of one size for granted, are not used: a
step is made of as many passes as its rows need, and each token has its weight in the loss.

Imports TRL: only the trainer process imports this module.
"""

import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from accelerate import DistributedType
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from evorun.training.batches import Pass, minibatches, padded, passes, token_weight
from evorun.training.serving import Serving, seed_everything
from evorun.training.settings import processes, shared_arguments
from evorun.training.weights import adapter
from evorun.training.wire import Job, PolicyGradient

LARGEST_LOG_RATIO = 20.0
"""Beyond it the ratio of two probabilities is cut: its exponential would soon be infinite."""

SAME = 1e-4
"""Log-probabilities that differ by less are taken as equal: sums in float32 differ so much between batches, and a run
that was killed samples the rest of its completions in another batch, from which it must learn the same to the bit."""

FIGURES = ("entropy", "clip_ratio", "sampler_kl", "kl")


def make_trainer(job: Job, objective: PolicyGradient, model: Any, tokenizer: Any, serving: Serving) -> Any:
    """Return the trainer of TRL."""
    steps = objective.steps * objective.minibatches
    arguments = shared_arguments(job) | {
        # TRL demands groups of two at least, and an entry of its data set for each; nothing else is made of these.
        "per_device_train_batch_size": 2,
        "num_generations": 2,
        "gradient_accumulation_steps": 1,
        "max_steps": steps,
        "temperature": objective.temperature,
        "beta": objective.kl,
        # The run knows its position; skipping batches on resume would ask it for them again.
        "ignore_data_skip": True,
        "remove_unused_columns": False,
    }
    return PolicyGradientTrainer(
        job,
        objective,
        serving,
        model=model,
        args=GRPOConfig(**arguments),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=Dataset.from_dict({"prompt": ["-"] * (steps * processes())}),
        processing_class=tokenizer,
        peft_config=adapter(job.training, model),
    )


class PolicyGradientTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer on the run's rows."""

    def __init__(self, job: Job, objective: PolicyGradient, serving: Serving, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._job = job
        self._objective = objective
        self._serving = serving
        self._steps: list[list[Pass]] = []
        """This process's passes of each optimiser step of the batch that are still to be made."""
        self._sums = torch.zeros(len(FIGURES) + 1)
        """Sums over the learned tokens of a step: of 1 and of each of `FIGURES`."""

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Accumulate the gradient of the next optimiser step; return its loss."""
        if not self._steps:
            self._steps = self._next_batch()
        own = self._steps.pop(0)
        self._sums = torch.zeros(len(FIGURES) + 1, device=self.accelerator.device)
        loss = torch.zeros((), device=self.accelerator.device)
        for index, one in enumerate(own):
            last = index + 1 == len(own)
            self.accelerator.gradient_state._set_sync_gradients(last)  # DeepSpeed makes its step where this is true
            waits = last or self.accelerator.distributed_type == DistributedType.DEEPSPEED
            with nullcontext() if waits else self.accelerator.no_sync(model):
                loss += super().training_step(model, one, None)
        tokens, *sums = self.accelerator.reduce(self._sums, reduction="sum").tolist()
        for name, value in zip(FIGURES, sums, strict=True):
            if name != "kl" or self.beta:
                self._metrics["train"][name].append(value / max(tokens, 1.0))
        largest = math.log(self.accelerator.unwrap_model(self.model).get_output_embeddings().weight.shape[0])
        self._metrics["train"]["entropy_fraction"].append(self._metrics["train"]["entropy"][-1] / largest)
        return loss

    def _next_batch(self) -> list[list[Pass]]:
        """Wait for the run's next batch; return this process's passes of each optimiser step on it."""
        train = self._serving.next_training()
        # The order of rows and dropout become functions of the step, so that a resumed run repeats them. The order is
        # the same in all processes.
        rng = np.random.default_rng((self._job.seed, train.number))
        seed_everything(self._job.seed, train.number, self.accelerator.process_index)
        training, accelerator = self._job.training, self.accelerator
        parts = minibatches(train.rows, self._objective.minibatches, rng)
        mean_tokens = sum(sum(row.learned) for row in train.rows) / len(parts)
        steps = []
        for part in parts:
            weight = token_weight(self._objective.loss, part, mean_tokens)
            dealt = passes(part, accelerator.num_processes, training.micro_batch, training.micro_batch_tokens)
            steps.append([padded(one[accelerator.process_index], weight, accelerator.device) for one in dealt])
        return steps

    def _prepare_inputs(self, inputs: Any) -> Any:
        return inputs

    def compute_loss(
        self, model: Any, inputs: Pass, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Return this process's part of the loss, with importance ratios against the sampler."""
        # The model's values are of the token after each position.
        _, learned, weights, advantages, logprobs = (tensor[:, 1:] for tensor in inputs)
        if self.beta:
            with torch.no_grad(), self.accelerator.unwrap_model(self.model).disable_adapter():
                reference, _ = self._score(self.model, inputs)
        own, entropy = self._score(model, inputs)
        sampler = torch.where((own - logprobs).abs() < SAME, own.detach(), logprobs)
        log_ratio = torch.where(learned, own - sampler, 0.0).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
        ratio = log_ratio.exp()
        low, high = self._objective.clip_low, self._objective.clip_high
        if self._objective.loss == "cispo":
            clipped = ratio.clamp(low, high)
            gain = clipped.detach() * advantages * own
            beyond = ratio != clipped
        else:
            clipped = ratio.clamp(1 - low, 1 + high)
            gain = torch.minimum(ratio * advantages, clipped * advantages)
            beyond = clipped * advantages < ratio * advantages
        # Of the sampler from the policy, by samples of the former: k3 of Schulman's "Approximating KL divergence".
        sampler_kl = ratio - log_ratio - 1
        towards = reference - own if self.beta else torch.zeros_like(own)
        kl = ratio * (towards.exp() - towards - 1)  # the ratio, as in TRL: so its gradient is that of the divergence
        figures = torch.stack([torch.ones_like(own), entropy, beyond.to(own.dtype), sampler_kl, kl]).detach()
        self._sums += (figures * learned).sum(dim=(1, 2))
        # Gradients are averaged over the processes, of which each has a part of the sum.
        loss: torch.Tensor = ((self.beta * kl - gain) * weights).sum() * self.accelerator.num_processes
        return loss

    def _score(self, model: Any, inputs: Pass) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probability and entropy at each token but the first, as they were sampled: at the temperature."""
        labels = inputs.ids.masked_fill(~inputs.learned, -100)
        with self.accelerator.autocast():
            # Padding stands on the right, where a causal model does not see it, so no mask is needed.
            output = model(input_ids=inputs.ids, labels=labels, fused_lm_head=True)
        return output.log_probs, output.entropy
