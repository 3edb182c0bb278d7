"""The protocol between methods and engines: chat messages in, completions and their cost out.

Nothing here knows a task, a method, or which engine serves a model.
"""

import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal, Protocol, TypedDict, runtime_checkable

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

Role = Literal["system", "user", "assistant", "tool"]
"""tool: a tool's answer to the assistant's turn before it. Engines refuse it where the template has none."""


class Message(TypedDict):
    """One chat turn."""

    role: Role
    content: str


FinishReason = Literal["stop", "length", "overlong", "rejected"]
"""Why a completion ended.

`stop`: an end-of-sequence token, a stop string, or the end of the JSON schema. `length`: `max_tokens` or the context
was used up. `overlong`: the engine gave more text than `max_tokens` tokens can have, and evorun cut it (`bounded`; no
engine gives this reason itself). `rejected`: the engine refused this one request (prompt longer than the context,
content filter); the text is then empty and `Reply.error` says why.
"""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters of a request; the same names and meanings on every engine."""

    temperature: float = 1.0
    """0 means greedy decoding."""
    top_p: float = 1.0
    max_tokens: int = 1024
    """Upper bound on completion tokens."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion; the string itself is not part of the text."""
    n: int = 1
    """Completions to draw for the one prompt."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt, and the way to complete it."""

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    seed: int = 0
    """Sampling seed, in [0, 2**31). Engines that cannot honour a seed ignore it."""
    json_schema: dict[str, Any] | None = None
    """Schema of the one JSON value that the completion text must be, or None."""
    hints: Mapping[str, Any] = {}
    """For the simulated engine only (problem id, role, subject of the prompt). Real engines never read it and it is not
    part of the request's digest."""
    token_ids: bool = False
    """Ask for the token ids of prompt and completions. Not part of the digest: completions are the same with them."""
    logprobs: bool = False
    """Ask for the log-probabilities of the completions' token ids too. Not part of the digest either."""
    seen: tuple[int, ...] | None = None
    """Token ids of `messages` up to the assistant's last one, as an engine saw and produced them; the prompt continues
    from these. Not part of the digest: earlier replies hold them."""


# Defaults omitted: journals hold completions, and those without token ids look as they did before there were any.
class Completion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One text that a model produced."""

    text: str
    finish_reason: FinishReason
    tokens: int
    """Completion tokens, the end-of-sequence token included where the engine counts it."""
    token_ids: tuple[int, ...] | None = None
    """All `tokens` tokens as sampled, where the request asked for them, those of the end-of-sequence token or the stop
    string that ended the completion included. None for a rejected completion."""
    logprobs: tuple[float, ...] | None = None
    """Log-probabilities of `token_ids`, where asked for, under the distribution that they were drawn from (temperature,
    top_p and schema applied); of greedy completions, under that of temperature 1."""

    @property
    def truncated(self) -> bool:
        """True where the text is not all that the model had to say."""
        return self.finish_reason in ("length", "overlong")


class Wasted(msgspec.Struct, frozen=True):
    """Attempts that a request took beside its answer."""

    attempts: int = 0
    tokens: int = 0
    """Tokens that they may have cost, partly estimated; none of the reply's own."""

    def __add__(self, other: "Wasted") -> "Wasted":
        return Wasted(self.attempts + other.attempts, self.tokens + other.tokens)


CONTROL = "control"
"""Kind of the attempts that asked something else, which was answered, to see that it is the request that fails."""


# vLLM: "maximum context length", "longer than the maximum model length"; SGLang: "longer than the model's context
# length"; llama.cpp: "exceeds the available context size"; vendors: "context_length_exceeded", "prompt is too long".
_TOO_LONG = re.compile(r"context|longer than|too long|too many tokens", re.IGNORECASE)


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one request: `sampling.n` completions and their cost."""

    completions: tuple[Completion, ...]
    prompt_tokens: int
    seconds: float
    """Wall-clock seconds that the engine worked on the request, failed attempts included; the wait for a slot or
    between attempts is not work. vLLM's own queue is counted: it does not tell."""
    error: str | None = None
    """Why the request was rejected, when it was."""
    prompt_ids: tuple[int, ...] | UnsetType = UNSET
    """Token ids of the prompt as the engine saw it, where the request asked for them. Unset: journals leave it out."""
    wasted: dict[str, Wasted] | UnsetType = UNSET
    """By kind (`http_500`, `timed_out`, ...), where there were any."""

    @property
    def outgrew_context(self) -> bool:
        """True where the request was refused because its prompt was too long, as far as the engine's reason says so."""
        return self.error is not None and bool(_TOO_LONG.search(self.error)) and "chat template" not in self.error

    @property
    def completion_tokens(self) -> int:
        """Tokens of all completions together."""
        return sum(c.tokens for c in self.completions)


