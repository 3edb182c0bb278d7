"""TRL's trainers as a user would call them, without evorun: what a training step should come to."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

Completed = tuple[list[dict[str, str]], list[int]]
"""A prompt, and the token ids of what was sampled for it."""


class Trained(NamedTuple):
    """The result of a training."""

    losses: list[float]
    """Of each optimiser step."""
    grad_norms: list[float]
    adapter: dict[str, torch.Tensor]
    trainer: Any


def train(
    model: Path,
    batches: Sequence[Sequence[Completed]],
    reward: Callable[[str], float],
    output: Path,
    *,
    kind: str,
    group: int,
    seed: int,
    micro_batch: int,
    accumulate: int,
    passes: int,
    rank: int,
    **arguments: Any,
) -> Trained:
    """Train a LoRA adapter on batches of completions that have been sampled before.

    accumulate: forward passes in an optimiser step. passes: forward passes in a batch.
    """
    tokenizer = AutoTokenizer.from_pretrained(model)
    rollouts = _Rollouts(tokenizer, iter(batches), seed)

    def rewards(completions: list[Any], **_: Any) -> list[float]:
        return [reward(completion[0]["content"]) for completion in completions]

    one_each = [prompt for batch in batches for prompt, _ in batch[::group]]
    common: dict[str, Any] = {
        "model": AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
        "reward_funcs": rewards,
        "train_dataset": Dataset.from_dict({"prompt": one_each}),
        "processing_class": tokenizer,
        "peft_config": LoraConfig(
            r=rank, lora_alpha=32, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
    }
    settings: dict[str, Any] = {
        "output_dir": str(output),
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "seed": seed,
        "lr_scheduler_type": "constant",
        "adam_beta2": 0.95,
        "per_device_train_batch_size": micro_batch,
        "gradient_accumulation_steps": accumulate,
        "steps_per_generation": passes,
        "max_steps": len(batches) * passes // accumulate,
        "num_generations": group,
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
        trainer._generate_single_turn = lambda prompt_ids, *_: rollouts.next()["completion_ids"]
    else:
        config = GRPOConfig(loss_type=kind, scale_rewards=False, **settings)
        trainer = GRPOTrainer(args=config, rollout_func=lambda prompts, _: rollouts.next(prompts), **common)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    adapter = {name: value for name, value in trainer.model.state_dict().items() if "lora_" in name}
    return Trained([one["loss"] for one in logged], [one["grad_norm"] for one in logged], adapter, trainer)


class _Rollouts:
    """Gives the batches in turn; each one's rows are put in an order that only the seed and its number decide."""

    def __init__(self, tokenizer: Any, batches: Iterator[Sequence[Completed]], seed: int) -> None:
        self._tokenizer = tokenizer
        self._batches = batches
        self._seed = seed
        self._number = 0

    def next(self, prompts: Sequence[Any] | None = None) -> dict[str, Any]:
        batch = next(self._batches)
        assert prompts is None or [prompt for prompt, _ in batch] == list(prompts)
        self._number += 1
        set_seed(int(np.random.SeedSequence((self._seed, self._number)).generate_state(1)[0]))
        texts = [self._tokenizer.apply_chat_template(p, add_generation_prompt=True, tokenize=False) for p, _ in batch]
        return {
            "prompt_ids": self._tokenizer(texts, add_special_tokens=False)["input_ids"],
            "completion_ids": [tokens for _, tokens in batch],
            "logprobs": None,
        }
