"""The server engine against a faithful and a hostile chat-completions server, over real sockets on loopback."""

import asyncio
import json
import logging
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hostile_server as hostile
from building import make_config
from evorun.errors import ConfigError, EngineError
from evorun.models.adapters import read_adapter
from evorun.models.base import LanguageModel, Message, Reply, Request, Sampling
from evorun.models.server.pool import RATE_LIMITS_BEFORE_HOLD
from evorun.models.server.retry import RetryPolicy, parse_retry_after
from evorun.testing import check_engine
from evorun.testing.engines import VERDICT_SCHEMA, ask, decoder
from forward_pass import plain_model, scorer
from hostile_server import ChatServer
from server_engine import KEY, REQUEST, closed_port, one_line_of, opened, until
from tiny_llama import write_tiny_llama
from token_server import MadeUp, OfModel, write_byte_tokenizer
from token_turns import check_turns


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_byte_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@asynccontextmanager
async def serving(
    tokenizer: Path, answers: MadeUp | None = None, **options: Any
) -> AsyncIterator[tuple[ChatServer, Any]]:
    """Serve with token ids, under the name of the tokenizer's folder, as `vllm serve FOLDER` would."""
    server = ChatServer(answer=answers or MadeUp(tokenizer), name=str(tokenizer))
    async with server, opened(server, model={"id": server.name}, **options) as engine:
        yield server, engine


async def test_it_is_an_engine(tokenizer: Path) -> None:
    async with serving(tokenizer) as (_, engine):

        async def open_engine() -> LanguageModel:
            return engine

        await check_engine(open_engine, decoder(MadeUp(tokenizer).tokenizer))


class Careless:
    """An engine that overlooks a part of each request."""

    def __init__(self, engine: LanguageModel, **overlooked: Any) -> None:
        self.name = engine.name
        self._engine = engine
        self._overlooked = overlooked

    async def complete(self, request: Request) -> Reply:
        own = {key: value for key, value in self._overlooked.items() if key in Request.__struct_fields__}
        of_sampling = {key: value for key, value in self._overlooked.items() if key not in own}
        sampling = msgspec.structs.replace(request.sampling, **of_sampling)
        return await self._engine.complete(msgspec.structs.replace(request, sampling=sampling, **own))

    async def close(self) -> None:
        await self._engine.close()


async def test_log_probabilities_that_are_made_up_fail(tokenizer: Path) -> None:
    async with serving(tokenizer) as (_, engine):

        async def open_engine() -> LanguageModel:
            return engine

        with pytest.raises(AssertionError, match=r"log-probability of token \d+: expected -0.5, found -"):
            await check_engine(open_engine, score=lambda prompt, tokens, sampling: [-0.5] * len(tokens))


@pytest.mark.parametrize(
    ("overlooked", "message"),
    [
        ({"n": 1}, "completions with n=3: expected 3, found 1"),
        ({"max_tokens": 5}, "a completion that max_tokens=3 cuts"),
        ({"token_ids": False}, "token ids of a completion"),
        ({"token_ids": True}, "token ids that nobody asked for"),
        ({"stop": ()}, "the text before the stop string"),
    ],
)
async def test_an_engine_that_overlooks_something_fails(
    tokenizer: Path, overlooked: dict[str, Any], message: str
) -> None:
    async with serving(tokenizer) as (_, engine):

        async def open_engine() -> LanguageModel:
            return Careless(engine, **overlooked)

        with pytest.raises(AssertionError, match=message):
            await check_engine(open_engine)


# --- token ids ----------------------------------------------------------------------------------------------------


LEARNED = ask("Hello.", max_tokens=8, token_ids=True, logprobs=True)


