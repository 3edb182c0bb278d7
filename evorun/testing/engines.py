"""Conformance of engines with any model: texts, usage, limits, schemas, refusals, cancellation."""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from evorun.models.base import Completion, Confidence, LanguageModel, Message, Reply, Request, Sampling
from evorun.models.confidence import read_confidences
from evorun.models.encoding import encode_request
from evorun.tasks.json_text import object_schema
from evorun.testing.expectations import expect, expect_equal
from evorun.testing.faults import planted_keys, refuse_leak, refusing_blocked_loops

Decode = Callable[[Sequence[int]], str]
"""Converts token ids to text, and the end-of-sequence token to `EOS`."""

Score = Callable[[Sequence[int], Sequence[int], Sampling], Sequence[float]]
"""Gives the log-probabilities of completion tokens (second argument) after prompt tokens (first), independently of the
engine: with temperature and top_p applied, or, for greedy completions, at temperature 1."""

EOS = "<end of sequence>"
OVERLONG_WORDS = 40_000
"""Length of a prompt that exceeds the context of any model used in these checks."""

ODD_TEXTS = ("", " \r\n\t", "\x00", "{{ 7 * 7 }}", "<|im_end|>", "\N{PILE OF POO}" * 3)
"""Prompts that have broken templates and encoders."""

VERDICT_SCHEMA = object_schema(
    solution={"type": "string", "enum": ["A", "B", "T"]}, reasoning={"type": "string", "maxLength": 40}
)


def ask(text: str, **more: Any) -> Request:
    """Return a request with a system and a user message; `more` sets fields of Request and Sampling."""
    own = {key: more.pop(key) for key in ("seed", "json_schema", "token_ids", "logprobs") if key in more}
    messages = (
        Message(role="system", content="You are a helpful assistant."),
        Message(role="user", content=text),
    )
    return Request(messages=messages, sampling=Sampling(**more), **own)


def decoder(tokenizer: Any) -> Decode:
    """Return a function that converts token ids to text with a Hugging Face tokenizer."""
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False)).replace(tokenizer.eos_token, EOS)


async def check_engine(
    open_engine: Callable[[], Awaitable[LanguageModel]],
    decode: Decode | None = None,
    score: Score | None = None,
    *,
    variables: Sequence[str] = (),
) -> None:
    """Check an engine with any model, and close it. Raises AssertionError for the first rule that it breaks.

    decode: see `decoder`; without it, token ids are not compared with the texts. score: see `Score`; without it, only
    the number and the sign of log-probabilities are checked. variables: the environment variables that hold its keys,
    for an engine that asks nobody; each gets a value that must appear in no reply. Once it is open, the engine must not
    block the event loop.
    """
    with planted_keys(variables):
        engine = await open_engine()
        with refusing_blocked_loops():
            await _check(engine, decode, score)


async def _check(engine: LanguageModel, decode: Decode | None, score: Score | None) -> None:
    try:
        refuse_leak("repr of the engine", repr(engine))
        await _check_odd_texts(engine)
        await _check_usage(engine)
        checks = await _TokenChecks.of(engine, decode, score)
        await _check_token_ids(engine, checks)
        await _check_token_ids_change_nothing(engine, checks)
        await _check_next_turn_keeps_tokens(engine, checks)
        await _check_stop_strings(engine, checks)
        await _check_confidences(engine)
        await _check_schemas(engine)
        await _check_many_at_once(engine)
        await _check_refusals(engine)
        await _check_cancelling(engine)
    finally:
        await engine.close()
        await engine.close()  # closing is idempotent


async def _check_odd_texts(engine: LanguageModel) -> None:
    for text in ODD_TEXTS:
        try:
            reply = await engine.complete(ask(text, max_tokens=4, temperature=0.0))
        except Exception as error:
            refuse_leak(f"the error on {text[:20]!r}", str(error))
            raise AssertionError(f"expected a reply to any text, got {error!r} for {text[:20]!r}") from error
        refuse_leak(f"the reply to {text[:20]!r}", repr(reply))


async def _complete_one(engine: LanguageModel, text: str, **more: Any) -> Completion:
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
    cut = await _complete_one(engine, "Count from one to one hundred in words.", max_tokens=3, temperature=0.0)
    expect_equal((cut.finish_reason, cut.tokens), ("length", 3), "a completion that max_tokens=3 cuts")
    # Without other requests: in a batch, floating-point sums may differ, and with them the text.
    texts = [(await _complete_one(engine, "Say something.", max_tokens=10, temperature=0.0)).text for _ in range(2)]
    expect_equal(texts[1], texts[0], "the same greedy request alone, again")


