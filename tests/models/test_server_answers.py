"""Answers as the server engine reads them, those included that nobody would expect."""

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hostile_server as hostile
from evorun.models.base import Completion, Message, Request, Sampling
from evorun.models.server.messages import error_text
from evorun.models.server.wire import (
    MAX_TOKENS,
    ChatResponse,
    decode_response,
    read_draw,
    spent_tokens,
)
from evorun.testing.engines import ask
from hostile_server import ChatServer
from server_engine import REQUEST, opened


async def reply_to(request: Request, **fields: Any) -> Any:
    async with ChatServer(fault=hostile.completion(**fields)) as server, opened(server) as engine:
        return await engine.complete(request)


@pytest.mark.parametrize(
    ("given_reason", "expected"),
    [("stop", "stop"), ("length", "length"), ("eos_token", "stop"), (None, "stop"), ("content_filter", "rejected")],
)
async def test_finish_reasons(given_reason: str | None, expected: str) -> None:
    reply = await reply_to(REQUEST, text="partial", finish_reason=given_reason)
    (completion,) = reply.completions
    assert completion.finish_reason == expected
    assert completion.text == ("" if expected == "rejected" else "partial")
    assert (reply.error is not None) == (expected == "rejected")
    assert completion.tokens == 2  # paid for, filtered or not


async def test_a_refusal_is_data() -> None:
    reply = await reply_to(REQUEST, text=None, message={"refusal": "I will not."})
    assert reply.completions[0].finish_reason == "rejected"
    assert "I will not." in reply.error


async def test_reasoning_is_not_part_of_the_text() -> None:
    reply = await reply_to(REQUEST, text="4", message={"reasoning_content": "two and two"})
    assert reply.completions[0].text == "4"
    parts = [
        {"type": "thinking", "thinking": [], "text": "hm"},
        {"type": "text", "text": "fo"},
        {"type": "text", "text": "ur"},
    ]
    assert (await reply_to(REQUEST, text=parts)).completions[0].text == "four"
    cut = await reply_to(REQUEST, text=None, finish_reason="length", message={"reasoning_content": "well"})
    assert (cut.completions[0].text, cut.completions[0].finish_reason) == ("", "length")


async def test_a_stop_string_is_cut_off_even_where_the_server_ignores_it() -> None:
    reply = await reply_to(ask("Count.", stop=("DONE", "END")), text="one END two DONE", finish_reason="length")
    assert reply.completions[0].text == "one "
    assert reply.completions[0].finish_reason == "stop"


async def test_missing_usage_is_estimated_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async with ChatServer(fault=hostile.completion(text="x" * 40, usage=None)) as server, opened(server) as engine:
        request = Request(messages=(Message(role="user", content="y" * 100),), sampling=Sampling(max_tokens=64))
        replies = [await engine.complete(request) for _ in range(3)]
    assert {(reply.prompt_tokens, reply.completions[0].tokens) for reply in replies} == {(25, 10)}
    assert sum("no token usage" in record.message for record in caplog.records) == 1


async def test_completions_that_a_server_leaves_out_are_asked_for_again() -> None:
    async with ChatServer(fault=hostile.completion()) as server, opened(server) as engine:
        reply = await engine.complete(ask("Hello.", n=3, seed=2**31 - 2))
    assert len(reply.completions) == 3
    assert (reply.prompt_tokens, reply.completion_tokens) == (9, 6)
    assert [(seen.body.get("n"), seen.body["seed"]) for seen in server.seen] == [
        (3, 2**31 - 2),
        (2, 2**31 - 1),
        (None, 0),
    ]


async def test_greedy_completions_are_asked_for_one_by_one() -> None:
    async with ChatServer() as server, opened(server) as engine:
        reply = await engine.complete(ask("Hello.", n=2, temperature=0.0, max_tokens=4))
    assert [seen.body.get("n", 1) for seen in server.seen] == [1, 1]
    assert reply.completions[0].text == reply.completions[1].text


@pytest.mark.parametrize("ids", [[-1], [2**31], [10**30]])
def test_token_ids_out_of_range_are_malformed(ids: list[int]) -> None:
    with pytest.raises(ValueError, match="not a chat completion"):
        decode_response(json.dumps({"choices": [{"text": "fine", "token_ids": ids}]}).encode())
    assert decode_response(b'{"choices": [{"text": "fine", "token_ids": [1]}]}').choices[0].token_ids == (1,)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
PARTS = st.lists(st.fixed_dictionaries({"type": st.just("text") | VALUES}, optional={"text": VALUES}), max_size=2)
MESSAGES = st.fixed_dictionaries({"content": st.text() | PARTS | VALUES}, optional={"refusal": VALUES})
CHOICES = st.fixed_dictionaries(
    {"message": MESSAGES | VALUES},
    optional={"text": VALUES, "index": VALUES, "finish_reason": VALUES, "token_ids": VALUES, "logprobs": VALUES},
)
USAGES = st.fixed_dictionaries({"prompt_tokens": st.integers() | VALUES, "completion_tokens": st.integers() | VALUES})
ANSWERS = st.fixed_dictionaries(
    {"choices": st.lists(CHOICES, max_size=3) | VALUES}, optional={"usage": USAGES | VALUES}
)


@given(ANSWERS | VALUES)
def test_whatever_a_server_answers_is_malformed_or_a_reply(value: Any) -> None:
    body = json.dumps(value).encode()
    assert 0 <= spent_tokens(body, b"asked") <= 2 * MAX_TOKENS
    assert isinstance(error_text(body), str)
    try:
        response = decode_response(body)
    except ValueError:
        return
    draw = read_draw(response, ask("Hello.", n=3), 3)
    counts = [draw.prompt_tokens, *(completion.tokens for completion in draw.completions)]
    assert all(0 <= count <= MAX_TOKENS for count in counts)
    assert msgspec.json.decode(msgspec.json.encode(draw.completions), type=list[Completion]) == draw.completions


@given(st.binary(max_size=40))
def test_whatever_bytes_a_server_sends_are_malformed_or_a_reply(content: bytes) -> None:
    assert isinstance(error_text(content), str)
    with contextlib.suppress(ValueError):
        decode_response(content)


@given(texts=st.lists(st.text(max_size=20), min_size=1, max_size=8), total=st.integers(0, 10_000))
def test_token_shares_add_up_to_the_servers_count(texts: list[str], total: int) -> None:
    choices = [{"message": {"content": text}, "index": i} for i, text in enumerate(texts)]
    body = json.dumps({"choices": choices, "usage": {"prompt_tokens": 1, "completion_tokens": total}})
    response: ChatResponse = decode_response(body.encode())
    draw = read_draw(response, ask("Hello.", n=len(texts)), len(texts))
    assert sum(c.tokens for c in draw.completions) == total
    assert all(c.tokens >= 0 for c in draw.completions)
    sizes = [len(text.encode()) for text in texts]
    if sum(sizes):
        exact = [total * size / sum(sizes) for size in sizes]
        assert all(abs(c.tokens - e) <= 1 for c, e in zip(draw.completions, exact, strict=True))