async def test_prompts_to_learn_from_go_out_as_token_ids_once_the_server_is_known_to_have_the_same(
    tokenizer: Path,
) -> None:
    answers = MadeUp(tokenizer)
    async with serving(tokenizer, answers) as (server, engine):
        replies = await asyncio.gather(*(engine.complete(LEARNED) for _ in range(3)))
    prompt = answers.rendered(list(LEARNED.messages))
    assert [reply.prompt_ids for reply in replies] == [tuple(prompt)] * 3
    assert [sorted(seen.body.keys() & {"messages", "prompt"}) for seen in server.seen] == [
        ["messages"],
        *[["prompt"]] * 4,
    ]
    assert server.seen[-1].body == {
        **{"model": str(tokenizer), "prompt": prompt, "temperature": 1.0, "top_p": 1.0, "max_tokens": 8, "seed": 0},
        **{"return_token_ids": True, "logprobs": 0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
    }
    [completion] = replies[0].completions
    assert completion.token_ids == tuple(answers.drawn[-1])
    assert len(completion.logprobs or ()) == 8


@pytest.mark.parametrize(
    ("gives", "missing"), [((), "no token ids"), (("logprobs",), "no token ids"), (("token_ids",), "no log-prob")]
)
async def test_a_server_without_what_learning_takes_is_refused_at_the_first_call(
    tokenizer: Path, gives: tuple[str, ...], missing: str
) -> None:
    async with serving(tokenizer, MadeUp(tokenizer, gives=gives)) as (server, engine):
        with pytest.raises(EngineError, match=f"this server returns {missing}.*, which learning .* needs?") as caught:
            await engine.complete(LEARNED)
        assert "`vllm serve`" in one_line_of(caught)
        assert len(server.seen) <= 2
        assert (await engine.complete(REQUEST)).error is None


async def test_a_server_without_the_endpoint_is_refused_at_the_first_call(tokenizer: Path) -> None:
    async with serving(tokenizer) as (server, engine):
        server.fault = hostile.status(400)
        with pytest.raises(EngineError, match=r"gives no completions to learn from \(HTTP 400: made to fail\)"):
            await engine.complete(LEARNED)


async def test_a_server_with_another_chat_template_is_refused_at_the_first_call(tokenizer: Path) -> None:
    answers = MadeUp(tokenizer)
    answers.tokenizer.chat_template = answers.tokenizer.chat_template.replace("<|im_start|>", "<|im_start|> ")
    async with serving(tokenizer, answers) as (_, engine):
        with pytest.raises(EngineError, match=r"other tokens of a prompt \(\d+\) than the tokenizer and chat template"):
            await engine.complete(LEARNED)


@pytest.mark.parametrize("sampling", [{"temperature": 0.7}, {"top_p": 0.9}, {"json_schema": VERDICT_SCHEMA}])
async def test_log_probabilities_of_another_distribution_than_that_drawn_from_are_refused(
    tokenizer: Path, sampling: dict[str, Any]
) -> None:
    changed = ask("Hello.", max_tokens=8, token_ids=True, logprobs=True, **sampling)
    async with serving(tokenizer, MadeUp(tokenizer, processed=False)) as (_, engine):
        assert (await engine.complete(LEARNED)).completions[0].logprobs
        with pytest.raises(EngineError, match="start it with --logprobs-mode processed_logprobs"):
            await engine.complete(changed)
    async with serving(tokenizer) as (_, engine):
        assert (await engine.complete(changed)).completions[0].logprobs


async def test_a_next_turn_goes_on_from_token_ids(tokenizer: Path) -> None:
    answers = MadeUp(tokenizer)
    async with serving(tokenizer, answers) as (_, engine):
        first = await engine.complete(LEARNED)
        seen = (*first.prompt_ids, *(ord(letter) for letter in "abc"))
        turns = (Message(role="assistant", content="Another text."), Message(role="tool", content="4"))
        messages = (*LEARNED.messages, *turns)
        reply = await engine.complete(msgspec.structs.replace(LEARNED, messages=messages, seen=seen))
    assert reply.prompt_ids == tuple(answers.prompts[-1])
    assert reply.prompt_ids[: len(seen)] == seen
    added = answers.tokenizer.decode(reply.prompt_ids[len(seen) :])
    assert added == "<|im_end|>\n<|im_start|>tool\n4<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.embedded
async def test_five_turns_are_trained_on_as_the_server_saw_and_drew_them(tmp_path: Path) -> None:
    folder = write_tiny_llama(tmp_path)
    answers = OfModel(folder)
    async with serving(folder, answers) as (_, engine):
        sampling, score = Sampling(temperature=0.8, max_tokens=6), scorer(plain_model(folder))
        episodes = await check_turns(engine, answers.tokenizer, score, sampling, "A colour", "A fruit")
    turns = [reply for episode in episodes for reply in episode.replies]
    assert {(reply.prompt_ids, reply.completions[0].token_ids) for reply in turns} == {
        (tuple(prompt), tuple(drawn)) for prompt, drawn in zip(answers.prompts[1:], answers.drawn[1:], strict=True)
    }


async def test_a_control_of_token_ids_differs_in_these_alone(tokenizer: Path) -> None:
    async with serving(tokenizer, max_retries=0) as (server, engine):
        await engine.complete(LEARNED)
        answered = len(server.seen)
        server.fault = hostile.status(500)
        with pytest.raises(EngineError, match="made to fail"):
            await engine.complete(LEARNED)
    asked, _, control, *_ = (seen.body for seen in server.seen[answered:])
    assert control == {**asked, "prompt": asked["prompt"][: len(control["prompt"])]}
    assert len(control["prompt"]) < len(asked["prompt"])


async def test_token_ids_that_nobody_asked_for_are_not_recorded() -> None:
    answer = {"message": {"content": "fine"}, "token_ids": [1, 2]}
    fault = hostile.body(json.dumps({"choices": [answer]}).encode())
    async with ChatServer(fault=fault) as server, opened(server) as engine:
        assert (await engine.complete(REQUEST)).completions[0].token_ids is None


# --- adapters -----------------------------------------------------------------------------------------------------


@pytest.fixture
def adapters(tmp_path: Path) -> list[Path]:
    """Three folders that a server takes for adapters."""
    folders = [tmp_path / name for name in "abc"]
    for rank, folder in enumerate(folders, 1):
        folder.mkdir()
        (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank}))
        (folder / "adapter_model.safetensors").write_bytes(b"weights")
    return folders


