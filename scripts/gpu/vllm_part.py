"""The vLLM engine: throughput beside bare vLLM, and log-probabilities after it has slept and woken."""

import asyncio
import gc
import importlib.util
import time
from collections.abc import Sequence
from typing import Any

from decoding_part import BATCHES, TOKENS, make_request
from evorun.models.base import Reply
from evorun.models.config import ModelConfig
from evorun.models.vllm.engine import VllmConfig
from figures import Setting, attempt, report
from random_models import write_random_model

SHARE = 0.6
"""Of the GPU's memory, so that an engine that has ended late leaves room."""


def measure(setting: Setting, family: str) -> None:
    """Report the figures of a family of models, or that vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        report("vLLM", "not installed")
        return
    folder = str(write_random_model(family, setting))
    batch, tokens = max(BATCHES[setting.size]), TOKENS[setting.size]
    prompts: list[Sequence[int]] = []
    with attempt(f"{family}: engine=vllm"):
        prompts = asyncio.run(_measure_engine(family, folder, batch, tokens, setting))
    gc.collect()
    with attempt(f"{family}: bare vLLM"):
        _measure_bare(family, folder, prompts, tokens, setting)


async def _measure_engine(family: str, folder: str, batch: int, tokens: int, setting: Setting) -> list[Sequence[int]]:
    sleeps = setting.device == "cuda"  # the CPU build has no sleep mode
    engine = VllmConfig(gpu_memory_utilization=SHARE, sleep=sleeps, cpu_kv_cache_gib=0.5)
    started = time.perf_counter()
    model: Any = await engine.open(ModelConfig(name=family, id=folder, dtype="bfloat16", context_length=2048))
    report(f"{family}: engine=vllm: start", time.perf_counter() - started, "s")
    try:
        await model.complete(make_request(0, tokens))
        started = time.perf_counter()
        replies = await asyncio.gather(*(model.complete(make_request(1 + i, tokens)) for i in range(batch)))
        made = sum(reply.completions[0].tokens for reply in replies)
        report(f"{family}: engine=vllm: tokens per second, batch {batch}", made / (time.perf_counter() - started))
        if sleeps:
            before = await model.complete(make_request(1, tokens))
            started = time.perf_counter()
            async with model.asleep():
                report(f"{family}: engine=vllm: falling asleep", time.perf_counter() - started, "s")
            started = time.perf_counter()
            after = await model.complete(make_request(1, tokens))
            report(f"{family}: engine=vllm: waking, with one completion", time.perf_counter() - started, "s")
            report(f"{family}: engine=vllm: the same completion after it has slept", *_compare(before, after))
        return [reply.prompt_ids or () for reply in replies]
    finally:
        await model.close()


def _compare(before: Reply, after: Reply) -> tuple[bool, str, str]:
    first, other = (reply.completions[0] for reply in (before, after))
    if first.token_ids != other.token_ids:
        return False, "", "other tokens"
    distances = [abs(a - b) for a, b in zip(first.logprobs or (), other.logprobs or (), strict=True)]
    return True, "", f"log-probabilities at most {max(distances, default=0.0):.3g} nats apart"


def _measure_bare(family: str, folder: str, prompts: list[Sequence[int]], tokens: int, setting: Setting) -> None:
    from vllm import LLM, SamplingParams
    from vllm.inputs import tokens_input

    on_cpu = {"enforce_eager": True, "kv_cache_memory_bytes": 2**29, "dtype": "float32"}
    llm: Any = LLM(
        folder,
        max_model_len=2048,
        **({"gpu_memory_utilization": SHARE, "dtype": "bfloat16"} if setting.device == "cuda" else on_cpu),
    )
    parameters = [SamplingParams(max_tokens=tokens, seed=i, logprobs=0) for i in range(len(prompts))]
    llm.generate(tokens_input(list(prompts[0])), parameters[0], use_tqdm=False)
    started = time.perf_counter()
    outputs = llm.generate([tokens_input(list(prompt)) for prompt in prompts], parameters, use_tqdm=False)
    made = sum(len(output.outputs[0].token_ids) for output in outputs)
    report(f"{family}: bare vLLM: tokens per second, batch {len(prompts)}", made / (time.perf_counter() - started))
