"""Conformance of engines, whatever their model knows: texts, usage, limits, schemas, refusals, cancelling."""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from evorun.models.base import Completion, LanguageModel, Message, Reply, Request, Sampling
from evorun.models.encoding import encode_request
from evorun.testing.expectations import expect, expect_equal

Decode = Callable[[Sequence[int]], str]
"""Turns token ids into text, the end-of-sequence token into `EOS`."""

Score = Callable[[Sequence[int], Sequence[int], Sampling], Sequence[float]]
"""Gives the log-probabilities of tokens (the second) after a prompt's (the first), from elsewhere than the engine: with
temperature and top_p applied, or of greedy completions as they are at temperature 1."""

EOS = "<end of sequence>"
OVERLONG_WORDS = 40_000
"""Length of a prompt that exceeds the context of any model that engines are checked with."""

VERDICT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "solution": {"type": "string", "enum": ["A", "B", "T"]},
        "reasoning": {"type": "string", "maxLength": 40},
    },
    "required": ["solution", "reasoning"],
    "additionalProperties": False,
}


def ask(text: str, **more: Any) -> Request:
    """Return a request with a system and a user message; `more` are fields of Request and of Sampling."""
    own = {key: more.pop(key) for key in ("seed", "json_schema", "token_ids", "logprobs") if key in more}
    messages = (
        Message(role="system", content="You are a helpful assistant."),
        Message(role="user", content=text),
    )
    return Request(messages=messages, sampling=Sampling(**more), **own)


def decoder(tokenizer: Any) -> Decode:
    """Return a function that turns the token ids of a Hugging Face tokenizer into text."""
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False)).replace(tokenizer.eos_token, EOS)


async def check_engine(
    open_engine: Callable[[], Awaitable[LanguageModel]], decode: Decode | None = None, score: Score | None = None
) -> None:
    """Check an engine with some model, and close it. Raises AssertionError for the first rule that it breaks.

    decode: see `decoder`; without it, token ids are not checked against the texts. score: without it, of
    log-probabilities only the number is checked, and the sign.
    """
    engine = await open_engine()
    try:
        await _check_usage(engine)
        learned = await _Learned.of(engine, decode, score)
        await _check_token_ids(engine, learned)
        await _check_token_ids_change_nothing(engine, learned)
        await _check_next_turn(engine, learned)
        await _check_stop_strings(engine, learned)
        await _check_schemas(engine)
        await _check_many_at_once(engine)
        await _check_refusals(engine)
        await _check_cancelling(engine)
    finally:
        await engine.close()
        await engine.close()  # closing is idempotent


async def _one(engine: LanguageModel, text: str, **more: Any) -> Completion:
    reply = await engine.complete(ask(text, **more))
    expect_equal(len(reply.completions), 1, "completions of a request for one")
    return reply.completions[0]


async def _check_usage(engine: LanguageModel) -> None:
    reply = await engine.complete(ask("Name a colour.", max_tokens=8, temperature=0.0))
    [completion] = reply.completions
    expect(completion.text, "expected a text, found none")
    expect(completion.finish_reason in ("stop", "length"), f"finish_reason: found {completion.finish_reason}")
    expect(1 <= completion.tokens <= 8, f"expected 1 to 8 tokens with max_tokens=8, found {completion.tokens}")
    expect(reply.prompt_tokens > 0, "expected the prompt's tokens to be counted")
    expect(reply.seconds >= 0, f"seconds: expected at least 0, found {reply.seconds}")
    expect_equal(reply.error, None, "error of a request that was answered")
    several = await engine.complete(ask("Write a word.", max_tokens=6, temperature=1.0, n=3))
    expect_equal(len(several.completions), 3, "completions with n=3")
    expect_equal(several.completion_tokens, sum(c.tokens for c in several.completions), "tokens of all completions")
    longer = await engine.complete(ask("Hello there, friend. " * 50, max_tokens=2))
    expect(longer.prompt_tokens > reply.prompt_tokens + 100, "expected a longer prompt to cost more tokens")
    cut = await _one(engine, "Count from one to one hundred in words.", max_tokens=3, temperature=0.0)
    expect_equal((cut.finish_reason, cut.tokens), ("length", 3), "a completion that max_tokens=3 cuts")
    # Alone: in a batch of other requests, floating-point sums may differ, and with them the text.
    texts = [(await _one(engine, "Say something.", max_tokens=10, temperature=0.0)).text for _ in range(2)]
    expect_equal(texts[1], texts[0], "the same greedy request alone, again")