def names(server: ChatServer) -> list[str]:
    """Return the names of models that requests asked for."""
    return [seen.body["model"] for seen in server.seen]


async def test_every_server_loads_the_models_adapter_and_requests_name_it(adapters: list[Path]) -> None:
    model = {"adapter": str(adapters[0])}
    async with ChatServer() as one, ChatServer() as two, opened(one, two, model=model) as engine:
        await asyncio.gather(*(engine.complete(REQUEST) for _ in range(4)))
    digest = read_adapter(adapters[0]).digest
    assert engine.name == f"fake+adapter:{digest}"
    assert one.adapters == two.adapters == {f"evorun-{digest}": str(adapters[0])}
    assert names(one) + names(two) == [f"evorun-{digest}"] * (4 + 2)  # and a control each


async def test_an_adapter_that_is_loaded_already_is_the_same(adapters: list[Path]) -> None:
    async with ChatServer() as server:
        for _ in range(2):
            async with opened(server, model={"adapter": str(adapters[0])}) as engine:
                assert (await engine.complete(REQUEST)).error is None
    assert len(server.adapters) == 1


@pytest.mark.parametrize("code", [404, 500])
async def test_a_server_that_loads_no_adapters_is_one_line_that_says_how_to_start_it(
    code: int, adapters: list[Path]
) -> None:
    refuse = hostile.status(code)
    async with ChatServer(adapter_fault=refuse) as server:
        with pytest.raises(EngineError, match="does not load adapter") as error:
            async with opened(server, model={"adapter": str(adapters[2])}):
                pass
    message = one_line_of(error)
    assert f"HTTP {code}: made to fail" in message
    start = "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve fake --enable-lora --max-loras 2 --max-lora-rank 8"
    assert start in message
    assert str(adapters[2]) in message


async def test_adapters_of_stacked_experts_are_announced_as_such(adapters: list[Path]) -> None:
    settings = {"peft_type": "LORA", "r": 4, "target_parameters": ["mlp.experts.gate_up_proj"]}
    (adapters[0] / "adapter_config.json").write_text(json.dumps(settings))
    async with ChatServer() as server, opened(server) as engine:
        view = await engine.with_adapter(adapters[0], "policy@1")
        assert (await view.complete(REQUEST)).error is None
        server.adapter_fault = hostile.status(500)
        (adapters[1] / "adapter_config.json").write_text(json.dumps({**settings, "r": 5}))
        with pytest.raises(EngineError, match=r"--max-lora-rank 8 --enable-mixed-moe-lora-format`$"):
            await engine.with_adapter(adapters[1], "policy@2")


async def test_a_server_out_of_reach_for_a_moment_is_asked_again(adapters: list[Path]) -> None:
    async with ChatServer() as server, opened(server) as engine:
        server.adapter_fault = hostile.cut_before_answer
        asked = asyncio.create_task(engine.with_adapter(adapters[0], "policy@1"))
        await until(lambda: server.adapter_requests >= 1)
        server.adapter_fault = None
        assert (await (await asked).complete(REQUEST)).error is None


async def test_a_dead_server_of_two_ends_no_run_at_an_adapter_load(adapters: list[Path]) -> None:
    async with ChatServer() as stays, ChatServer() as dies, opened(stays, dies, max_retries=1) as engine:
        await asyncio.gather(*(engine.complete(REQUEST) for _ in range(4)))
        await dies._runner.cleanup()
        view = await engine.with_adapter(adapters[0], "policy@1")
        # Started anew without the adapter, it may get no call before it has loaded it.
        async with ChatServer(port=dies.port) as anew:
            replies = await asyncio.gather(*(view.complete(REQUEST) for _ in range(8)))
            assert all(reply.error is None for reply in replies)
            assert not any("http_404" in (reply.wasted or {}) for reply in replies)
            await until(lambda: anew.seen)  # taken back
            assert list(anew.adapters.values()) == [str(adapters[0])]
    assert len(stays.adapters) == 1


