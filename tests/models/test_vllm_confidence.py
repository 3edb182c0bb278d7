"""Confidences from vLLM's CPU build: those of a plain forward pass, and completions ended in the engine."""

import asyncio
from collections.abc import AsyncIterator
from importlib.util import find_spec
from typing import Any

import msgspec
import numpy as np
import pytest
import pytest_asyncio

from building import make_config
from evorun.models import LanguageModel
from evorun.models.base import Confidence
from evorun.models.confidence import read_confidences
from evorun.models.config import ModelConfig
from evorun.models.embedded import ensure
from evorun.testing.engines import VERDICT_SCHEMA, ask
from forward_pass import plain_confidences, plain_model

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed (make test-vllm)"),
    pytest.mark.asyncio(loop_scope="module"),
]

EMBEDDED = ModelConfig(
    name="smollm2_135m", id="HuggingFaceTB/SmolLM2-135M-Instruct", context_length=2048, dtype="float32", embedded=True
)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine() -> AsyncIterator[LanguageModel]:
    config = make_config("engine", "vllm", max_num_seqs=16, cpu_kv_cache_gib=0.5).for_confidence(ends_early=True)
    model = await config.open(EMBEDDED)
    yield model
    await model.close()


async def test_they_are_those_of_a_plain_forward_pass(engine: LanguageModel) -> None:
    every, mean = Confidence(tokens=True), Confidence(top=5)
    requests = [
        ask("Name a colour.", max_tokens=30, temperature=0.7, top_p=0.6, n=3, token_ids=True, confidence=every),
        ask("And a fruit?", max_tokens=12, temperature=0.0, token_ids=True, logprobs=True, confidence=mean),
        ask("No confidence.", max_tokens=12, token_ids=True),
    ]
    sampled, greedy, without = await asyncio.gather(*(engine.complete(request) for request in requests))
    assert without.completions[0].confidence is None
    model = plain_model(ensure())
    for reply, top in ((sampled, 20), (greedy, 5)):
        assert reply.error is None
        for completion in reply.completions:
            expected = plain_confidences(model, reply.prompt_ids, completion.token_ids, top)
            assert completion.confidence == pytest.approx(expected.mean(), rel=1e-3)
            if top == 20:
                np.testing.assert_allclose(read_confidences(completion), expected, rtol=2e-3)
    assert len(greedy.completions[0].logprobs) == greedy.completions[0].tokens


async def test_a_threshold_ends_the_completion_in_the_engine(engine: LanguageModel) -> None:
    whole = ask("Count.", max_tokens=60, temperature=0.0, token_ids=True, confidence=Confidence(tokens=True))
    [full] = (await engine.complete(whole)).completions
    values: Any = read_confidences(full)
    windows = np.convolve(values.astype(float), np.ones(4) / 4, mode="valid")
    # Between the lowest window and the others: it ends in the middle, with the first window below.
    minimum = float(np.sort(windows)[:2].mean()) if windows.min() < np.sort(windows)[1] else float(windows.min()) + 0.01
    ending = msgspec.structs.replace(whole.sampling, confidence=Confidence(tokens=True, window=4, minimum=minimum))
    [cut] = (await engine.complete(msgspec.structs.replace(whole, sampling=ending))).completions
    assert cut.finish_reason == "low_confidence"
    assert cut.tokens == int(np.flatnonzero(windows < minimum)[0]) + 4
    assert cut.token_ids == full.token_ids[: cut.tokens]
    assert full.text.startswith(cut.text)
    vllm: Any = engine
    assert not vllm.engine.output_processor.has_unfinished_requests()


async def test_forbidden_tokens_do_not_count(engine: LanguageModel) -> None:
    request = ask("A or B?", max_tokens=30, json_schema=VERDICT_SCHEMA, confidence=Confidence(tokens=True))
    [completion] = (await engine.complete(request)).completions
    assert np.isfinite(read_confidences(completion)).all()
    assert 0 < completion.confidence < 100


async def test_log_probabilities_of_another_distribution_are_refused(engine: LanguageModel) -> None:
    reply = await engine.complete(ask("Count.", max_tokens=2, temperature=0.7, logprobs=True))
    assert "set engine.logprobs=processed" in str(reply.error)
