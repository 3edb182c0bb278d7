"""The protocol between methods and engines: chat messages in, completions and their cost out.

Nothing here knows a task, a method, or which engine serves a model.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypedDict, runtime_checkable

import msgspec
from msgspec import UNSET, Meta, UnsetType

Role = Literal["system", "user", "assistant", "tool"]
"""tool: a tool's answer to the previous turn of the assistant. Engines refuse it if the template lacks this role."""


class Message(TypedDict):
    """One chat turn."""

    role: Role
    content: str


FinishReason = Literal["stop", "length", "overlong", "low_confidence", "rejected"]
"""The reason for which a completion ended.

- `stop`: an end-of-sequence token, a stop string, or the end of the JSON schema.
- `length`: `max_tokens` or the context was exhausted.
- `overlong`: the engine gave more text than `max_tokens` tokens can have, and evorun cut it. No engine gives this
  reason itself.
- `low_confidence`: the mean confidence of the last tokens fell below `Confidence.minimum`, and the engine ended it.
- `rejected`: the engine refused this request (prompt longer than the context, content filter). The text is empty, and
  `Reply.error` gives the reason.
"""


PositiveCount = Annotated[int, Meta(ge=1)]


class Confidence(msgspec.Struct, frozen=True, kw_only=True):
    """A request for the model's confidence in its own tokens (DeepConf, arXiv 2508.15260, section 2).

    A token's confidence is minus the mean of the `top` largest log-probabilities of the next token, in nats, before
    temperature and top_p; what a schema forbids does not count. A model that is sure of one token has a high value,
    since the others are then unlikely. The engine reduces them to one float16 per token: `top` log-probabilities of
    each token would make a journal twenty times as large.
    """

    top: PositiveCount = 20
    """k (the paper's and vLLM's largest number)."""
    tokens: bool = False
    """True: the completion has each token's confidence. False: only their mean."""
    window: PositiveCount = 2048
    """Number of tokens over which the mean is compared with `minimum`."""
    minimum: float | None = None
    """Threshold: the engine ends a completion as soon as the mean confidence of its last `window` tokens is below;
    while it is shorter, it goes on. None: no threshold. Only for requests of one completion."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters of a request; the same names and meanings on every engine."""

    temperature: float = 1.0
    """0 means greedy decoding."""
    top_p: float = 1.0
    max_tokens: int = 1024
    """Upper bound on completion tokens."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion; the text does not contain the string itself."""
    n: int = 1
    """Completions to draw for the prompt."""
    confidence: Confidence | UnsetType = UNSET
    """Ask for confidences. Part of the request's digest, as they are part of the reply and a threshold changes the
    text; a request without them has the digest that it had before they existed."""

    def __post_init__(self) -> None:
        """Raise ValueError for a threshold in a request of several completions."""
        if self.n > 1 and self.confidence is not UNSET and self.confidence.minimum is not None:
            raise ValueError(f"confidence.minimum: expected n=1 with a threshold, got n={self.n}")


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt, and the way to complete it."""

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    seed: int = 0
    """Sampling seed, in [0, 2**31). Engines that cannot honour a seed ignore it."""
    json_schema: dict[str, Any] | None = None
    """Schema of the JSON value that the completion text must be, or None."""
    hints: Mapping[str, Any] = {}
    """For the simulated engine only (problem id, role, subject of the prompt). Real engines never read them, and they
    are not part of the request's digest."""
    token_ids: bool = False
    """Ask for the token ids of prompt and completions. Not part of the digest: it does not change completions."""
    logprobs: bool = False
    """Also ask for the log-probabilities of the completions' tokens. Not part of the digest either."""
    seen: tuple[int, ...] | None = None
    """Token ids of `messages` up to the assistant's last one, as an engine saw and produced them; the prompt continues
    from these. Not part of the digest: earlier replies hold them."""


# Omits defaults: journals hold completions, and those without token ids keep their original form.
class Completion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A text that a model produced."""

    text: str
    finish_reason: FinishReason
    tokens: int
    """Number of completion tokens, including the end-of-sequence token if the engine counts it."""
    token_ids: tuple[int, ...] | None = None
    """The sampled tokens, if requested, including the end-of-sequence token or stop string that ended the completion.
    None for a rejected completion."""
    logprobs: tuple[float, ...] | None = None
    """Log-probabilities of `token_ids`, if requested, under the sampling distribution (with temperature, top_p and
    schema); for greedy completions, at temperature 1."""
    confidence: float | None = None
    """Mean confidence of the tokens, in nats, if requested; see `Confidence`."""
    token_confidences: bytes | None = None
    """Each token's confidence, if requested: float16, little-endian, base64 in JSON. `read_confidences` decodes it."""

    @property
    def truncated(self) -> bool:
        """True if the text ends before the model had finished."""
        return self.finish_reason in ("length", "overlong", "low_confidence")