async def test_a_server_started_anew_gets_the_adapters_before_any_call(adapters: list[Path]) -> None:
    async with ChatServer() as server, opened(server, max_outage="30") as engine:
        views = [await engine.with_adapter(folder, f"policy@{step}") for step, folder in enumerate(adapters[:2])]
        assert (await views[1].complete(REQUEST)).error is None
        await server._runner.cleanup()
        asked = asyncio.create_task(views[1].complete(REQUEST))
        await asyncio.sleep(0)
        async with ChatServer(port=server.port) as anew:
            assert (await asked).error is None
            assert (await views[0].complete(REQUEST)).error is None
            # The present step's first.
            assert list(anew.adapters.values()) == [str(adapters[1]), str(adapters[0])]
            assert set(names(anew)) == set(anew.adapters)


@pytest.mark.parametrize("held", [2, 3])
async def test_views_are_under_their_adapters_and_the_model_is_as_before(held: int, adapters: list[Path]) -> None:
    async with ChatServer() as server, opened(server, held_adapters=held) as engine:
        before = await engine.complete(REQUEST)
        texts = set()
        for step, folder in enumerate(adapters):
            view = await engine.with_adapter(folder, f"policy@{step}")
            assert view.name == f"policy@{step}"
            texts.add((await view.complete(REQUEST)).completions[0].text)
            assert (await engine.complete(REQUEST)).completions == before.completions
            # The newest and the one or two before; those of earlier steps are unloaded.
            assert list(server.adapters.values()) == [str(f) for f in adapters[max(0, step + 1 - held) : step + 1]]
        await view.close()
        assert (await view.complete(REQUEST)).error is None
    assert len(texts | {before.completions[0].text}) == 4


async def test_the_same_adapter_again_stays(adapters: list[Path]) -> None:
    async with ChatServer() as server, opened(server) as engine:
        for step, which in enumerate((0, 1, 0, 1, 0)):
            view = await engine.with_adapter(adapters[which], f"policy@{step}")
            assert (await view.complete(REQUEST)).error is None


async def test_sglang_loads_adapters_beside_v1_and_is_asked_for_them_after_a_colon(adapters: list[Path]) -> None:
    async with ChatServer(sglang=True) as server, opened(server) as engine:
        for step, folder in enumerate(adapters):
            view = await engine.with_adapter(folder, f"policy@{step}")
            assert (await view.complete(REQUEST)).error is None
        assert list(server.adapters.values()) == [str(adapters[1]), str(adapters[2])]
    assert names(server) == [f"fake:{read_adapter(folder).served_name}" for folder in adapters]
    async with ChatServer(sglang=True) as server:
        for _ in range(2):  # the second time it is loaded already
            async with opened(server, model={"adapter": str(adapters[0])}) as engine:
                assert (await engine.complete(REQUEST)).error is None
    assert names(server) == [f"fake:{read_adapter(adapters[0]).served_name}"] * 2


async def test_what_sglang_does_not_load_is_one_line_that_says_how_to_start_it(adapters: list[Path]) -> None:
    refuse = hostile.status(400, '{"success": false, "error_message": "LoRA is not enabled."}')
    async with ChatServer(sglang=True, adapter_fault=refuse) as server, opened(server) as engine:
        with pytest.raises(EngineError, match="LoRA is not enabled") as error:
            await engine.with_adapter(adapters[2], "policy@0")
    assert "sglang.launch_server --model-path fake --enable-lora --max-lora-rank 8" in one_line_of(error)


async def test_adapters_on_servers_of_two_kinds_or_under_an_id_with_a_colon_are_refused(adapters: list[Path]) -> None:
    async with ChatServer(sglang=True) as one, ChatServer() as two, opened(one, two) as engine:
        with pytest.raises(EngineError, match="servers of one kind"):
            await engine.with_adapter(adapters[0], "policy@0")
    async with ChatServer(sglang=True) as server, opened(server, model={"id": "org/model:free"}) as engine:
        with pytest.raises(EngineError, match=r"model\.id: 'org/model:free' has a colon"):
            await engine.with_adapter(adapters[0], "policy@0")


async def test_no_adapter_on_top_of_another(adapters: list[Path]) -> None:
    async with ChatServer() as server, opened(server, model={"adapter": str(adapters[0])}) as engine:
        with pytest.raises(EngineError, match=r"model\.adapter=null"):
            await engine.with_adapter(adapters[1], "policy@1")


# --- faults that go away -------------------------------------------------------------------------------------------

DEEP = b"[" * 100_000 + b"]" * 100_000

