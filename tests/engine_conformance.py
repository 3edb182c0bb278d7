"""What every engine must do, as tests: subclass `EngineConformance` and provide an `engine` fixture.

Markers on the subclass choose where it runs; no test here needs the model to be right about anything.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import jsonschema
import msgspec
import pytest

from evorun.models import LanguageModel, Message, Reply, Request, Sampling
from evorun.models.embedded import ensure
from evorun.models.encoding import encode_request

EOS = "<end of sequence>"

VERDICT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "solution": {"type": "string", "enum": ["A", "B", "T"]},
        "reasoning": {"type": "string", "maxLength": 40},
    },
    "required": ["solution", "reasoning"],
    "additionalProperties": False,
}


def ask(text: str, **sampling: Any) -> Request:
    """Return a request with a system and a user message."""
    schema = sampling.pop("json_schema", None)
    seed = sampling.pop("seed", 0)
    token_ids = sampling.pop("token_ids", False)
    messages = (
        Message(role="system", content="You are a helpful assistant."),
        Message(role="user", content=text),
    )
    return Request(messages=messages, sampling=Sampling(**sampling), seed=seed, json_schema=schema, token_ids=token_ids)


class EngineConformance:
    """The suite; `overlong_words` is a prompt length (in words) that exceeds the engine's context."""

    overlong_words = 40_000

    @pytest.fixture(scope="class")
    def decode(self) -> Callable[[Sequence[int]], str]:
        """Turns token ids into text, the end-of-sequence token into `EOS`."""
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(ensure())

        def decode(ids: Sequence[int]) -> str:
            return str(tokenizer.decode(list(ids), skip_special_tokens=False)).replace(tokenizer.eos_token, EOS)

        return decode

    async def test_reply_carries_text_usage_and_seconds(self, engine: LanguageModel) -> None:
        reply = await engine.complete(ask("Name a colour.", max_tokens=8, temperature=0.0))
        (completion,) = reply.completions
        assert completion.text
        assert completion.finish_reason in ("stop", "length")
        assert 1 <= completion.tokens <= 8
        assert reply.prompt_tokens > 0
        assert reply.seconds >= 0
        assert reply.error is None

    async def test_n_completions(self, engine: LanguageModel) -> None:
        reply = await engine.complete(ask("Write a word.", max_tokens=6, temperature=1.0, n=3))
        assert len(reply.completions) == 3
        assert reply.completion_tokens == sum(c.tokens for c in reply.completions)

    async def test_max_tokens_ends_with_length(self, engine: LanguageModel) -> None:
        reply = await engine.complete(ask("Count from one to one hundred in words.", max_tokens=3, temperature=0.0))
        assert reply.completions[0].finish_reason == "length"
        assert reply.completions[0].tokens == 3

    async def test_longer_prompts_cost_more_tokens(self, engine: LanguageModel) -> None:
        short = await engine.complete(ask("Hello.", max_tokens=2))
        long = await engine.complete(ask("Hello there, friend. " * 50, max_tokens=2))
        assert long.prompt_tokens > short.prompt_tokens + 100

    async def test_token_ids_are_what_was_sampled(
        self, engine: LanguageModel, decode: Callable[[Sequence[int]], str]
    ) -> None:
        requests = [
            ask("Name a colour.", max_tokens=70, temperature=0.7, n=4, seed=1, token_ids=True),
            ask("Count from one to one hundred in words.", max_tokens=3, temperature=0.0, n=2, token_ids=True),
        ]
        replies = await asyncio.gather(*(engine.complete(request) for request in requests))
        completions = [completion for reply in replies for completion in reply.completions]
        for completion in completions:
            assert completion.token_ids is not None
            assert len(completion.token_ids) == completion.tokens
            # With nothing else to end it, a completion stops at the end-of-sequence token, which is sampled too.
            assert decode(completion.token_ids) == completion.text + EOS * (completion.finish_reason == "stop")
        assert {completion.finish_reason for completion in completions} == {"stop", "length"}

    async def test_token_ids_go_up_to_the_end_of_a_stop_string(
        self, engine: LanguageModel, decode: Callable[[Sequence[int]], str]
    ) -> None:
        whole = await engine.complete(ask("Tell me about the sea.", max_tokens=24, temperature=0.0))
        stop = whole.completions[0].text[10:14]
        request = ask("Tell me about the sea.", max_tokens=24, temperature=0.0, stop=(stop,), token_ids=True)
        (cut,) = (await engine.complete(request)).completions
        assert cut.token_ids is not None
        assert len(cut.token_ids) == cut.tokens
        assert decode(cut.token_ids).startswith(cut.text + stop)
        assert not decode(cut.token_ids[:-1]).startswith(cut.text + stop)

    async def test_token_ids_are_left_out_unless_asked_for(self, engine: LanguageModel) -> None:
        request = ask("Name a colour.", max_tokens=8, temperature=0.0)
        without = await engine.complete(request)
        with_ids = await engine.complete(msgspec.structs.replace(request, token_ids=True))
        assert without.completions[0].token_ids is None
        assert set(msgspec.to_builtins(without.completions[0])) == {"text", "finish_reason", "tokens"}
        assert encode_request("m", request) == encode_request("m", msgspec.structs.replace(request, token_ids=True))
        recorded = msgspec.json.decode(msgspec.json.encode(with_ids), type=Reply)
        assert recorded == with_ids

    async def test_stop_string_is_cut_off(self, engine: LanguageModel) -> None:
        whole = await engine.complete(ask("Tell me about the sea.", max_tokens=24, temperature=0.0))
        text = whole.completions[0].text
        stop = text[len(text) // 2 :][:4]
        cut = await engine.complete(ask("Tell me about the sea.", max_tokens=24, temperature=0.0, stop=(stop,)))
        assert cut.completions[0].text == text[: text.index(stop)]
        assert cut.completions[0].finish_reason == "stop"

    async def test_json_schema_gives_a_valid_value(self, engine: LanguageModel) -> None:
        request = ask("Which is better, A or B?", max_tokens=80, temperature=0.7, n=4, json_schema=VERDICT_SCHEMA)
        reply = await engine.complete(request)
        finished = [c for c in reply.completions if c.finish_reason == "stop"]
        assert finished
        for completion in finished:
            jsonschema.validate(json.loads(completion.text), VERDICT_SCHEMA)

    async def test_greedy_is_repeatable_alone(self, engine: LanguageModel) -> None:
        request = ask("Say something.", max_tokens=10, temperature=0.0)
        first = await engine.complete(request)
        second = await engine.complete(request)
        assert first.completions[0].text == second.completions[0].text

    async def test_mixed_requests_at_once(self, engine: LanguageModel) -> None:
        requests = [
            ask(
                f"Tell me fact number {i}.",
                max_tokens=4 + i % 5,
                temperature=0.3 * (i % 3),
                seed=i,
                json_schema=VERDICT_SCHEMA if i % 4 == 0 else None,
            )
            for i in range(12)
        ]
        replies = await asyncio.gather(*(engine.complete(r) for r in requests))
        for request, reply in zip(requests, replies, strict=True):
            assert 1 <= reply.completions[0].tokens <= request.sampling.max_tokens

    async def test_overlong_prompt_is_rejected_as_data(self, engine: LanguageModel) -> None:
        overlong, fine = await asyncio.gather(
            engine.complete(ask("word " * self.overlong_words, max_tokens=4)),
            engine.complete(ask("Hello.", max_tokens=4)),
        )
        assert [c.finish_reason for c in overlong.completions] == ["rejected"]
        assert overlong.completions[0].text == ""
        assert overlong.error
        assert fine.completions[0].finish_reason in ("stop", "length")

    async def test_cancelling_one_call_leaves_the_others(self, engine: LanguageModel) -> None:
        doomed = asyncio.create_task(engine.complete(ask("Write a long story.", max_tokens=64)))
        others = [asyncio.create_task(engine.complete(ask(f"Number {i}?", max_tokens=4))) for i in range(3)]
        await asyncio.sleep(0)
        doomed.cancel()
        replies = await asyncio.gather(*others)
        assert doomed.cancelled() or doomed.cancelling()
        assert all(r.completions[0].tokens >= 1 for r in replies)

    async def test_close_twice(self, engine: LanguageModel) -> None:
        await engine.close()
        await engine.close()
