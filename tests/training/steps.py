"""Steps of trainers on given rows, without a run."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from building import make_job, policy_gradient, training_config
from evorun.training.wire import Row, Train

EXACT: dict[str, Any] = {
    "rank": 4,
    "alpha": 8.0,
    "epsilon": 1.0,
    "learning_rate": 1.0,
    "max_grad_norm": None,
    "dropout": 0.0,
}
"""Adam with so large an epsilon does not blow rounding up; nothing is clipped."""


VOCABULARY = 100


class Stepped(NamedTuple):
    """The outcome of some optimiser steps."""

    figures: list[dict[str, float]]
    gradients: list[dict[str, torch.Tensor]]
    adapter: dict[str, torch.Tensor]


class Batches:
    """In the place of a run: gives a batch for each step, then ends."""

    def __init__(self, batches: Sequence[Sequence[Row]], changed: int | None = None) -> None:
        """changed: number of the batch that is rewarded by something else than the one before."""
        self._left = list(batches)
        self._number = 0
        self._changed = changed

    def next_training(self) -> Train:
        from evorun.training.serving import Finished

        if not self._left:
            raise Finished
        self._number += 1
        rows = tuple(self._left.pop(0))
        return Train(number=self._number, rows=rows, rewards_changed=self._number == self._changed)


def tiny() -> tuple[Any, Any]:
    """Return a random Llama of 100 tokens, the same each time, and a tokenizer."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({f"w{number}": number for number in range(VOCABULARY)}))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w0", pad_token="w0")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.5,
        eos_token_id=0,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config), tokenizer


def stepped(folder: Path, *batches: Sequence[Row], training: dict[str, Any] | None = None, **objective: Any) -> Stepped:
    """Learn from batches with the tiny model; return what each optimiser step came to."""
    from evorun.training.policy_gradient import PolicyGradientTrainer

    told = policy_gradient(**{"steps": len(batches), **objective})
    job = make_job(folder, folder, training_config(**{**EXACT, **(training or {})}), told)
    return watched(PolicyGradientTrainer(job, told, *tiny(), Batches(batches)))  # type: ignore[arg-type]


def watched(trainer: Any) -> Stepped:
    """Train until the batches end; return what each optimiser step came to."""
    from transformers import TrainerCallback

    from evorun.training.serving import Finished

    class Watch(TrainerCallback):
        def on_pre_optimizer_step(self, *_: Any, model: Any = None, **__: Any) -> None:
            of = {name: entire(one.grad).clone() for name, one in model.named_parameters() if one.grad is not None}
            gradients.append({named(name): value for name, value in of.items()})

    gradients: list[dict[str, torch.Tensor]] = []
    trainer.add_callback(Watch())
    with contextlib.suppress(Finished):
        trainer.train()
    figures = [entry for entry in trainer.state.log_history if "loss" in entry]
    every = trainer.model.named_parameters()
    trained = {named(name): entire(one.detach()) for name, one in every if one.requires_grad}
    return Stepped(figures, gradients, trained)


def entire(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of which each process may have a part."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def named(parameter: str) -> str:
    """Return a parameter's name as PEFT saves it."""
    return parameter.removeprefix("module.").replace(".default.", ".")


def random_rows(count: int, seed: int = 0, *, tools: bool = False) -> list[Row]:
    """Return rows of many lengths, drawn from a uniform sampler. tools: some tokens are not learned."""
    rng = np.random.default_rng(seed)

    def row() -> Row:
        prompt, tokens = (tuple(rng.integers(1, VOCABULARY, rng.integers(2, most)).tolist()) for most in (20, 30))
        learned = tuple(not tools or index % 3 != 1 for index in range(len(tokens)))
        logprobs = tuple(-4.6 * one for one in learned)
        worth = float(rng.normal())
        return Row(prompt=prompt, tokens=tokens, learned=learned, reward=worth, advantage=worth, logprobs=logprobs)

    return [row() for _ in range(count)]