PASSING = {
    "500": hostile.status(500),
    "503": hostile.status(503),
    "429": hostile.status(429),
    "408": hostile.status(408),
    "409": hostile.status(409),
    "reset": hostile.cut_before_answer,
    "cut mid-body": hostile.cut_mid_body,
    "not HTTP": hostile.raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),
    "not JSON": hostile.body(b"<html>busy</html>"),
    "empty": hostile.body(b""),
    "not UTF-8": hostile.body(b'{"choices": [{"message": {"content": "\xff\xfe"}}]}'),
    "array": hostile.body(b"[]"),
    "no choices": hostile.body(b'{"object": "chat.completion"}'),
    "empty choices": hostile.body(b'{"choices": []}'),
    "error with status 200": hostile.body(b'{"error": {"message": "upstream is gone", "code": 502}}'),
    "broken off": hostile.completion(finish_reason="abort"),
    "negative usage": hostile.completion(usage={"prompt_tokens": -1, "completion_tokens": 2}),
    "usage of 4,000 digits": hostile.completion(usage={"prompt_tokens": 3, "completion_tokens": 10**4_000 - 1}),
    "usage of 5,000 digits": hostile.body(b'{"choices": [], "usage": {"prompt_tokens": %s}}' % (b"9" * 5_000)),
    "usage that is no number": hostile.completion(usage={"prompt_tokens": 3, "completion_tokens": float("nan")}),
    "endless number": hostile.body(b'{"choices": [{"index": 1e999, "message": {"content": "fine"}}]}'),
    "deep JSON": hostile.body(b'{"choices": [{"message": {"content": "fine"}}], "more": %s}' % DEEP),
    "deep JSON in an error": hostile.status(500, f'{{"error": {DEEP.decode()}}}'),
    "huge": hostile.huge,
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING.keys())
async def test_a_passing_fault_is_retried(fault: hostile.Fault) -> None:
    async with ChatServer(faults=deque([fault])) as server, opened(server) as engine:
        reply = await engine.complete(REQUEST)
    assert reply.completions[0].text
    assert reply.error is None
    assert len(server.seen) == 2


@pytest.mark.parametrize(
    "fault", [pytest.param(hostile.hang, marks=pytest.mark.nightly), hostile.drip], ids=["hang", "drip"]
)
async def test_no_complete_answer_in_time_is_retried_and_its_connection_closed(fault: hostile.Fault) -> None:
    async with ChatServer(faults=deque([fault])) as server, opened(server, timeout=2) as engine:
        reply = await engine.complete(REQUEST)
        await until(lambda: server.running == 0)
    assert reply.completions[0].text
    assert reply.seconds >= 2
    assert len(server.seen) == 2


async def test_an_endless_body_is_given_up_at_a_bound() -> None:
    async with ChatServer(fault=hostile.huge) as server, opened(server, max_retries=0, timeout=60.0) as engine:
        with pytest.raises(EngineError, match="more than 32 MiB"):
            await asyncio.wait_for(engine.complete(REQUEST), 20)
        await until(lambda: server.running == 0)


async def test_a_wrong_content_type_does_not_matter() -> None:
    answer = b'{"choices": [{"message": {"content": "fine"}}]}'
    async with ChatServer(fault=hostile.body(answer, "text/html")) as server, opened(server) as engine:
        assert (await engine.complete(REQUEST)).completions[0].text == "fine"


SURROGATES = {
    "lone": ("half \ud800 pair", "half ? pair"),
    "lone at the end": ("half \ud800", "half ?"),
    "second half alone": ("half \udc00 pair", "half ? pair"),
    "two first halves": ("\ud83d\ud83d\ude00", "?\U0001f600"),
    "whole pair": ("\U0001f600 and \ud800", "\U0001f600 and ?"),
    "escaped backslash": ("\\ud800 is no surrogate, \ud800 is", "\\ud800 is no surrogate, ? is"),
    "other escapes": ('"\n\\\t\u0001" \udfff', '"\n\\\t\u0001" ?'),
}


@pytest.mark.parametrize(("said", "text"), SURROGATES.values(), ids=SURROGATES.keys())
async def test_half_a_surrogate_pair_becomes_a_question_mark(said: str, text: str) -> None:
    async with ChatServer(fault=hostile.completion(text=said)) as server, opened(server) as engine:
        reply = await engine.complete(REQUEST)
    assert reply.completions[0].text == text
    assert len(server.seen) == 1
    assert msgspec.json.decode(msgspec.json.encode(reply))["completions"][0]["text"] == text


@pytest.mark.nightly
async def test_many_calls_through_many_faults() -> None:
    faults = deque(fault for kind in list(PASSING.values())[:-1] * 3 for fault in (kind, None, None))
    async with ChatServer(faults=faults) as server, opened(server, max_retries=20, concurrency=16) as engine:
        replies = await asyncio.gather(*(engine.complete(ask(f"Number {i}?", max_tokens=4)) for i in range(150)))
    assert all(reply.error is None and reply.completions[0].tokens == 4 for reply in replies)
    assert len(server.seen) >= 150 + 3 * (len(PASSING) - 1)  # and controls