@dataclass(frozen=True)
class _Learned:
    """Completions to learn from: with token ids and, where the engine has them, log-probabilities."""

    decode: Decode | None
    score: Score | None
    logprobs: bool

    @classmethod
    async def of(cls, engine: LanguageModel, decode: Decode | None, score: Score | None) -> "_Learned":
        """Ask an engine for log-probabilities: it may not have them, but has to say so."""
        error = (await engine.complete(ask("Hello.", max_tokens=1, token_ids=True, logprobs=True))).error
        expect(error is None or "log-probabilities" in error, f"expected to be told of log-probabilities: {error}")
        return cls(decode, score, logprobs=error is None)

    def ask(self, text: str, **more: Any) -> Request:
        return ask(text, token_ids=True, logprobs=self.logprobs, **more)

    def check(self, request: Request, reply: Reply) -> None:
        """Check that there is a log-probability for each token and, of the shortest completion, the right one."""
        for completion in reply.completions:
            logprobs = completion.logprobs or ()
            expect_equal(len(completion.token_ids or ()), completion.tokens, "token ids of a completion")
            expect_equal(len(logprobs), completion.tokens * self.logprobs, "log-probabilities of a completion's tokens")
            expect(all(one <= 0 for one in logprobs), f"expected logarithms of probabilities, found {logprobs}")
        if self.logprobs and self.score is not None:
            shortest = min(reply.completions, key=lambda completion: completion.tokens)
            ids, logprobs = shortest.token_ids or (), shortest.logprobs or ()
            expected = self.score(reply.prompt_ids or (), ids, request.sampling)
            for token, found, right in zip(ids, logprobs, expected, strict=True):
                close = math.isclose(found, right, rel_tol=1e-3, abs_tol=1e-3)
                expect(close, f"log-probability of token {token}: expected {right}, found {found} ({request.sampling})")


async def _check_token_ids(engine: LanguageModel, learned: _Learned) -> None:
    requests = [
        learned.ask("Name a colour.", max_tokens=70, temperature=0.7, n=4, seed=1),
        learned.ask("Count from one to one hundred in words.", max_tokens=3, temperature=0.0, n=2),
        learned.ask("Name a fruit.", max_tokens=12, temperature=1.3, top_p=0.7, seed=2),
    ]
    replies = await asyncio.gather(*(engine.complete(request) for request in requests))
    for request, reply in zip(requests, replies, strict=True):
        learned.check(request, reply)
        # A server that draws greedy completions one by one is paid for the prompt each time.
        expect(reply.prompt_tokens % len(reply.prompt_ids or "?") == 0, "expected the token ids of the whole prompt")
    completions = [completion for reply in replies for completion in reply.completions]
    for completion in completions:
        if learned.decode is not None:
            # With nothing else to end it, a completion stops at the end-of-sequence token, which is sampled too.
            expected = completion.text + EOS * (completion.finish_reason == "stop")
            expect_equal(learned.decode(completion.token_ids or ()), expected, "the text of the sampled tokens")
    reasons = {completion.finish_reason for completion in completions}
    expect_equal(reasons, {"stop", "length"}, "how a few colours and cut completions end")


async def _check_next_turn(engine: LanguageModel, learned: _Learned) -> None:
    first = learned.ask("Name a colour.", max_tokens=8, temperature=0.0)
    reply = await engine.complete(first)
    # A prompt built from the text again may split into other tokens than those sampled, and training would then learn
    # from tokens that the model never saw. The text here is another one on purpose: the tokens must win.
    seen = (*(reply.prompt_ids or ()), *(reply.completions[0].token_ids or ()))
    turns = (Message(role="assistant", content="Another text."), Message(role="user", content="And a second one?"))
    request = msgspec.structs.replace(first, messages=(*first.messages, *turns), seen=seen)
    next_reply = await engine.complete(request)
    if next_reply.error is not None:
        expect("token ids" in next_reply.error, f"expected to be told of token ids, found: {next_reply.error}")
        return
    expect_equal((next_reply.prompt_ids or ())[: len(seen)], seen, "the tokens that a next turn's prompt begins with")
    learned.check(request, next_reply)


