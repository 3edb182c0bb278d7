"""Confidences: the engines' numbers against a plain forward pass, the measures against their definitions."""

import asyncio
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hostile_server as hostile
from building import make_config
from evorun.errors import ConfigError
from evorun.models.base import Completion, Confidence, Request, Sampling
from evorun.models.confidence import (
    WindowMonitor,
    confidence_fields,
    find_end,
    measure,
    read_confidences,
    token_confidence,
)
from evorun.models.config import ModelConfig
from evorun.models.encoding import encode_request
from evorun.testing.engines import VERDICT_SCHEMA, ask
from forward_pass import plain_confidences, plain_model
from hostile_server import ChatServer
from server_engine import opened
from tiny_llama import write_talking_llama

TOKENS = Confidence(tokens=True)


def values_of(numbers: list[float]) -> Any:
    return np.array(numbers, np.float16)


def completion_of(numbers: list[float]) -> Completion:
    fields = confidence_fields(numbers, TOKENS)
    return Completion(text="", finish_reason="stop", tokens=len(numbers), **fields)


numbers = st.lists(st.floats(0, 40, width=16), min_size=1, max_size=60)


@given(numbers, st.integers(1, 20), st.sampled_from([0.01, 0.1, 0.5, 1.0]))
def test_measures_follow_their_definitions(given_numbers: list[float], window: int, share: float) -> None:
    values = read_confidences(msgspec.json.decode(msgspec.json.encode(completion_of(given_numbers)), type=Completion))
    assert values is not None
    assert values.tolist() == given_numbers
    starts = range(max(1, len(given_numbers) - window + 1))
    windows = sorted(np.mean(given_numbers[start : start + window]) for start in starts)
    lowest = windows[: max(1, int(len(windows) * share))]
    assert measure(values, "mean") == pytest.approx(np.mean(given_numbers))
    assert measure(values, "tail", tail=window) == pytest.approx(np.mean(given_numbers[-window:]))
    assert measure(values, "min_window", window=window) == pytest.approx(windows[0])
    assert measure(values, "bottom_window", window=window, bottom=share) == pytest.approx(np.mean(lowest))


@given(numbers, st.integers(1, 20))
def test_a_threshold_ends_at_the_same_token_whoever_looks(given_numbers: list[float], window: int) -> None:
    # A threshold that a window meets exactly: a rounded sum would end some completions one way only.
    minimum = measure(values_of(given_numbers), "min_window", window=window)
    for threshold in (minimum, np.nextafter(minimum, np.inf), minimum + 1):
        asked = Confidence(window=window, minimum=float(threshold))
        monitor = WindowMonitor(asked)
        ends = [place for place, number in enumerate(given_numbers, 1) if monitor.add(number)]
        assert find_end(values_of(given_numbers), asked) == (ends[0] if ends else None)
        assert bool(ends) == (threshold > minimum and len(given_numbers) >= window)


def test_digests_change_only_where_confidences_are_asked_for() -> None:
    def digested(**settings: Any) -> bytes:
        asked = {"confidence": Confidence(**settings)} if settings else {}
        return encode_request("m", Request(messages=(), sampling=Sampling(**asked)))

    before = (
        b'{"model":"m","messages":[],"sampling":{"temperature":1.0,"top_p":1.0,"max_tokens":1024,"stop":[],"n":1},'
        b'"seed":0,"json_schema":null}'
    )
    assert digested() == before
    settings: list[dict[str, Any]] = [{"top": 20}, {"top": 5}, {"tokens": True}, {"window": 8}, {"minimum": 3.0}]
    assert len({before, *(digested(**given) for given in settings)}) == 1 + len(settings)


def test_a_threshold_is_for_one_completion() -> None:
    with pytest.raises(ValueError, match="n=1"):
        Sampling(n=2, confidence=Confidence(minimum=1.0))


def test_a_long_completion_takes_less_than_three_bytes_per_token() -> None:
    encoded = msgspec.json.encode(completion_of(np.random.default_rng(0).uniform(5, 25, 32_000).tolist()))
    assert len(encoded) < 3 * 32_000
    assert len(msgspec.json.encode(msgspec.structs.replace(completion_of([1.0]), token_confidences=None))) < 100


WINDOWED = Confidence(top=5, window=4, minimum=1e4)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    folder = write_talking_llama(tmp_path_factory.mktemp("model"))
    return ModelConfig(name="talking", id=str(folder), dtype="float32", context_length=2048)