async def test_after_an_outage_one_line_with_url_and_last_cause() -> None:
    fault = hostile.status(503, '{"error": {"message": "over\\nloaded"}}')
    async with ChatServer(fault=fault) as server, opened(server) as engine:
        with pytest.raises(EngineError) as error:
            await engine.complete(REQUEST)
    message = one_line_of(error)
    assert f"{server.url} unreachable" in message
    assert "HTTP 503: over loaded" in message
    assert sum(seen.body["messages"] == list(REQUEST.messages) for seen in server.seen) == 2


async def test_a_control_differs_from_its_request_in_the_texts_alone() -> None:
    request = ask("Which?", n=2, stop=("x",), json_schema=VERDICT_SCHEMA, temperature=0.5)
    async with ChatServer(fault=hostile.status(500)) as server, opened(server, max_retries=0) as engine:
        with pytest.raises(EngineError, match="made to fail"):
            await engine.complete(request)
    asked, _, control, *_ = (seen.body for seen in server.seen)
    assert asked.pop("n") == 2
    assert [message.pop("content") for message in control["messages"]] == ["Say 1."] * len(asked["messages"])
    for message in asked["messages"]:
        del message["content"]
    assert control == asked


# --- answers that retrying does not mend ---------------------------------------------------------------------------


@pytest.mark.parametrize("code", [400, 413, 422])
async def test_refused_requests_are_data(code: int) -> None:
    fault = hostile.status(code, '{"error": {"message": "prompt too long"}}')
    async with ChatServer(fault=fault) as server, opened(server) as engine:
        reply = await engine.complete(ask("Hello.", n=2))
    assert [c.finish_reason for c in reply.completions] == ["rejected", "rejected"]
    assert reply.error == f"HTTP {code}: prompt too long"
    assert len(server.seen) == 1


async def test_deep_json_in_a_refusal_is_a_text() -> None:
    async with ChatServer(fault=hostile.status(400, DEEP.decode())) as server, opened(server) as engine:
        assert str((await engine.complete(REQUEST)).error).startswith("HTTP 400: [[[[")


@pytest.mark.parametrize(
    ("code", "hint"),
    [(401, "EVORUN_TEST_KEY"), (403, "EVORUN_TEST_KEY"), (404, "model.id ('fake')"), (405, "engine.base_urls")],
)
async def test_answers_that_condemn_every_request(code: int, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVORUN_TEST_KEY", KEY)
    async with (
        ChatServer(fault=hostile.status(code)) as server,
        opened(server, api_key_env="EVORUN_TEST_KEY") as engine,
    ):
        with pytest.raises(EngineError) as error:
            await engine.complete(REQUEST)
    message = one_line_of(error)
    assert hint in message
    assert "made to fail" in message
    assert server.url in message
    assert len(server.seen) == 1


async def test_without_a_key_the_advice_names_the_config_field() -> None:
    async with ChatServer(fault=hostile.status(401)) as server, opened(server) as engine:
        with pytest.raises(EngineError, match=r"engine\.api_key_env"):
            await engine.complete(REQUEST)


@pytest.mark.parametrize("code", [301, 308])
async def test_redirects_are_not_followed_so_that_the_key_stays(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVORUN_TEST_KEY", KEY)
    async with ChatServer() as elsewhere:
        fault = hostile.status(code, Location=f"{elsewhere.url}/chat/completions?token={KEY}")
        async with ChatServer(fault=fault) as server, opened(server, api_key_env="EVORUN_TEST_KEY") as engine:
            with pytest.raises(EngineError) as error:
                await engine.complete(REQUEST)
    assert elsewhere.seen == []
    assert elsewhere.url in one_line_of(error)
    assert KEY not in str(error.value)


# --- Retry-After ---------------------------------------------------------------------------------------------------


@pytest.mark.nightly
async def test_retry_after_date_is_relative_to_the_servers_own_clock() -> None:
    dates = {"Date": "Sat, 01 Jan 2000 00:00:00 GMT", "Retry_After": "Sat, 01 Jan 2000 00:00:01 GMT"}
    async with ChatServer(faults=deque([hostile.status(503, **dates)])) as server, opened(server) as engine:
        await engine.complete(REQUEST)
    first, second = (seen.time for seen in server.seen)
    assert 1.0 <= second - first < 2.5


async def test_a_retry_after_of_hours_is_an_error_at_once() -> None:
    async with ChatServer(fault=hostile.status(429, Retry_After="86400")) as server, opened(server) as engine:
        with pytest.raises(EngineError, match=r"86400 s.*quota"):
            await engine.complete(REQUEST)
    assert len(server.seen) == RATE_LIMITS_BEFORE_HOLD


async def test_a_held_server_is_passed_over_for_another() -> None:
    fault = hostile.status(429, Retry_After="100")
    async with ChatServer(fault=fault) as held, ChatServer() as free, opened(held, free) as engine:
        started = time.monotonic()
        for _ in range(5):
            await engine.complete(REQUEST)
    assert time.monotonic() - started < 60
    assert len(held.seen) <= RATE_LIMITS_BEFORE_HOLD
    assert len(free.seen) == 5 + 1  # and a control


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "²"}, None),
        ({"Retry-After": "Sat, 21 Nov 2026 10:00:30 GMT"}, 30.0),
        ({"Retry-After": "Sat, 21 Nov 2026 09:00:00 GMT"}, 0.0),
        ({"Retry-After": "Sat, 21 Nov 2026 10:00:30 GMT", "Date": "Sat, 21 Nov 2026 10:00:25 GMT"}, 5.0),
    ],
)
def test_parse_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_after(headers, now=datetime(2026, 11, 21, 10, tzinfo=UTC)) == seconds


