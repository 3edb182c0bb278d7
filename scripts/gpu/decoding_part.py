"""The transformers engine: tokens per second by batch beside `generate`, and log-probabilities beside float32."""

import asyncio
import time
from pathlib import Path
from typing import Any

import torch

from evorun.models import Message, Request, Sampling
from evorun.models.base import Reply
from evorun.models.config import ModelConfig
from evorun.models.transformers.engine import TransformersConfig
from figures import Setting, attempt, peak_memory, report
from random_models import write_random_model

BATCHES = {"full": (1, 8, 32, 128), "tiny": (1, 4)}
TOKENS = {"full": 128, "tiny": 8}
SCORED = 8
"""Completions whose log-probabilities are compared."""


def measure(setting: Setting, family: str) -> None:
    """Report the figures of a family of models."""
    with attempt(f"{family}: decoding"):
        folder = str(write_random_model(family, setting))
        replies = asyncio.run(_decode(family, folder, setting))
        _generate(family, folder, setting)
        _compare_log_probabilities(family, folder, replies, setting)


def make_request(number: int, tokens: int) -> Request:
    """Return a request of about a hundred prompt tokens."""
    text = f"{number}: " + " ".join(str(number * i % 97) for i in range(30))
    return Request(
        messages=(Message(role="user", content=text),),
        sampling=Sampling(max_tokens=tokens, temperature=1.0),
        seed=number,
        logprobs=True,
        token_ids=True,
    )


async def _decode(family: str, folder: str, setting: Setting) -> list[Reply]:
    batches, tokens = BATCHES[setting.size], TOKENS[setting.size]
    engine = TransformersConfig(name="transformers", device=setting.device, max_batch_size=max(batches))
    model = await engine.open(ModelConfig(name=family, id=folder, dtype="bfloat16"))
    number = 0
    try:
        await model.complete(make_request(number, tokens))  # compiles and allocates
        for batch in batches:
            with peak_memory() as peak:
                started = time.perf_counter()
                asked = [make_request(number + i, tokens) for i in range(batch)]
                replies = await asyncio.gather(*map(model.complete, asked))
                seconds = time.perf_counter() - started
            made = sum(reply.completions[0].tokens for reply in replies)
            report(f"{family}: tokens per second, batch {batch}", made / seconds)
            report(f"{family}: memory, batch {batch}", peak(), "GiB")
            number += batch
        return await asyncio.gather(*(model.complete(make_request(i, tokens)) for i in range(SCORED)))
    finally:
        await model.close()


def _generate(family: str, folder: str, setting: Setting) -> None:
    """Report what transformers' own `generate` makes of the same batches."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = load_plain(folder, torch.bfloat16, setting.device)
    tokens = TOKENS[setting.size]
    for batch in (BATCHES[setting.size][0], *BATCHES[setting.size]):  # the first once more: it warms up
        asked = [list(make_request(i, tokens).messages) for i in range(batch)]
        inputs = tokenizer.apply_chat_template(
            asked, add_generation_prompt=True, return_tensors="pt", padding=True, return_dict=True
        ).to(setting.device)
        started = time.perf_counter()
        with torch.inference_mode():
            model.generate(**inputs, do_sample=True, min_new_tokens=tokens, max_new_tokens=tokens)
        seconds = time.perf_counter() - started
    report(f"{family}: tokens per second of transformers' generate, batch {batch}", batch * tokens / seconds)


def _compare_log_probabilities(family: str, folder: str, replies: list[Reply], setting: Setting) -> None:
    """Report how far the engine's log-probabilities are from float32's, and how far a plain bfloat16 pass is."""
    said = [reply.completions[0].logprobs or () for reply in replies]
    passes = {}
    for dtype in (torch.float32, torch.bfloat16):
        model = load_plain(folder, dtype, setting.device)
        passes[dtype] = [score(model, reply) for reply in replies]
        del model
    exact = torch.cat(passes[torch.float32])
    engine = (torch.cat([torch.tensor(values) for values in said]) - exact).abs()
    plain = (torch.cat(passes[torch.bfloat16]) - exact).abs()
    what = f"{family}: distance of log-probabilities to float32"
    report(f"{what}, mean", float(engine.mean()), "nats", f"{float(plain.mean()):.3g} of a plain bfloat16 pass")
    report(f"{what}, largest", float(engine.max()), "nats", f"{float(plain.max()):.3g} of a plain bfloat16 pass")


def load_plain(folder: str | Path, dtype: torch.dtype, device: str) -> Any:
    """Return a model as transformers loads it, without evorun."""
    from transformers import AutoModelForCausalLM

    automatic: Any = AutoModelForCausalLM
    return automatic.from_pretrained(folder, dtype=dtype).to(device)


def score(model: Any, reply: Reply) -> torch.Tensor:
    """Return the log-probabilities of a reply's tokens by one forward pass of a model, on the CPU in float32."""
    prompt, tokens = list(reply.prompt_ids or ()), list(reply.completions[0].token_ids or ())
    ids = torch.tensor([prompt + tokens], device=model.device)
    with torch.inference_mode():
        logits = model(input_ids=ids, logits_to_keep=len(tokens) + 1).logits[0, :-1].float()
    scores: torch.Tensor = logits.log_softmax(-1)[range(len(tokens)), tokens].cpu()
    return scores