class Wasted(msgspec.Struct, frozen=True):
    """Failed attempts of a request, in addition to its answer."""

    attempts: int = 0
    tokens: int = 0
    """Tokens that the attempts may have cost, partly estimated; excludes those of the reply."""

    def __add__(self, other: "Wasted") -> "Wasted":
        return Wasted(self.attempts + other.attempts, self.tokens + other.tokens)


CONTROL = "control"
"""Kind of attempts with another request: its success shows that the failure is due to the request itself."""


# vLLM: "maximum context length", "longer than the maximum model length"; SGLang: "longer than the model's context
# length"; llama.cpp: "exceeds the available context size"; vendors: "context_length_exceeded", "prompt is too long".
_TOO_LONG = re.compile(r"context|longer than|too long|too many tokens", re.IGNORECASE)


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request: `sampling.n` completions and their cost."""

    completions: tuple[Completion, ...]
    prompt_tokens: int
    seconds: float
    """Wall-clock seconds that the engine worked on the request, including failed attempts but not waits for a slot or
    between attempts. Time in vLLM's queue counts, since vLLM does not report it."""
    error: str | None = None
    """Reason for a rejection, or None."""
    prompt_ids: tuple[int, ...] | UnsetType = UNSET
    """Token ids of the prompt as the engine saw it, if requested. Journals omit an unset value."""
    wasted: dict[str, Wasted] | UnsetType = UNSET
    """Failed attempts by kind (`http_500`, `timed_out`, ...), if there were any."""
    cached_tokens: int | UnsetType = UNSET
    """Prompt tokens that the vendor had in its cache, among `prompt_tokens`, if it states any."""
    version: int | UnsetType = UNSET
    """Number of updates of the weights that drew all tokens of the completions, in a run that trains them."""

    @property
    def outgrew_context(self) -> bool:
        """True if the engine's error says that it refused the request because its prompt was too long."""
        return self.error is not None and bool(_TOO_LONG.search(self.error)) and "chat template" not in self.error

    @property
    def completion_tokens(self) -> int:
        """Total tokens of all completions."""
        return sum(c.tokens for c in self.completions)


MAX_CHARS_PER_TOKEN = 128
"""Upper bound on characters per token (ours): the longest tokens of current vocabularies, runs of blanks, have no more.
Ordinary text has 4."""


def cut_long_texts(reply: Reply, request: Request) -> Reply:
    """Return the reply, with every text cut to the maximum length of `max_tokens` tokens.

    A server may ignore `max_tokens`. Without the cut, evorun would read and record the surplus, and show it in later
    prompts.
    """
    longest = MAX_CHARS_PER_TOKEN * request.sampling.max_tokens
    if all(len(completion.text) <= longest for completion in reply.completions):
        return reply
    completions = (
        completion
        if len(completion.text) <= longest
        else msgspec.structs.replace(completion, text=completion.text[:longest], finish_reason="overlong")
        for completion in reply.completions
    )
    return msgspec.structs.replace(reply, completions=tuple(completions))


DECIMALS = 6
"""Decimals of log-probabilities (ours): two engines agree in fewer, and full precision would double journals' size."""


def round_logprobs(reply: Reply) -> Reply:
    """Return the reply with log-probabilities rounded to few decimals, which a journal reproduces exactly."""
    if all(completion.logprobs is None for completion in reply.completions):
        return reply
    import numpy as np  # here: a shell that completes a word imports this module

    completions = (
        msgspec.structs.replace(
            completion,
            logprobs=completion.logprobs and tuple(np.round(completion.logprobs, DECIMALS).tolist()),
        )
        for completion in reply.completions
    )
    return msgspec.structs.replace(reply, completions=tuple(completions))


