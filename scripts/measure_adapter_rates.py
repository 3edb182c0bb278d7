"""Print what a few steps of Adam do to a model's loss on one text, by what is trained, at which rate.

    python scripts/measure_adapter_rates.py

The embedded model (SmolLM2-135M-Instruct), float32, a text of its own, `--steps` steps. The last columns are the number
of trained parameters and the bound of `evorun.training.reach`. docs/ppo.md has the figures.
"""

import argparse
from dataclasses import replace
from typing import Any

import torch
from peft import get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from evorun.cli.compose import yaml_values
from evorun.models.embedded import ensure
from evorun.runner.typed import typed
from evorun.training.config import TrainingConfig
from evorun.training.reach import reach
from evorun.training.weights import adapter

TEXT = (
    "The lighthouse keeper wound the clock twice a day, although no ship had passed the cape for eleven years. He "
    "said that the clock was not for the ships. In the evenings he wrote down the height of the tide, the colour of "
    "the sky, and one sentence about the gulls, which he never read again."
)
INPUTS = 576
"""Width of the embedded model."""
RELEASED = {"rank": 64, "alpha": 128.0, "target_modules": ["all-linear", "lm_head"]}
ROWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("adapter, rank 32, alpha 32", {"learning_rate": 3e-6}),
    ("adapter, rank 32, alpha 32", {"learning_rate": 3e-5}),
    ("adapter, rank 32, alpha 32", {"learning_rate": 1e-4}),
    ("adapter, rank 32, alpha 32", {"learning_rate": 3e-4}),
    ("adapter, rank 64, alpha 128, output layer", {**RELEASED, "learning_rate": 3e-6}),
    ("adapter, rank 64, alpha 128, output layer", {**RELEASED, "learning_rate": 3e-5}),
    ("all weights", {"weights": "full", "learning_rate": 3e-6}),
)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=11)
    steps = parser.parse_args().steps
    usual = typed(TrainingConfig, {"name": "ppo", **yaml_values("training", "ppo")}, "training")
    folder = ensure()
    ids = AutoTokenizer.from_pretrained(folder)(TEXT, return_tensors="pt")["input_ids"]
    print(f"| trained | rate | loss before | after {steps} steps | parameters | bound |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, changes in ROWS:
        training = replace(usual, **changes)
        before, after, count = _losses(training, folder, ids, steps)
        bound = f"{reach(training, steps, INPUTS):.4f}" if training.weights == "lora" else ""
        print(f"| {name} | {training.learning_rate:g} | {before:.3f} | {after:.3f} | {count:,} | {bound} |", flush=True)


def _losses(training: TrainingConfig, folder: Any, ids: torch.Tensor, steps: int) -> tuple[float, float, int]:
    """Return the loss before and after the steps, and the number of trained parameters."""
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    lora = adapter(training, model)
    model = model if lora is None else get_peft_model(model, lora)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    adam = torch.optim.AdamW(
        trained,
        lr=training.learning_rate,
        betas=(training.beta1, training.beta2),
        eps=training.epsilon,
        weight_decay=training.weight_decay,
    )
    losses = []
    for _ in range(steps):
        loss = model(input_ids=ids, labels=ids).loss
        losses.append(float(loss.detach()))
        adam.zero_grad()
        loss.backward()
        adam.step()
    with torch.no_grad():
        losses.append(float(model(input_ids=ids, labels=ids).loss))
    return losses[0], losses[-1], sum(parameter.numel() for parameter in trained)


if __name__ == "__main__":
    main()
