"""Policy gradients with TRL's GRPOTrainer and RLOOTrainer, on batches from the run.

The trainers compute advantages from rewards (reward minus its group's mean, not divided by the standard deviation:
E-SPL, section 3.1), the loss and the optimiser's step.

Imports TRL: only the trainer process imports this module.
"""

from collections.abc import Sequence
from typing import Any

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from evorun.errors import TrainingError
from evorun.training.serving import Serving, seed_everything
from evorun.training.settings import micro_batch, processes, shared_arguments
from evorun.training.weights import adapter
from evorun.training.wire import Job, PolicyGradient, Row


class Batches:
    """This process's part of the batch that is being learned from, in TRL's format."""

    def __init__(self, job: Job, tokenizer: Any, serving: Serving) -> None:
        self._job = job
        self._tokenizer = tokenizer
        self._serving = serving
        self._rewards: list[float | None] = []

    def next(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Return prompt and completion ids of the next batch (TRL's `rollout_func`)."""
        train = self._serving.next_training()
        # The order of rows, which TRL draws, becomes a function of the step, so that a resumed run repeats it. The same
        # seed in all processes, unlike for dropout: they must agree on the order.
        seed_everything(self._job.seed, train.number)
        first = trainer.accelerator.process_index * len(prompts)
        rows: Sequence[Row] = train.rows[first : first + len(prompts)]
        self._rewards = [row.signal for row in rows]
        # A refused request has no completion, and often a prompt longer than the context. TRL gives a row without
        # reward no weight, but needs a token in its place.
        eos = (self._tokenizer.eos_token_id,)
        nothing = Row(prompt=eos, tokens=eos, learned=(True,), signal=None)
        rows = [nothing if row.signal is None else row for row in rows]
        batch: dict[str, Any] = {
            "prompt_ids": [list(row.prompt) for row in rows],
            "completion_ids": [list(row.tokens) for row in rows],
            "logprobs": None,
        }
        # Of all processes' rows: with a mask in one of them alone, they would wait for each other in different places.
        if not all(all(row.learned) for row in train.rows):
            batch["env_mask"] = [list(map(int, row.learned)) for row in rows]
        return batch

    def reward(self, completions: Sequence[Any], **_: Any) -> list[float | None]:
        """Return the rewards of the batch (TRL's reward function)."""
        return self._rewards


def make_trainer(job: Job, objective: PolicyGradient, model: Any, tokenizer: Any, serving: Serving) -> Any:
    """Return the trainer of TRL. Raises ConfigError when the batch cannot be divided."""
    batches = Batches(job, tokenizer, serving)
    # TRL counts steps by its data set, which has one entry for each prompt; what the entries hold is never used.
    prompts = Dataset.from_dict({"prompt": ["-"] * (objective.rows // objective.group * objective.steps)})
    common: dict[str, Any] = {
        "model": model,
        "reward_funcs": batches.reward,
        "train_dataset": prompts,
        "processing_class": tokenizer,
        "peft_config": adapter(job.training, model),
    }
    if objective.trainer == "rloo":
        return _Rloo(batches, args=RLOOConfig(**_arguments(job, objective)), **common)
    arguments = GRPOConfig(loss_type=objective.loss, scale_rewards="none", **_arguments(job, objective))
    return GRPOTrainer(args=arguments, rollout_func=batches.next, **common)


class _Rloo(RLOOTrainer):  # type: ignore[misc]
    """RLOOTrainer with the run's batches."""

    def __init__(self, batches: Batches, **arguments: Any) -> None:
        self._batches = batches
        super().__init__(**arguments)

    # It has no `rollout_func` as GRPOTrainer has, so its completions are replaced where it would generate them.
    def _generate(self, prompts: list[Any]) -> tuple[list[list[int]], list[list[int]], list[str]]:
        rollouts = self._batches.next(prompts, self)
        if "env_mask" in rollouts:
            raise TrainingError("TRL's RLOOTrainer learns from every token, tools' turns too; use method=grpo or cispo")
        tokens = rollouts["completion_ids"]
        return rollouts["prompt_ids"], tokens, self.processing_class.batch_decode(tokens, skip_special_tokens=True)


def _arguments(job: Job, objective: PolicyGradient) -> dict[str, Any]:
    size = micro_batch(objective.rows, processes(), objective.minibatches, job.training.micro_batch)
    passes = objective.rows // (processes() * size)
    return shared_arguments(job) | {
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": passes // objective.minibatches,
        "steps_per_generation": passes,
        "max_steps": objective.steps * objective.minibatches,
        "num_generations": objective.group,
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
