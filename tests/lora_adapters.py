"""Small random LoRA adapters of the embedded model, in PEFT's format, and what the model says under them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evorun.models import Message
from evorun.models.embedded import ensure

RANK = 4


def load_base() -> Any:
    """Return the embedded model as transformers loads it."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(ensure(), dtype=torch.float32)


def write_adapters(base: Any, folders: Sequence[Path], rank: int = RANK) -> None:
    """Write an adapter into each folder, each with matrices of its own; `base` is left as it was."""
    import torch
    from peft import LoraConfig, get_peft_model

    modules = ["q_proj", "v_proj", "down_proj"]
    for seed, folder in enumerate(folders):
        config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=modules, task_type="CAUSAL_LM")
        model = get_peft_model(base, config)
        generator = torch.Generator().manual_seed(seed)
        for name, weight in model.named_parameters():
            if "lora_" in name:  # B too, which PEFT leaves at zero: such an adapter would change nothing
                weight.data.normal_(std=0.027, generator=generator)
        model.save_pretrained(folder)
        base = model.unload()


def greedy_under(
    base: Any, adapter: Path | None, messages: Sequence[Message], max_tokens: int
) -> tuple[str, list[int]]:
    """Return text and token ids of transformers' own greedy `generate`, with PEFT's own layers unmerged."""
    from peft import PeftModel
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(ensure())
    model = base if adapter is None else PeftModel.from_pretrained(base, str(adapter))
    prompt = tokenizer.apply_chat_template(
        list(messages), add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    try:
        out = model.generate(**prompt, max_new_tokens=max_tokens, do_sample=False)
    finally:
        if adapter is not None:
            model.unload()
    ids = out[0, prompt["input_ids"].shape[1] :].tolist()
    return str(tokenizer.decode(ids, skip_special_tokens=True)), ids
