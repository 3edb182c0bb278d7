"""The server engine on a real `vllm serve`: vLLM's CPU build with the embedded model, in a process of its own."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import Any

import pytest
import pytest_asyncio

from building import make_config
from evorun.errors import EngineError
from evorun.models import LanguageModel, Sampling
from evorun.models.config import ModelConfig
from evorun.models.embedded import ensure
from evorun.testing import check_engine
from evorun.testing.engines import decoder
from forward_pass import plain_model, scorer
from server_engine import closed_port
from token_turns import check_turns

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed (make test-vllm)"),
    pytest.mark.asyncio(loop_scope="module"),
]
OPTIONS = (
    *("--dtype", "float32", "--enforce-eager", "--no-enable-chunked-prefill", "--max-model-len", "2048"),
    *("--kv-cache-memory-bytes", str(1024**3), "--generation-config", "vllm"),
    *("--logprobs-mode", "processed_logprobs"),
)
ONE_CORE = {"VLLM_CPU_OMP_THREADS_BIND": str(min(os.sched_getaffinity(0))), "VLLM_LOGGING_LEVEL": "ERROR"}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def url() -> AsyncIterator[str]:
    port = closed_port()
    module = "vllm.entrypoints.openai.api_server"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, "--model", str(ensure()), "--host", "127.0.0.1", "--port", str(port), *OPTIONS),
        env={**os.environ, **ONE_CORE},
    )
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        await process.wait()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine(url: str) -> AsyncIterator[LanguageModel]:
    config = make_config("engine", "server", base_urls=[url], max_retries=2)
    model = ModelConfig(name="served", id=str(ensure()), context_length=2048)
    async with asyncio.timeout(300):
        while True:  # until the process serves
            try:
                served = await config.open(model)
                break
            except EngineError:
                await asyncio.sleep(0.5)
    yield served
    await served.close()


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(ensure())


@pytest.fixture(scope="module")
def score() -> Any:
    return scorer(plain_model(ensure()))


async def test_five_turns_are_trained_on_as_they_were_drawn(engine: LanguageModel, tokenizer: Any, score: Any) -> None:
    await check_turns(engine, tokenizer, score, Sampling(temperature=1.2, max_tokens=4))


async def test_it_is_an_engine(engine: LanguageModel, tokenizer: Any, score: Any) -> None:
    """Last in this file: it closes the engine."""

    async def opened() -> LanguageModel:
        return engine

    await check_engine(opened, decoder(tokenizer), score)