@pytest.fixture(scope="module")
def replies(served: ModelConfig) -> Any:
    confident = [
        ask("Name a colour.", max_tokens=30, temperature=0.7, top_p=0.6, n=3, token_ids=True, confidence=TOKENS),
        ask("And a fruit?", max_tokens=12, temperature=0.0, token_ids=True, confidence=Confidence(top=5)),
        ask("No confidence.", max_tokens=12, token_ids=True),
    ]

    async def drawn() -> Any:
        engine = await make_config("engine", "transformers", max_batch_size=16).open(served)
        try:
            # Together, so that rows with and without confidences, and with others' numbers, share a batch.
            first = await asyncio.gather(*(engine.complete(request) for request in confident))
            ended = msgspec.structs.replace(confident[1].sampling, confidence=WINDOWED)
            schema = msgspec.structs.replace(confident[0], json_schema=VERDICT_SCHEMA)
            cut = msgspec.structs.replace(confident[1], sampling=ended)
            return *first, await engine.complete(cut), await engine.complete(schema)
        finally:
            await engine.close()

    return asyncio.run(drawn())


class TestTransformers:
    @pytest.mark.nightly
    def test_they_are_those_of_a_plain_forward_pass(self, served: ModelConfig, replies: Any) -> None:
        model = plain_model(served.id)  # type: ignore[arg-type]
        sampled, greedy, without, _, _ = replies
        assert without.completions[0].confidence is None
        for reply, top in ((sampled, 20), (greedy, 5)):
            for completion in reply.completions:
                expected = plain_confidences(model, reply.prompt_ids, completion.token_ids, top)
                assert completion.confidence == pytest.approx(expected.mean(), rel=1e-3)
                found = read_confidences(completion)
                assert (found is not None) == (top == 20)
                if found is not None:
                    np.testing.assert_allclose(found, expected, rtol=2e-3)

    def test_a_threshold_ends_the_completion_in_the_engine(self, replies: Any) -> None:
        _, greedy, _, ended, _ = replies
        [whole], [cut] = greedy.completions, ended.completions
        assert (cut.finish_reason, cut.tokens) == ("low_confidence", WINDOWED.window)
        assert cut.truncated
        assert cut.token_ids == whole.token_ids[: cut.tokens]
        assert whole.text.startswith(cut.text)

    def test_what_a_schema_forbids_does_not_count(self, replies: Any) -> None:
        for completion in replies[-1].completions:
            assert np.isfinite(read_confidences(completion)).all()
            assert 0 < completion.confidence < 100


def test_forbidden_tokens_are_left_out() -> None:
    assert token_confidence([-1.0, -3.0, -np.inf, -9999.0]) == 2.0
    assert token_confidence([-np.inf]) == 0.0


class TestServer:
    LOGPROBS: ClassVar = {
        "content": [{"token": "a", "logprob": -9, "top_logprobs": [{"logprob": -i} for i in (1, 2, 3, 4)]}] * 2
    }

    async def reply(self, asked: Confidence, logprobs: Any = None) -> Any:
        message = {"role": "assistant", "content": "fine"}
        answer = {"choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": logprobs}]}
        async with ChatServer(fault=hostile.body(msgspec.json.encode(answer))) as server, opened(server) as engine:
            return await engine.complete(ask("Hello.", confidence=asked)), server

    async def test_they_are_reduced_as_they_arrive(self) -> None:
        reply, server = await self.reply(Confidence(top=3, tokens=True), logprobs=self.LOGPROBS)
        [completion] = reply.completions
        assert read_confidences(completion).tolist() == [2.0, 2.0]
        assert completion.confidence == 2.0
        assert b"logprob" not in msgspec.json.encode(reply)
        body = server.seen[-1].body
        assert (body["logprobs"], body["top_logprobs"]) == (True, 3)

    @pytest.mark.parametrize("logprobs", [None, {}, {"content": None}, {"content": [3]}, LOGPROBS])
    async def test_too_few_are_refused_in_one_line(self, logprobs: Any) -> None:
        reply, _ = await self.reply(Confidence(top=5), logprobs=logprobs)
        assert reply.completions[0].finish_reason == "rejected"
        assert "log-probabilities of the 5 likeliest tokens" in reply.error

    async def test_no_server_ends_a_completion(self) -> None:
        reply, _ = await self.reply(WINDOWED)
        assert "cannot end a completion" in reply.error


def test_engines_that_cannot_say_so_at_once() -> None:
    with pytest.raises(ConfigError, match="engine=tinker: gives no log-probabilities"):
        make_config("engine", "tinker").for_confidence(ends_early=False)
    server = make_config("engine", "server")
    assert server.for_confidence(ends_early=False) == server
    with pytest.raises(ConfigError, match="engine=server: cannot end a completion"):
        server.for_confidence(ends_early=True)
    vllm = make_config("engine", "vllm")
    model = ModelConfig(name="m", id="m")
    assert vllm.engine_arguments(model, "m")["logprobs_mode"] == "processed_logprobs"
    assert vllm.for_confidence(ends_early=True).engine_arguments(model, "m")["logprobs_mode"] == "raw_logprobs"
    with pytest.raises(ConfigError, match=r"engine\.logprobs: expected raw"):
        make_config("engine", "vllm", logprobs="processed").for_confidence(ends_early=False)