@given(retry=st.integers(0, 5000), base=st.floats(0, 10), cap=st.floats(0, 100))
def test_backoff_stays_within_its_bounds(retry: int, base: float, cap: float) -> None:
    assert 0 <= RetryPolicy(8, base, cap, 300).backoff(retry) <= min(cap, base * 2.0 ** min(retry, 60))


# --- several servers -----------------------------------------------------------------------------------------------


async def test_a_slow_server_gets_fewer_calls() -> None:
    async with ChatServer(delay=1.0) as slow, ChatServer() as fast, opened(slow, fast, concurrency=4) as engine:
        await asyncio.gather(*(engine.complete(REQUEST) for _ in range(40)))
    assert len(slow.seen) <= 4
    assert len(fast.seen) >= 36


async def test_a_failing_server_is_avoided() -> None:
    async with ChatServer(fault=hostile.status(500)) as bad, ChatServer() as good, opened(bad, good) as engine:
        for _ in range(30):
            await engine.complete(REQUEST)
    assert len(good.seen) == 30 + 1  # and a control
    assert len(bad.seen) <= 4  # controls alone


async def test_a_server_that_dies_under_load_loses_no_call() -> None:
    async with (
        ChatServer(delay=0.01) as stays,
        ChatServer(delay=0.01) as dies,
        opened(stays, dies, concurrency=8) as engine,
    ):
        calls = [asyncio.create_task(engine.complete(REQUEST)) for _ in range(120)]
        await until(lambda: len(dies.seen) >= 16)
        await dies._runner.cleanup()
        replies = await asyncio.gather(*calls)
    assert all(reply.completions[0].tokens == 8 for reply in replies)


# --- connections, concurrency, cancellation ------------------------------------------------------------------------


async def test_connections_are_reused() -> None:
    async with ChatServer() as server, opened(server, concurrency=8) as engine:
        for _ in range(30):
            await engine.complete(REQUEST)
        assert server.sockets == 1
        await asyncio.gather(*(engine.complete(REQUEST) for _ in range(100)))
    assert server.sockets <= 8


async def test_concurrency_is_bounded() -> None:
    async with ChatServer(delay=0.02) as server, opened(server, concurrency=4) as engine:
        await asyncio.gather(*(engine.complete(REQUEST) for _ in range(24)))
    assert server.most_running == 4


async def test_cancelling_closes_the_request_and_frees_its_slot() -> None:
    async with ChatServer(faults=deque([hostile.hang])) as server, opened(server, concurrency=1) as engine:
        doomed = asyncio.create_task(engine.complete(REQUEST))
        await until(lambda: server.running == 1)
        doomed.cancel()
        await until(lambda: server.aborted == 1)
        assert (await engine.complete(REQUEST)).completions[0].text
    assert doomed.cancelled()


async def test_closing_under_way_ends_calls_with_an_engine_error() -> None:
    async with ChatServer(fault=hostile.hang) as server, opened(server) as engine:
        call = asyncio.create_task(engine.complete(REQUEST))
        await until(lambda: server.running == 1)
        await engine.close()
        with pytest.raises(EngineError, match="closed"):
            await asyncio.wait_for(call, 5)


# --- a server in a process of its own ------------------------------------------------------------------------------