@dataclass(frozen=True)
class _TokenChecks:
    """Requests with token ids and, if the engine has them, log-probabilities, and the checks of their replies."""

    decode: Decode | None
    score: Score | None
    logprobs: bool

    @classmethod
    async def of(cls, engine: LanguageModel, decode: Decode | None, score: Score | None) -> "_TokenChecks":
        """Ask an engine for log-probabilities: it may lack them, but must say so."""
        error = (await engine.complete(ask("Hello.", max_tokens=1, token_ids=True, logprobs=True))).error
        named = error is None or "log-probabilities" in error
        expect(named, f"expected an error that names log-probabilities, found: {error}")
        return cls(decode, score, logprobs=error is None)

    def ask(self, text: str, **more: Any) -> Request:
        return ask(text, token_ids=True, logprobs=self.logprobs, **more)

    def check(self, request: Request, reply: Reply) -> None:
        """Check that each token has a log-probability, and that those of the shortest completion are right."""
        for completion in reply.completions:
            logprobs = completion.logprobs or ()
            expect_equal(len(completion.token_ids or ()), completion.tokens, "token ids of a completion")
            expect_equal(len(logprobs), completion.tokens * self.logprobs, "log-probabilities of a completion's tokens")
            expect(all(logprob <= 0 for logprob in logprobs), f"expected logarithms of probabilities, found {logprobs}")
        if self.logprobs and self.score is not None:
            shortest = min(reply.completions, key=lambda completion: completion.tokens)
            ids, logprobs = shortest.token_ids or (), shortest.logprobs or ()
            expected = self.score(reply.prompt_ids or (), ids, request.sampling)
            for token, found, right in zip(ids, logprobs, expected, strict=True):
                close = math.isclose(found, right, rel_tol=1e-3, abs_tol=1e-3)
                expect(close, f"log-probability of token {token}: expected {right}, found {found} ({request.sampling})")


async def _check_token_ids(engine: LanguageModel, checks: _TokenChecks) -> None:
    requests = [
        checks.ask("Name a colour.", max_tokens=70, temperature=0.7, n=4, seed=1),
        checks.ask("Count from one to one hundred in words.", max_tokens=3, temperature=0.0, n=2),
        checks.ask("Name a fruit.", max_tokens=12, temperature=1.3, top_p=0.7, seed=2),
    ]
    replies = await asyncio.gather(*(engine.complete(request) for request in requests))
    for request, reply in zip(requests, replies, strict=True):
        checks.check(request, reply)
        # A server that draws greedy completions one by one charges for the prompt each time.
        expect(reply.prompt_tokens % len(reply.prompt_ids or "?") == 0, "expected the token ids of the whole prompt")
    completions = [completion for reply in replies for completion in reply.completions]
    for completion in completions:
        if checks.decode is not None:
            # Without another reason, a completion stops at the end-of-sequence token, which is sampled too.
            expected = completion.text + EOS * (completion.finish_reason == "stop")
            expect_equal(checks.decode(completion.token_ids or ()), expected, "the text of the sampled tokens")
    reasons = {completion.finish_reason for completion in completions}
    expect_equal(reasons, {"stop", "length"}, "how a few colours and cut completions end")


async def _check_next_turn_keeps_tokens(engine: LanguageModel, checks: _TokenChecks) -> None:
    first = checks.ask("Name a colour.", max_tokens=8, temperature=0.0)
    reply = await engine.complete(first)
    # A prompt rebuilt from the text may have other tokens than those sampled. Training would then use tokens that the
    # model never saw. The text here differs on purpose: the tokens must win.
    seen = (*(reply.prompt_ids or ()), *(reply.completions[0].token_ids or ()))
    turns = (Message(role="assistant", content="Another text."), Message(role="user", content="And a second one?"))
    request = msgspec.structs.replace(first, messages=(*first.messages, *turns), seen=seen)
    next_reply = await engine.complete(request)
    if next_reply.error is not None:
        expect("token ids" in next_reply.error, f"expected an error that names token ids, found: {next_reply.error}")
        return
    expect_equal((next_reply.prompt_ids or ())[: len(seen)], seen, "the tokens that a next turn's prompt begins with")
    checks.check(request, next_reply)


async def _check_token_ids_change_nothing(engine: LanguageModel, checks: _TokenChecks) -> None:
    request = ask("Name a colour.", max_tokens=8, temperature=0.0)
    asking = msgspec.structs.replace(request, token_ids=True, logprobs=checks.logprobs)
    without, with_ids = await engine.complete(request), await engine.complete(asking)
    expect_equal(without.completions[0].token_ids, None, "token ids that nobody asked for")
    # evorun must still read journals from before token ids existed, and match the same requests.
    fields = set(msgspec.to_builtins(without.completions[0]))
    expect_equal(fields, {"text", "finish_reason", "tokens"}, "a completion in the journal")
    expect_equal(encode_request("m", request), encode_request("m", asking), "the digest with and without token ids")
    for reply in (without, with_ids):
        try:
            recorded = msgspec.json.decode(msgspec.json.encode(reply), type=Reply)
        except msgspec.ValidationError as error:
            raise AssertionError(f"expected a reply that the journal can read back, got: {error}") from error
        expect_equal(recorded, reply, "a reply read back from the journal")


