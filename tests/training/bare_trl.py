"""TRL's trainers as a user would call them, without evorun: what a training step should come to."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer


class Completed(NamedTuple):
    """A completion that has been sampled before."""

    prompt: list[int]
    tokens: list[int]
    learned: list[bool]
    reward: float


class Trained(NamedTuple):
    """The result of a training."""

    losses: list[float]
    """Of each step."""
    grad_norms: list[float]
    adapter: dict[str, torch.Tensor]
    trainer: Any


def train(
    model: Any,
    tokenizer: Any,
    batches: Sequence[Sequence[Completed]],
    output: Path,
    *,
    kind: str,
    group: int,
    micro_batch: int,
    **arguments: Any,
) -> Trained:
    """Train a LoRA adapter of rank 4 and alpha 8, a step a batch. kind: rloo, or GRPOTrainer's `loss_type`."""
    given = iter(batches)
    rewards: list[float] = []

    def next_batch() -> dict[str, Any]:
        batch = next(given)
        rewards[:] = [one.reward for one in batch]
        return {
            "prompt_ids": [one.prompt for one in batch],
            "completion_ids": [one.tokens for one in batch],
            "env_mask": [list(map(int, one.learned)) for one in batch],
            "logprobs": None,
        }

    common: dict[str, Any] = {
        "model": model,
        "reward_funcs": lambda completions, **_: list(rewards),
        "train_dataset": Dataset.from_dict({"prompt": ["-"] * sum(len(batch) // group for batch in batches)}),
        "processing_class": tokenizer,
        "peft_config": LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"),
    }
    passes = len(batches[0]) // micro_batch
    settings: dict[str, Any] = {
        "output_dir": str(output),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "lr_scheduler_type": "constant",
        "adam_beta2": 0.95,
        "per_device_train_batch_size": micro_batch,
        "gradient_accumulation_steps": passes,
        "steps_per_generation": passes,
        "max_steps": len(batches),
        "num_generations": group,
        # dr_grpo divides by it, and with 1 it is the sum over tokens; completions are given, so it has no other effect.
        "max_completion_length": 1,
        "shuffle_dataset": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        **arguments,
    }
    trainer: Any
    if kind == "rloo":
        trainer = RLOOTrainer(args=RLOOConfig(**settings), **common)

        def generate(prompts: Sequence[Any]) -> tuple[Any, Any, Any]:
            batch = next_batch()
            return batch["prompt_ids"], batch["completion_ids"], [""] * len(prompts)

        trainer._generate = generate
    else:
        config = GRPOConfig(loss_type=kind, scale_rewards=False, **settings)
        trainer = GRPOTrainer(args=config, rollout_func=lambda *_: next_batch(), **common)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    adapter = {
        name.replace(".default.", "."): value for name, value in trainer.model.state_dict().items() if "lora_" in name
    }
    return Trained([one["loss"] for one in logged], [one["grad_norm"] for one in logged], adapter, trainer)