MAX_CHARS_PER_TOKEN = 128
"""More characters for each token than a text has (ours): no more are in the longest tokens of the vocabularies in use,
which are runs of blanks; ordinary text has 4."""


def bounded(reply: Reply, request: Request) -> Reply:
    """Return the reply with every text cut that is longer than the request's `max_tokens` tokens can be.

    A server may not honour `max_tokens`: what it sends beyond would be read, recorded and shown in later prompts.
    """
    longest = MAX_CHARS_PER_TOKEN * request.sampling.max_tokens
    if all(len(completion.text) <= longest for completion in reply.completions):
        return reply
    completions = (
        one
        if len(one.text) <= longest
        else msgspec.structs.replace(one, text=one.text[:longest], finish_reason="overlong")
        for one in reply.completions
    )
    return msgspec.structs.replace(reply, completions=tuple(completions))


DECIMALS = 6
"""Of log-probabilities (ours): more than two engines agree in, and half of a journal's bytes."""


def rounded(reply: Reply) -> Reply:
    """Return the reply with log-probabilities of few decimals, which are the same when a journal gives them back."""
    if all(completion.logprobs is None for completion in reply.completions):
        return reply
    completions = (
        msgspec.structs.replace(one, logprobs=one.logprobs and tuple(np.round(one.logprobs, DECIMALS).tolist()))
        for one in reply.completions
    )
    return msgspec.structs.replace(reply, completions=tuple(completions))


class LanguageModel(Protocol):
    """An engine serving one model. Safe to call from many coroutines at once; it batches or pools by itself.

    Every engine passes the conformance suite `evorun.testing.check_engine`.
    """

    @property
    def name(self) -> str:
        """Identity of the model (`ModelConfig.identity`), part of every request's digest; the engine is not."""
        ...

    async def complete(self, request: Request) -> Reply:
        """Answer one request.

        A request that this engine cannot serve comes back as `rejected` completions. Raises EngineError when the
        engine as a whole is unusable. Cancelling the call frees whatever the request held in the engine.
        """
        ...

    async def close(self) -> None:
        """Release connections, processes and device memory; idempotent."""
        ...


@runtime_checkable
class TakesAdapters(Protocol):
    """An engine that can serve its model under LoRA adapters which are made while it runs, as training makes them."""

    async def under(self, folder: Path, name: str) -> LanguageModel:
        """Return a view of this engine: the same model under the adapter in `folder`, with `name` as its name.

        The model itself is served unchanged beside the view, in the same batches. Closing the view releases nothing.
        Only the views of the two latest calls are valid: the engine drops the adapters of earlier ones, so that memory
        does not grow. `folder` is read by this call only. Raises EngineError when the engine takes no adapters, or
        this one does not fit.
        """
        ...


@runtime_checkable
class Sleeps(Protocol):
    """An engine that can lend the memory of its GPUs to a trainer."""

    def asleep(self) -> AbstractAsyncContextManager[None]:
        """Free the memory while the block runs: requests under way end first, later ones wait until it has ended."""
        ...


@runtime_checkable
class Trained(Protocol):
    """A model whose weights change from training step to training step."""

    @property
    def name(self) -> str:
        """Identity of the model that is trained."""
        ...

    def at(self, step: int) -> LanguageModel:
        """Return the model with the weights of a step; its name identifies these weights, also after later updates."""
        ...

    async def close(self) -> None:
        """Release connections, processes and memory; idempotent."""
        ...


def rejected(request: Request, reason: str, *, prompt_tokens: int = 0, seconds: float = 0.0) -> Reply:
    """Return the reply that an engine gives for a request which it refuses."""
    empty = Completion(text="", finish_reason="rejected", tokens=0)
    return Reply(completions=(empty,) * request.sampling.n, prompt_tokens=prompt_tokens, seconds=seconds, error=reason)
