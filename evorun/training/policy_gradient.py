"""Policy gradients on rows whose advantages and sampling log-probabilities are given.

Imports TRL: only the trainer process imports this module.
"""

from typing import Any

import numpy as np
import torch

from evorun.training.advantages import LARGEST_LOG_RATIO
from evorun.training.batches import NOTHING, Pass, minibatches, padded, passes, token_weight
from evorun.training.rows_trainer import LOGPROB_TOLERANCE, RowsTrainer, score
from evorun.training.serving import Serving, seed_everything
from evorun.training.wire import Job, PolicyGradient


class PolicyGradientTrainer(RowsTrainer):
    """The losses of GRPO and related methods, which weight a batch's tokens in different ways."""

    SUMS = ("tokens", "entropy", "clip_ratio", "sampler_kl", "kl")

    def __init__(self, job: Job, objective: PolicyGradient, model: Any, tokenizer: Any, serving: Serving) -> None:
        counts = {"batches": objective.steps, "steps_per_batch": objective.settings.minibatches}
        temperature = objective.temperature
        # No beta: TRL would load a reference policy of its own.
        super().__init__(job, serving, model, tokenizer, **counts, temperature=temperature)
        self._loss, self._settings = objective.loss, objective.settings

    def _next_batch(self) -> list[list[Pass]]:
        train = self._serving.next_training()
        # This makes the order of rows and dropout functions of the step, so that a resumed run repeats them. The order
        # is the same in all processes.
        rng = np.random.default_rng((self._job.seed, train.number))
        seed_everything(self._job.seed, train.number, self.accelerator.process_index)
        training, accelerator = self._job.training, self.accelerator
        limits = (training.micro_batch, training.micro_batch_tokens)
        parts = minibatches(train.rows, self._settings.minibatches, rng)
        mean_tokens = sum(sum(row.learned) for row in train.rows) / len(parts)
        steps = []
        for part in parts:
            weight = token_weight(self._loss, part, mean_tokens)
            dealt = passes(part, accelerator.num_processes, *limits, NOTHING)
            own = [padded(by_process[accelerator.process_index], weight, accelerator.device) for by_process in dealt]
            if self._settings.kl:
                references = self.score_by_reference((inputs.ids, inputs.learned) for inputs in own)
                own = [inputs._replace(reference=scores) for inputs, scores in zip(own, references, strict=True)]
            steps.append(own)
        return steps

    def compute_loss(
        self, model: Any, inputs: Pass, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Return this process's part of the loss, with importance ratios relative to the sampler."""
        # The model's outputs at a position are for the next token.
        learned, weights, advantages, logprobs = (tensor[:, 1:] for tensor in inputs[1:5])
        with self.accelerator.autocast():
            own, entropy = score(model, inputs.ids, inputs.learned)
        sampler = torch.where((own - logprobs).abs() < LOGPROB_TOLERANCE, own.detach(), logprobs)
        log_ratio = torch.where(learned, own - sampler, 0.0).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)
        ratio = log_ratio.exp()
        low, high = self._settings.clip_low, self._settings.clip_high
        if self._loss == "cispo":
            clipped = ratio.clamp(low, high)
            gain = clipped.detach() * advantages * own
            beyond = ratio != clipped
        else:
            clipped = ratio.clamp(1 - low, 1 + high)
            gain = torch.minimum(ratio * advantages, clipped * advantages)
            beyond = clipped * advantages < ratio * advantages
        # KL(sampler || policy) from the sampler's tokens: k3 of Schulman's "Approximating KL divergence".
        sampler_kl = ratio - log_ratio - 1
        towards = torch.zeros_like(own) if inputs.reference is None else inputs.reference - own
        kl = ratio * (towards.exp() - towards - 1)  # with the ratio, as in TRL, the gradient is that of the divergence
        figures = torch.stack([torch.ones_like(own), entropy, beyond.to(own.dtype), sampler_kl, kl]).detach()
        self._sums += (figures * learned).sum(dim=(1, 2))
        # Training averages gradients over the processes, but each process has only a part of the sum.
        loss: torch.Tensor = ((self._settings.kl * kl - gain) * weights).sum() * self.accelerator.num_processes
        return loss

    def _figures(self, sums: dict[str, float]) -> dict[str, float]:
        tokens = max(sums.pop("tokens"), 1.0)
        return {name: value / tokens for name, value in sums.items() if name != "kl" or self._settings.kl}