@asynccontextmanager
async def server_process() -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Start a server that hangs on every chat request and says so on its stdout; yield it and its base URL."""
    program = str(Path(hostile.__file__))
    process = await asyncio.create_subprocess_exec(sys.executable, program, "hang", stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process, f"http://127.0.0.1:{int(await process.stdout.readline())}/v1"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def kill_during(call: asyncio.Task[Any], process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    assert await process.stdout.readline() == b"request\n"
    assert not call.done()
    process.send_signal(signal.SIGKILL)
    await process.wait()


@pytest.mark.nightly
async def test_a_server_killed_mid_call_is_reported_as_unreachable() -> None:
    async with server_process() as (process, url), opened(url, timeout=60.0) as engine:
        call = asyncio.create_task(engine.complete(REQUEST))
        await kill_during(call, process)
        with pytest.raises(EngineError) as error:
            await asyncio.wait_for(call, 5)
    assert f"{url} unreachable: " in one_line_of(error)


# --- opening -------------------------------------------------------------------------------------------------------


async def test_opening_an_unreachable_server_fails_at_once() -> None:
    url = f"http://127.0.0.1:{closed_port()}/v1"
    started = time.monotonic()
    with pytest.raises(EngineError) as error:
        async with opened(url, max_retries=50, backoff_base=10.0, backoff_cap=100.0):
            pass
    assert f"{url} unreachable" in one_line_of(error)
    assert time.monotonic() - started < 60


async def test_opening_a_server_that_never_answers_fails_within_the_connect_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        with pytest.raises(EngineError, match=r"unreachable: no complete answer within 0\.3 s"):
            async with opened(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", connect_timeout=0.3):
                pass
    assert time.monotonic() - started < 60


async def test_a_server_without_a_model_list_is_fine() -> None:
    async with ChatServer(has_models=False) as server, opened(server) as engine:
        assert (await engine.complete(REQUEST)).completions[0].text


async def test_one_unreachable_server_of_two_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    gone = f"http://127.0.0.1:{closed_port()}/v1"
    async with ChatServer() as server, opened(gone, server) as engine:
        for _ in range(5):
            await engine.complete(REQUEST)
    assert len(server.seen) == 5 + 1  # and a control
    assert [gone in r.message for r in caplog.records if r.levelno == logging.WARNING] == [True]


async def test_a_key_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVORUN_TEST_KEY", raising=False)
    with pytest.raises(EngineError, match="EVORUN_TEST_KEY, which is not set"):
        async with opened("http://127.0.0.1:1/v1", api_key_env="EVORUN_TEST_KEY"):
            pass


# --- config --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_urls": []},
        {"base_urls": ["localhost:8000"]},
        {"base_urls": ["http://host:99999/v1"]},
        {"base_urls": ["http:///v1"]},
        {"concurrency": 0},
        {"timeout": 0},
        {"connect_timeout": -1},
        {"max_retries": -1},
        {"backoff_base": -0.1},
        {"structured_outputs": "xml"},
        {"max_tokens_field": "tokens"},
    ],
)
def test_wrong_values_are_refused_by_name(wrong: dict[str, Any]) -> None:
    (key,) = wrong
    with pytest.raises(ConfigError, match=rf"engine\.{key}: expected"):
        make_config("engine", "server", **wrong)


# --- what is sent --------------------------------------------------------------------------------------------------


async def sent(request: Request, model: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """Return the body that arrives at the server for a request."""
    fault = hostile.completion(copies=request.sampling.n)
    async with ChatServer(fault=fault) as server, opened(server, model=model, **options) as engine:
        await engine.complete(request)
    (seen,) = server.seen
    return seen.body


async def test_every_parameter_is_sent() -> None:
    request = ask("Hello.", temperature=0.7, top_p=0.9, max_tokens=5, stop=("x", "y"), n=2, seed=11)
    assert await sent(request) == {
        "model": "fake",
        "messages": list(request.messages),
        "temperature": 0.7,
        "top_p": 0.9,
        "max_tokens": 5,
        "stop": ["x", "y"],
        "n": 2,
        "seed": 11,
    }


async def test_vendor_options() -> None:
    model = {"chat_template_kwargs": {"thinking": False}}
    extra = {"reasoning_effort": "low", "temperature": None, "top_p": 0.5}
    options: dict[str, Any] = {"max_tokens_field": "max_completion_tokens", "send_seed": False, "extra_body": extra}
    assert await sent(ask("Hello.", max_tokens=5), model, **options) == {
        "model": "fake",
        "chat_template_kwargs": {"thinking": False},
        "messages": list(ask("Hello.").messages),
        "top_p": 0.5,
        "max_completion_tokens": 5,
        "reasoning_effort": "low",
    }


async def test_system_message_is_merged_where_the_template_has_no_system_role() -> None:
    messages = (await sent(ask("Hello."), {"system_role": "merge"}))["messages"]
    assert messages == [{"role": "user", "content": "You are a helpful assistant.\n\nHello."}]


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        (
            "json_schema",
            {
                "type": "json_schema",
                "json_schema": {"name": "response", "schema": VERDICT_SCHEMA, "strict": True},
            },
        ),
        ("json_object", {"type": "json_object"}),
        ("none", None),
    ],
)
async def test_structured_output_styles(style: str, expected: Any) -> None:
    request = ask("Which?", json_schema=VERDICT_SCHEMA)
    assert (await sent(request, structured_outputs=style)).get("response_format") == expected
