import asyncio
import dataclasses
import json
import re
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import numpy as np
import pytest

from building import make_config
from evorun.errors import ConfigError, EngineError
from evorun.models import Message, Sampling
from evorun.models.config import ModelConfig
from evorun.models.embedded import ensure
from evorun.models.transformers.engine import TransformersModel
from evorun.testing import check_engine
from evorun.testing.engines import ask, decoder
from forward_pass import distribution, plain_model, scorer
from tiny_llama import TOKENS, write_talking_llama
from token_turns import check_turns

EMBEDDED = ModelConfig(name="smollm2_135m", id="HuggingFaceTB/SmolLM2-135M-Instruct", dtype="float32", embedded=True)

pytestmark = pytest.mark.embedded

ENDLESS = ask("Count.", max_tokens=8000, json_schema={"type": "array", "items": {"type": "integer"}, "minItems": 6000})
"""Takes an engine minutes."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    """A small model, for what does not depend on which one is served."""
    folder = write_talking_llama(tmp_path_factory.mktemp("model"))
    return ModelConfig(name="talking", id=str(folder), dtype="float32", context_length=8192)


@pytest.fixture(scope="module")
def engine(served: ModelConfig) -> Iterator[TransformersModel]:
    model = asyncio.run(make_config("engine", "transformers", max_batch_size=16).open(served))
    yield model
    asyncio.run(model.close())


@pytest.fixture(scope="module")
def tokenizer(served: ModelConfig) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(served.id)


@pytest.fixture(scope="module")
def real_tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(ensure())


@pytest.fixture(scope="module")
def weights(served: ModelConfig) -> Any:
    """The same model under transformers' own attention, cache and `generate`."""
    return plain_model(served.id)


@pytest.fixture(scope="module")
def real_weights() -> Any:
    """Weights that are nothing like random ones."""
    return plain_model(ensure())


@pytest.fixture(scope="module")
def real_engine() -> Iterator[TransformersModel]:
    model = asyncio.run(make_config("engine", "transformers", max_batch_size=4).open(EMBEDDED))
    yield model
    asyncio.run(model.close())


class Compared(NamedTuple):
    """An engine, the same weights without it, and their tokenizer."""

    engine: TransformersModel
    weights: Any
    tokenizer: Any


@pytest.fixture(params=["small", pytest.param("real", marks=pytest.mark.nightly)])
def compared(request: pytest.FixtureRequest) -> Compared:
    prefix = "real_" if request.param == "real" else ""
    return Compared(*(request.getfixturevalue(f"{prefix}{name}") for name in Compared._fields))


def generate_greedily(compared: Compared, messages: tuple[Message, ...], max_tokens: int) -> str:
    tokenizer = compared.tokenizer
    ids = tokenizer.apply_chat_template(
        list(messages), add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    out = compared.weights.generate(**ids, max_new_tokens=max_tokens, do_sample=False)
    return str(tokenizer.decode(out[0, ids["input_ids"].shape[1] :], skip_special_tokens=True))


async def test_greedy_batch_agrees_with_generate(compared: Compared) -> None:
    # Prompts of very different lengths, with shared beginnings, one of them longer than a stride of the cache.
    texts = ["Name a colour.", "Name a colour and a fruit.", "The sea is wide. " * 60 + "What is wide?", "2 + 2?"]
    requests = [ask(text, max_tokens=4 + 2 * i, temperature=0.0) for i, text in enumerate(texts)]
    replies = await asyncio.gather(*(compared.engine.complete(r) for r in requests))
    for request, reply in zip(requests, replies, strict=True):
        expected = generate_greedily(compared, request.messages, request.sampling.max_tokens)
        assert reply.completions[0].text == expected


async def test_a_draw_does_not_depend_on_the_batch(engine: TransformersModel) -> None:
    requests = [ask(f"Tell me about number {i}.", max_tokens=12, temperature=1.0, seed=i, top_p=0.9) for i in range(8)]
    together = await asyncio.gather(*(engine.complete(r) for r in requests))
    alone = [await engine.complete(r) for r in requests]
    same = sum(a.completions == b.completions for a, b in zip(alone, together, strict=True))
    assert same >= 7  # floating-point noise may move a draw that falls on a boundary


async def test_seeds_and_indices_give_different_texts(engine: TransformersModel) -> None:
    first, second = await asyncio.gather(
        *(engine.complete(ask("Write a sentence.", max_tokens=12, temperature=1.0, n=3, seed=s)) for s in (1, 2))
    )
    assert len({c.text for c in first.completions + second.completions}) == 6


async def test_schema_holds_at_temperature_one(engine: TransformersModel) -> None:
    schema = {
        "type": "object",
        "properties": {
            "steps": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 2},
            "score": {"type": "integer", "minimum": 0, "maximum": 10},
            "solution": {"enum": ["A", "B"]},
        },
        "required": ["steps", "score", "solution"],
        "additionalProperties": False,
    }
    reply = await engine.complete(ask("Grade this.", max_tokens=80, temperature=1.0, n=8, json_schema=schema))
    for completion in reply.completions:
        assert completion.finish_reason == "stop"
        jsonschema.validate(json.loads(completion.text), schema)


