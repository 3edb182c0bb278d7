"""Policy gradients with TRL's GRPOTrainer, on completions whose advantages and log-probabilities are given.

Imports TRL: only the trainer process imports this module.
"""

from collections.abc import Sequence
from typing import Any

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from evorun.training.serving import Serving, seed_everything
from evorun.training.settings import micro_batch, processes, shared_arguments
from evorun.training.weights import adapter
from evorun.training.wire import Job, PolicyGradient, Row

GROUP = 2
"""TRL's smallest; it computes advantages of groups, which are replaced."""


def make_trainer(job: Job, objective: PolicyGradient, model: Any, tokenizer: Any, serving: Serving) -> Any:
    """Return the trainer of TRL. Raises ConfigError when the batch cannot be divided."""
    # TRL counts steps by its data set, which has one entry for each prompt; what the entries hold is never used.
    prompts = Dataset.from_dict({"prompt": ["-"] * (objective.rows // GROUP * objective.steps)})
    return _Trainer(
        job,
        objective.rows,
        serving,
        model=model,
        args=GRPOConfig(loss_type=objective.loss, scale_rewards="none", **_arguments(job, objective)),
        train_dataset=prompts,
        processing_class=tokenizer,
        peft_config=adapter(job.training, model),
    )


class _Trainer(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer on the run's batches."""

    def __init__(self, job: Job, rows: int, serving: Serving, **arguments: Any) -> None:
        self._job = job
        self._rows = rows
        self._serving = serving
        self._mine: Sequence[Row] = ()
        super().__init__(reward_funcs=self._no_rewards, rollout_func=self._next, **arguments)

    def _no_rewards(self, completions: Sequence[Any], **_: Any) -> list[float]:
        return [0.0] * len(completions)

    def _next(self, prompts: Sequence[Any], _: Any) -> dict[str, Any]:
        """Return this process's part of the next batch (TRL's `rollout_func`)."""
        train = self._serving.next_training()
        # The order of rows, which TRL draws, becomes a function of the step, so that a resumed run repeats it. The same
        # seed in all processes, unlike for dropout: they must agree on the order.
        seed_everything(self._job.seed, train.number)
        eos = (self.processing_class.eos_token_id,)
        nothing = Row(prompt=eos, tokens=eos, learned=(False,), signal=0.0, logprobs=(0.0,))
        rows = [*train.rows, *[nothing] * (self._rows - len(train.rows))]
        first = self.accelerator.process_index * len(prompts)
        self._mine = rows[first : first + len(prompts)]
        return {
            "prompt_ids": [list(row.prompt) for row in self._mine],
            "completion_ids": [list(row.tokens) for row in self._mine],
            "env_mask": [list(map(int, row.learned)) for row in self._mine],
            "logprobs": None,
        }

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        given, width = self._mine, output["completion_ids"].size(1)
        device = output["completion_ids"].device
        output["advantages"] = torch.tensor([row.signal for row in given], device=device)
        logprobs = [[*row.logprobs, *[0.0] * (width - len(row.tokens))] for row in given]
        output["old_per_token_logps"] = torch.tensor(logprobs, device=device)
        return output


def _arguments(job: Job, objective: PolicyGradient) -> dict[str, Any]:
    size = micro_batch(objective.rows, processes(), objective.minibatches, job.training.micro_batch)
    passes = objective.rows // (processes() * size)
    return shared_arguments(job) | {
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": passes // objective.minibatches,
        "steps_per_generation": passes,
        "max_steps": objective.steps * objective.minibatches,
        "num_generations": GROUP,
        "max_completion_length": objective.max_tokens,
        "temperature": objective.temperature,
        "beta": objective.kl,
        "epsilon": objective.clip_low,
        "epsilon_high": objective.clip_high,
        "shuffle_dataset": False,
        # The run knows its position; skipping batches on resume would ask it for them again.
        "ignore_data_skip": True,
        "remove_unused_columns": False,
    }