async def _check_stop_strings(engine: LanguageModel, checks: _TokenChecks) -> None:
    about = "Tell me about the sea."
    text = (await _complete_one(engine, about, max_tokens=24, temperature=0.0)).text
    stop = text[10:14]  # from the greedy text itself, so that it occurs with any model
    request = checks.ask(about, max_tokens=24, temperature=0.0, stop=(stop,))
    reply = await engine.complete(request)
    checks.check(request, reply)
    [cut] = reply.completions
    expect_equal(cut.text, text[: text.index(stop)], f"the text before the stop string {stop!r}")
    expect_equal(cut.finish_reason, "stop", "how a completion with a stop string ends")
    if checks.decode is not None:
        ids, whole = cut.token_ids or (), cut.text + stop
        expect(checks.decode(ids).startswith(whole), "expected the token ids to reach the end of the stop string")
        expect(not checks.decode(ids[:-1]).startswith(whole), "expected no token ids beyond the stop string")


async def _check_confidences(engine: LanguageModel) -> None:
    plain = ask("Name a colour.", max_tokens=8, temperature=0.0)
    expect("confidence" not in encode_request("m", plain).decode(), "expected no confidence in a digest without one")

    def asking(**settings: Any) -> Request:
        confident = msgspec.structs.replace(plain.sampling, confidence=Confidence(top=5, **settings))
        return msgspec.structs.replace(plain, sampling=confident)

    reply = await engine.complete(asking(tokens=True))
    if reply.error is not None:
        expect("confidences" in reply.error, f"expected an error that names confidences, found: {reply.error}")
        return
    [completion] = reply.completions
    expect_equal(completion.text, (await engine.complete(plain)).completions[0].text, "the text with confidences")
    found = read_confidences(completion)
    values = np.array(() if found is None else found, np.float64)
    expect_equal(len(values), completion.tokens, "confidences of a completion's tokens")
    expect((values >= 0).all(), f"expected confidences of at least 0, found {values}")
    close = math.isclose(completion.confidence or 0, values.mean(), abs_tol=1e-5)
    expect(close, f"confidence: expected the mean {values.mean()}, found {completion.confidence}")
    recorded = msgspec.json.decode(msgspec.json.encode(reply), type=Reply)
    expect_equal(recorded, reply, "a reply with confidences read back from the journal")
    mean_only = await engine.complete(asking())
    expect_equal(mean_only.completions[0].token_confidences, None, "confidences of tokens that nobody asked for")
    # All windows are below: the completion ends with the first whole one.
    ended = await engine.complete(asking(tokens=True, window=2, minimum=1e4))
    if ended.error is not None:
        expect("confidence" in ended.error, f"expected an error that names confidence, found: {ended.error}")
        return
    [cut] = ended.completions
    if completion.tokens > 2:
        expect_equal((cut.finish_reason, cut.tokens), ("low_confidence", 2), "a completion below the threshold")
        expect(completion.text.startswith(cut.text), f"expected a part of {completion.text!r}, found {cut.text!r}")


async def _check_schemas(engine: LanguageModel) -> None:
    request = ask("Which is better, A or B?", max_tokens=80, temperature=0.7, n=4, json_schema=VERDICT_SCHEMA)
    # Completions that max_tokens truncates are JSON prefixes; at least one of four will end.
    finished = [c for c in (await engine.complete(request)).completions if c.finish_reason == "stop"]
    expect(finished, "expected some completion under a JSON schema to end within 80 tokens")
    for completion in finished:
        value = json.loads(completion.text)
        expect_equal(set(value), {"solution", "reasoning"}, "keys under a JSON schema")
        expect(value["solution"] in ("A", "B", "T"), f"expected a value of the schema's enum, found {value!r}")
        fits = isinstance(value["reasoning"], str) and len(value["reasoning"]) <= 40
        expect(fits, f"expected at most 40 characters, as the schema says, found {value!r}")


async def _check_many_at_once(engine: LanguageModel) -> None:
    # Mixed lengths, temperatures, seeds and schemas: a batch must not confuse its requests.
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
        if request.json_schema is not None:
            opening = reply.completions[0].text.lstrip()[:20]
            own = opening[:1] in ("", "{")
            expect(own, f"expected each of many requests its own reply, found {opening!r} for one under a JSON schema")
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
    await asyncio.sleep(0)  # let the request start
    doomed.cancel()
    for reply in await asyncio.gather(*others):
        expect(reply.completions[0].tokens >= 1, "expected a cancelled request to leave the others alone")
    expect(doomed.cancelled() or doomed.cancelling(), "expected the cancelled request to end as cancelled")