async def test_a_schema_may_be_that_of_a_bare_number(engine: TransformersModel) -> None:
    """Points in digits, as a reward model is held to."""
    reply = await engine.complete(
        ask("Score: ", max_tokens=16, temperature=1.0, n=8, json_schema={"type": "integer", "minimum": 0, "maximum": 5})
    )
    assert all(re.fullmatch("[0-5]", completion.text) for completion in reply.completions)
    assert {completion.finish_reason for completion in reply.completions} == {"stop"}


async def test_log_probabilities_under_a_schema_are_those_among_what_it_allows(compared: Compared) -> None:
    """Against every token of the vocabulary, tried one by one as what comes next."""
    import torch

    engine, weights, tokenizer = compared
    # Where one text alone is left, of the many ways to spell it in a short vocabulary the grammar allows one.
    options = ['"apple"', '"apricot"', '"plum"'] if len(tokenizer) > TOKENS else ['"a"', '"k"', '"x"']
    request = ask(
        *("Choose a fruit.",), max_tokens=9, temperature=0.8, n=3, token_ids=True, logprobs=True,
        json_schema={"enum": [json.loads(option) for option in options]},
    )  # fmt: skip
    reply = await engine.complete(request)
    texts = tokenizer.batch_decode([[token] for token in range(weights.config.vocab_size)])
    parts = {token: text for token, text in enumerate(texts) if text and any(text in option for option in options)}
    for completion in reply.completions:
        ids, expected = list(completion.token_ids or ()), []
        with torch.no_grad():
            logits = weights(torch.tensor([[*reply.prompt_ids, *ids]])).logits[0, len(reply.prompt_ids) - 1 : -1]
        for count, row in enumerate(logits.double().numpy()):
            said = tokenizer.decode(ids[:count])
            allowed = [any(o.startswith(said + parts.get(token, "\0")) for o in options) for token in range(len(texts))]
            row[[not one for one in allowed]] = -np.inf
            expected.append(np.log(distribution(row, request.sampling)[ids[count]]))
        assert completion.text in options
        assert completion.logprobs == pytest.approx(expected, abs=1e-3)


async def test_schema_that_cannot_be_enforced_is_rejected_as_data(engine: TransformersModel) -> None:
    reply = await engine.complete(ask("Go.", max_tokens=4, json_schema={"type": "no such type"}))
    assert reply.completions[0].finish_reason == "rejected"
    assert "schema" in (reply.error or "")


async def test_completion_ends_where_the_context_does(served: ModelConfig) -> None:
    model = dataclasses.replace(served, context_length=40)
    short = await make_config("engine", "transformers", max_batch_size=2).open(model)
    try:
        reply = await short.complete(ask("Count to a hundred.", max_tokens=500, temperature=0.0))
        assert reply.completions[0].finish_reason == "length"
        assert reply.prompt_tokens + reply.completions[0].tokens == 40
    finally:
        await short.close()


@pytest.mark.nightly
async def test_a_long_batch_does_not_block_the_event_loop(engine: TransformersModel) -> None:
    requests = [ask("Tell a story. " * 30 + str(i), max_tokens=24, temperature=1.0, seed=i) for i in range(16)]
    work = asyncio.gather(*(engine.complete(r) for r in requests))
    turns = 0
    while not work.done():
        await asyncio.sleep(0.001)
        turns += 1
    await work
    assert turns > 2 * 24  # blocked for the whole batch, the loop would have one; for a step at a time, one a step