class LanguageModel(Protocol):
    """An engine that serves one model. Safe to call from many coroutines at once; it batches or pools requests itself.

    Every engine passes the conformance suite `evorun.testing.check_engine`.
    """

    @property
    def name(self) -> str:
        """Identity of the model (`ModelConfig.identity`). It is part of every request's digest; the engine is not."""
        ...

    async def complete(self, request: Request) -> Reply:
        """Answer a request.

        A request that this engine cannot serve gets `rejected` completions. Raises EngineError when the whole engine is
        unusable. Cancelling the call frees the request's resources in the engine.
        """
        ...

    async def close(self) -> None:
        """Release connections, processes and device memory; idempotent."""
        ...


@runtime_checkable
class TakesAdapters(Protocol):
    """An engine that can load new LoRA adapters for its model while it runs, for example from training."""

    async def with_adapter(self, folder: Path, name: str) -> LanguageModel:
        """Return a view of this engine: the same model under the adapter in `folder`, named `name`.

        The engine continues to serve the model without the adapter, in the same batches. Closing the view releases
        nothing. Only the views of the latest calls are valid, two of them unless the engine is opened for more
        (`EngineConfig.for_adapters`): it drops earlier adapters to bound its memory. Only this call reads `folder`, and
        an engine that has slept. Raises EngineError if the engine takes no adapters, or if this one does not fit.
        """
        ...


@runtime_checkable
class TakesWeights(LanguageModel, Protocol):
    """An engine that can replace all weights of its model while it runs, for example from training."""

    async def with_weights(self, folder: Path, name: str) -> LanguageModel:
        """Return a view of this engine, named `name`: the same model with the weights in `folder`.

        The folder is one that transformers loads; only this call reads it, and an engine that has slept. The engine
        holds one set of weights: only the view of the latest call is valid, and the engine itself serves the same
        weights. No request may be in progress. Closing the view releases nothing.

        Raises EngineError if the engine cannot replace its weights, or if these do not fit its model.
        """
        ...


class WeightReceiver(Protocol):
    """The engine's end of a transfer of weights from a trainer's memory."""

    number: int
    """Of the engine's start in this process: another one has not yet met the trainer."""
    processes: int
    """The engine's processes, each on a GPU of its own."""

    async def call(self, step: str, payload: Mapping[str, Any]) -> None:
        """Carry out a step in all processes. Raises EngineError if vLLM cannot.

        The steps are vLLM's: `init_weight_transfer_engine`, and for each transfer `start_weight_update`,
        `update_weights` (of some tensors, as often as needed) and `finish_weight_update`.
        """
        ...


@runtime_checkable
class ReceivesWeights(TakesWeights, Protocol):
    """An engine that can also receive all weights of its model from a trainer's memory."""

    async def receive_weights(self, name: str, send: Callable[[WeightReceiver], Awaitable[None]]) -> LanguageModel:
        """Return a view of this engine, named `name`: the same model with the weights that `send` has sent.

        As `with_weights`, but no folder holds them: an engine that has slept at level 2, or has started again, raises
        WeightsLost on the next request.
        """
        ...


class Waking(NamedTuple):
    """A sleep of an engine that has ended, and the check of its weights."""

    seconds: float
    """To fall asleep, to wake and to check."""
    distance: float
    """Mean absolute difference of a fixed text's log-probabilities before and after, in nats."""
    reloads: int
    """1 if the weights had to be read from disk again, else 0."""


@runtime_checkable
class Sleeps(Protocol):
    """An engine that can lend the memory of its GPUs to a trainer."""

    def asleep(self) -> AbstractAsyncContextManager[None]:
        """Free the memory while the block runs: requests in progress finish first, later ones wait for its end.

        The engine wakes on its next request, which raises EngineError if its weights are no longer those before.
        """
        ...

    def take_wakings(self) -> Sequence[Waking]:
        """Return the wakings since the last call."""
        ...


@runtime_checkable
class Trained(Protocol):
    """A model whose weights change between training steps."""

    @property
    def name(self) -> str:
        """Identity of the trained model."""
        ...

    def at(self, step: int) -> LanguageModel:
        """Return the model with the weights of a step; its name identifies these weights, even after later updates."""
        ...

    async def close(self) -> None:
        """Release connections, processes and memory; idempotent."""
        ...


def make_rejection(request: Request, reason: str, *, prompt_tokens: int = 0, seconds: float = 0.0) -> Reply:
    """Return an engine's reply to a request that it refuses."""
    empty = Completion(text="", finish_reason="rejected", tokens=0)
    return Reply(completions=(empty,) * request.sampling.n, prompt_tokens=prompt_tokens, seconds=seconds, error=reason)