async def _check_token_ids_change_nothing(engine: LanguageModel, learned: _Learned) -> None:
    request = ask("Name a colour.", max_tokens=8, temperature=0.0)
    asking = msgspec.structs.replace(request, token_ids=True, logprobs=learned.logprobs)
    without, with_ids = await engine.complete(request), await engine.complete(asking)
    expect_equal(without.completions[0].token_ids, None, "token ids that nobody asked for")
    # Journals that were recorded before token ids existed must still be read, and match the same requests.
    fields = set(msgspec.to_builtins(without.completions[0]))
    expect_equal(fields, {"text", "finish_reason", "tokens"}, "a completion in the journal")
    expect_equal(encode_request("m", request), encode_request("m", asking), "the digest with and without token ids")
    recorded = msgspec.json.decode(msgspec.json.encode(with_ids), type=Reply)
    expect_equal(recorded, with_ids, "a reply read back from the journal")


async def _check_stop_strings(engine: LanguageModel, learned: _Learned) -> None:
    about = "Tell me about the sea."
    text = (await _one(engine, about, max_tokens=24, temperature=0.0)).text
    stop = text[10:14]  # of its own greedy text: whatever the model, this string comes
    request = learned.ask(about, max_tokens=24, temperature=0.0, stop=(stop,))
    reply = await engine.complete(request)
    learned.check(request, reply)
    [cut] = reply.completions
    expect_equal(cut.text, text[: text.index(stop)], f"the text before the stop string {stop!r}")
    expect_equal(cut.finish_reason, "stop", "how a completion with a stop string ends")
    if learned.decode is not None:
        ids, whole = cut.token_ids or (), cut.text + stop
        expect(learned.decode(ids).startswith(whole), "expected the token ids to reach the end of the stop string")
        expect(not learned.decode(ids[:-1]).startswith(whole), "expected no token ids beyond the stop string")


async def _check_schemas(engine: LanguageModel) -> None:
    request = ask("Which is better, A or B?", max_tokens=80, temperature=0.7, n=4, json_schema=VERDICT_SCHEMA)
    # Completions that max_tokens cuts are JSON up to there; with four, one will end.
    finished = [c for c in (await engine.complete(request)).completions if c.finish_reason == "stop"]
    expect(finished, "expected some completion under a JSON schema to end within 80 tokens")
    for completion in finished:
        value = json.loads(completion.text)
        expect_equal(set(value), {"solution", "reasoning"}, "keys under a JSON schema")
        expect(value["solution"] in ("A", "B", "T"), f"expected a value of the schema's enum, found {value!r}")
        fits = isinstance(value["reasoning"], str) and len(value["reasoning"]) <= 40
        expect(fits, f"expected at most 40 characters, as the schema has it, found {value!r}")


async def _check_many_at_once(engine: LanguageModel) -> None:
    # Mixed lengths, temperatures, seeds and schemas, since a batch must not mix up whose is which.
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
    replies = await asyncio.gather(*(engine.complete(request) for request in requests))
    for request, reply in zip(requests, replies, strict=True):
        tokens, limit = reply.completions[0].tokens, request.sampling.max_tokens
        expect(1 <= tokens <= limit, f"expected 1 to {limit} tokens of one request among others, found {tokens}")


async def _check_refusals(engine: LanguageModel) -> None:
    refused, fine = await asyncio.gather(
        engine.complete(ask("word " * OVERLONG_WORDS, max_tokens=4)), engine.complete(ask("Hello.", max_tokens=4))
    )
    found = [(completion.finish_reason, completion.text) for completion in refused.completions]
    expect_equal(found, [("rejected", "")], "the reply to a prompt that is too long")
    expect(refused.error, "expected the error to say why a prompt was refused")
    expect(fine.completions[0].finish_reason in ("stop", "length"), "expected a refusal to leave other requests alone")


async def _check_cancelling(engine: LanguageModel) -> None:
    doomed = asyncio.create_task(engine.complete(ask("Write a long story.", max_tokens=64)))
    others = [asyncio.create_task(engine.complete(ask(f"Number {i}?", max_tokens=4))) for i in range(3)]
    await asyncio.sleep(0)  # let it start
    doomed.cancel()
    for reply in await asyncio.gather(*others):
        expect(reply.completions[0].tokens >= 1, "expected a cancelled request to leave the others alone")
    expect(doomed.cancelled() or doomed.cancelling(), "expected the cancelled request to end as cancelled")