async def test_cancelling_frees_the_row(served: ModelConfig) -> None:
    model = await make_config("engine", "transformers", max_batch_size=1).open(served)
    try:
        doomed = asyncio.create_task(model.complete(ENDLESS))
        waiting = asyncio.create_task(model.complete(ask("Hello.", max_tokens=2)))
        finished, _ = await asyncio.wait({waiting}, timeout=0.2)
        assert not finished  # the one row of this engine is taken, for minutes
        doomed.cancel()
        reply = await asyncio.wait_for(waiting, timeout=120)
        assert reply.completions[0].tokens >= 1
    finally:
        await model.close()


async def test_close_ends_calls_in_flight_and_the_worker(served: ModelConfig) -> None:
    model = await make_config("engine", "transformers", max_batch_size=1).open(served)
    call = asyncio.create_task(model.complete(ENDLESS))
    await asyncio.wait({call}, timeout=0.2)
    await model.close()
    with pytest.raises(EngineError, match="closed"):
        await call
    with pytest.raises(EngineError, match="closed"):
        await model.complete(ask("Hello."))
    assert not model._worker.is_alive()


@pytest.mark.nightly
@pytest.mark.parametrize("most", [4, 1])
async def test_after_a_lack_of_memory_fewer_completions_are_decoded_together(
    most: int, served: ModelConfig, engine: TransformersModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from evorun.models.transformers.kv_cache import RowCache

    requests = [ask(f"Count to {number}.", seed=number, n=2, max_tokens=9) for number in range(4)]
    expected = [await engine.complete(request) for request in requests]
    forward = RowCache.forward

    def forward_of_few(self: Any, model: Any, tokens: list[int], device: Any) -> Any:
        if len(tokens) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        return forward(self, model, tokens, device)

    monkeypatch.setattr(RowCache, "forward", forward_of_few)
    model = await make_config("engine", "transformers", max_batch_size=8).open(served)
    try:
        replies = await asyncio.gather(*(model.complete(request) for request in requests), return_exceptions=True)
    finally:
        await model.close()
    if most == 4:  # half of the completions fit
        assert [texts(reply) for reply in replies] == [texts(reply) for reply in expected]
    else:  # the second lack is the user's to mend
        assert all(
            re.search(r"ran out of memory: 20 MiB more .* weights .* lower engine.max_batch_size", str(reply))
            for reply in replies
        )


def texts(reply: Any) -> list[str]:
    return [completion.text for completion in reply.completions]


async def test_missing_weights_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(EngineError, match="cannot load it") as caught:
        await make_config("engine", "transformers").open(ModelConfig(name="empty", id=str(tmp_path)))
    assert "\n" not in str(caught.value)


async def test_a_failed_open_keeps_no_weights(served: ModelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[weakref.ref[Any]] = []

    def fail(weights: Any) -> None:
        loaded.append(weakref.ref(weights))
        try:
            raise ValueError("no such attention")
        except ValueError as error:
            raise EngineError("cannot serve this model") from error

    monkeypatch.setattr("evorun.models.transformers.kv_cache.use_grouped_attention", fail)
    with pytest.raises(EngineError, match=r"^cannot serve this model$") as caught:
        await make_config("engine", "transformers").open(served)
    assert [ref() for ref in loaded] == [None]  # although the error, and what it refers to, is still there
    assert caught.value is not None


async def test_cuda_without_a_gpu_is_one_line(served: ModelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(EngineError, match="no GPU"):
        await make_config("engine", "transformers", device="cuda").open(served)


@pytest.mark.parametrize(
    "setting", [{"device": "tpu"}, {"max_batch_size": 0}, {"threads": 0}, {"prefix_cache_tokens": -1}]
)
def test_bad_settings_name_the_key(setting: dict[str, Any]) -> None:
    (key,) = setting
    with pytest.raises(ConfigError, match=f"engine.{key}"):
        make_config("engine", "transformers", **setting)


async def test_five_turns_are_trained_on_as_they_were_drawn(
    engine: TransformersModel, weights: Any, tokenizer: Any
) -> None:
    await check_turns(engine, tokenizer, scorer(weights), Sampling(temperature=1.2, max_tokens=4))


async def test_it_is_an_engine(engine: TransformersModel, weights: Any, tokenizer: Any) -> None:
    """Last in this file: it closes the engine."""

    async def opened() -> TransformersModel:
        return engine

    await check_engine(opened, decoder(tokenizer), scorer(weights))
