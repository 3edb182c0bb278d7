"""The exchange with a server as bytes: requests encoded, responses decoded into typed structures.

The format is that of OpenAI's `POST /chat/completions`, as vLLM, SGLang, llama.cpp and most vendors serve it; of
completions to learn from that of `POST /completions`, with vLLM's token ids. Nothing here opens a connection.
"""

import re
from collections.abc import Mapping, Sequence
from heapq import nlargest
from typing import Annotated, Any

import msgspec
from msgspec import UNSET

from evorun.models.base import Completion, FinishReason, Request
from evorun.models.channels import Channels, tool_call
from evorun.models.chat import adapt_roles
from evorun.models.confidence import confidence_fields, token_confidence
from evorun.models.config import ModelConfig
from evorun.models.server.messages import one_line

BYTES_PER_TOKEN = 4
"""Length of a token where a server reports no usage: a rule of thumb for English text. `ours`."""
MAX_TOKENS = 10**8
"""Largest plausible token count; an answer with more is malformed. Ten times the longest context of a model. `ours`."""

CHAT, TOKENS = "chat/completions", "completions"
"""Endpoints: of messages, and of prompts as token ids."""

INSTEAD = "serve the model with `vllm serve`, or use engine=vllm or engine=transformers"
"""Advice for learning from completions of a server that does not return what learning needs."""
WITHOUT_IDS = (
    f"this server returns no token ids, which learning from completions and model.by_token_ids=true need: {INSTEAD}"
)
WITHOUT_LOGPROBS = (
    f"this server returns no log-probabilities of the tokens, which learning from completions needs: {INSTEAD}"
)

WITHOUT_CONFIDENCES = (
    "this server does not return the log-probabilities of the {top} likeliest tokens, which confidences need: use a "
    "server that does (`vllm serve`, OpenAI's models without reasoning), a smaller number, or engine=transformers"
)

STRUCTURED_OUTPUTS = ("json_schema", "json_object", "none")

_LENGTH_REASONS = frozenset({"length", "max_tokens", "model_length"})
_FILTER_REASONS = frozenset({"content_filter", "refusal", "safety", "recitation"})
_BROKEN_REASONS = frozenset({"abort", "error", "insufficient_system_resource"})

# Escape sequences of JSON. Lone surrogates are what neither a pair nor another escape, matched first and kept, takes:
# without the latter, the `\\ud800` of an escaped backslash would be taken for one.
_PAIR = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_SURROGATE = rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
_ESCAPES = re.compile(rb"(?P<kept>" + _PAIR + rb"|\\[^u])|" + _SURROGATE)


# Completions to learn from must be drawn with temperature and top_p alone, or their log-probabilities are not the
# policy's; vLLM, the only server that returns token ids, takes other defaults from generation_config.json.
PLAIN_SAMPLING = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Fields of vLLM that turn off all sampling parameters but temperature and top_p."""


# A server's numbers are not trusted: they are recorded, summed, and set against budgets.
TokenCount = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Logprob = Annotated[float, msgspec.Meta(ge=-1e6, le=1.0)]
"""Up to rounding, at most 0; servers send a large negative number for minus infinity."""


class Part(msgspec.Struct):
    """One part of a message content given as a list (reasoning models of some vendors)."""

    type: str = ""
    text: str | None = None


class Function(msgspec.Struct):
    """A call's tool and its arguments, which are JSON."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct):
    """A tool call as servers return it where their parser removes it from the text."""

    function: Function


class ChatMessage(msgspec.Struct):
    """The assistant's message. `reasoning_content` counts towards tokens but is never part of the text."""

    content: str | list[Part] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: Any = None
    """Calls that the server took out of the text; of whatever form, as no other answer depends on them."""

    @property
    def text(self) -> str:
        """The content's text, its parts joined, and the calls behind it as tasks read them."""
        content = self.content
        if isinstance(content, list):
            content = "".join(part.text for part in content if part.type == "text" and part.text)
        if not self.tool_calls:
            return content or ""
        try:
            calls = msgspec.convert(self.tool_calls, list[ToolCall])
        except msgspec.ValidationError:
            calls = []
        written = [tool_call(call.function.name, call.function.arguments) for call in calls]
        return "\n".join([content, *written] if content else written)


class _Likely(msgspec.Struct):
    logprob: Logprob


class _ChatToken(msgspec.Struct):
    top_logprobs: list[_Likely]


class ChoiceLogprobs(msgspec.Struct):
    """The log-probabilities of a choice's tokens."""

    token_logprobs: tuple[Logprob, ...] | None = None
    """Of the tokens themselves, as `/completions` gives them."""
    # Undecoded, for only confidences need them, and a server may send anything here unasked.
    top_logprobs: msgspec.Raw = msgspec.Raw()
    """Of the likeliest tokens in each place, as `/completions` gives them: by text."""
    content: msgspec.Raw = msgspec.Raw()
    """The same, as `/chat/completions` gives them: an object per token."""

    def read_confidences(self, top: int) -> list[float] | None:
        """Return each token's confidence; None where the log-probabilities of the `top` likeliest are missing."""
        try:
            if bytes(self.content) not in (b"", b"null"):
                tokens = msgspec.json.decode(self.content, type=list[_ChatToken])
                rows = [[likely.logprob for likely in token.top_logprobs] for token in tokens]
            else:
                places = msgspec.json.decode(self.top_logprobs, type=list[dict[str, Logprob]])
                rows = [list(place.values()) for place in places]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        if not rows or min(map(len, rows)) < top:
            return None
        return [token_confidence(nlargest(top, row)) for row in rows]


class Choice(msgspec.Struct):
    """One of the n completions: a message or, where the prompt was token ids, a text."""

    message: ChatMessage | None = None
    text: str | None = None
    finish_reason: str | None = None
    index: int = 0
    token_ids: tuple[TokenId, ...] | None = None
    """vLLM's addition, given when asked for: all tokens as sampled."""
    prompt_token_ids: tuple[TokenId, ...] | None = None
    """Of a prompt given as a text: vLLM's addition, too."""
    logprobs: ChoiceLogprobs | None = None

    @property
    def said(self) -> ChatMessage:
        """The text, as a message."""
        return self.message or ChatMessage(content=self.text)


class Usage(msgspec.Struct):
    """Tokens of the prompt, and of all choices together."""

    prompt_tokens: TokenCount | None = None
    completion_tokens: TokenCount | None = None
    prompt_tokens_details: Any = None
    """OpenAI's: an object with `cached_tokens`. Any other value counts as none: an answer has been paid for."""
    prompt_cache_hit_tokens: Any = None
    """DeepSeek's name for cached tokens."""

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens from the vendor's cache; 0 where it states none."""
        details = self.prompt_tokens_details
        stated = details.get("cached_tokens") if isinstance(details, dict) else self.prompt_cache_hit_tokens
        known = stated if isinstance(stated, int) and not isinstance(stated, bool) else 0
        return min(max(known, 0), self.prompt_tokens or 0)


class ChatResponse(msgspec.Struct):
    """The body of a successful answer."""

    choices: list[Choice]
    usage: Usage | None = None
    prompt_token_ids: tuple[TokenId, ...] | None = None
    """Of the messages: vLLM's addition, given with the choices' ids."""


class Draw(msgspec.Struct, frozen=True, kw_only=True):
    """The completions that one answer contributes to a reply."""

    completions: list[Completion]
    prompt_tokens: int
    cached_tokens: int
    """Those that the server had in its cache."""
    estimated: bool
    """True where the server reports no usage and token counts are estimates from text lengths."""
    error: str | None
    """Why some completions are `rejected`."""


class RequestEncoder:
    """Turns requests into JSON bodies for one model."""

    def __init__(
        self,
        model: ModelConfig,
        *,
        served_name: str,
        max_tokens_field: str,
        structured_outputs: str,
        send_seed: bool,
        extra_body: Mapping[str, Any],
    ) -> None:
        """served_name: the server's name for the model, or for the model under an adapter."""
        self._model = model
        self._max_tokens_field = max_tokens_field
        self._structured_outputs = structured_outputs
        self._send_seed = send_seed
        self._served_name = served_name
        self._extra = {key: value for key, value in extra_body.items() if value is not None}
        self._removed = [key for key, value in extra_body.items() if value is None]
        self._encode = msgspec.json.Encoder().encode

    def encode(
        self,
        request: Request,
        *,
        n: int,
        drawn: int,
        prompt: Sequence[int] | str | None = None,
        stops: Sequence[int] = (),
        **fields: Any,
    ) -> bytes:
        """Return the body that asks for `n` completions, after `drawn` of the same request.

        prompt: token ids or a text in place of the messages, for the endpoint that takes them. stops: ids of tokens
        that end a completion, beside the model's own. fields: in place of evorun's own.
        """
        sampling = request.sampling
        body: dict[str, Any] = {"model": self._served_name}
        if prompt is None:
            body["messages"] = adapt_roles(request.messages, self._model)
            if self._model.chat_template_kwargs:
                body["chat_template_kwargs"] = self._model.chat_template_kwargs
        else:
            body["prompt"] = prompt
        body |= {"temperature": sampling.temperature, "top_p": sampling.top_p}
        body[self._max_tokens_field if prompt is None else "max_tokens"] = sampling.max_tokens
        if n > 1:
            body["n"] = n
        if sampling.stop:
            body["stop"] = sampling.stop
        if stops:
            body["stop_token_ids"] = stops
        if self._send_seed:
            # Another seed for each further call, or a server that gives one completion per call would repeat the first.
            body["seed"] = (request.seed + drawn) % 2**31
        if request.token_ids:
            body |= {"return_token_ids": True, **PLAIN_SAMPLING}
        if request.logprobs:
            body["logprobs"] = 0  # of the tokens drawn, and of no other
        if sampling.confidence is not UNSET:
            top = sampling.confidence.top
            body |= {"logprobs": True, "top_logprobs": top} if prompt is None else {"logprobs": top}
        if request.json_schema is not None and self._structured_outputs == "json_object":
            body["response_format"] = {"type": "json_object"}
        elif request.json_schema is not None and self._structured_outputs == "json_schema":
            schema = {"name": "response", "schema": request.json_schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        body |= {**fields, **self._extra}
        for key in self._removed:
            body.pop(key, None)
        return self._encode(body)


class _Counted(msgspec.Struct):
    """An answer whose choices may be anything."""

    usage: Usage | None = None


_decode_response = msgspec.json.Decoder(ChatResponse).decode
_decode_counted = msgspec.json.Decoder(_Counted).decode


def decode_response(content: bytes) -> ChatResponse:
    """Decode the body of a successful answer.

    Raises ValueError when it is not JSON, has no choices, or has a choice that the server aborted.
    """
    try:
        try:
            response = _decode_response(content)
        except msgspec.DecodeError:
            # Sampled bytes can form half a surrogate pair, which servers in Python escape and strict decoders refuse.
            response = _decode_response(without_lone_surrogates(content))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ValueError(f"not a chat completion ({exc})") from exc
    if not response.choices:
        raise ValueError("no choices")
    for choice in response.choices:
        if choice.message is None and choice.text is None:
            raise ValueError("a choice without a message")
        if _reason(choice) in _BROKEN_REASONS:
            raise ValueError(f"broken off by the server (finish_reason '{choice.finish_reason}')")
    return response


def without_lone_surrogates(content: bytes) -> bytes:
    """Return JSON with a question mark for each escaped surrogate that is not half of a pair."""
    return _ESCAPES.sub(lambda match: match["kept"] or b"?", content)


def spent_tokens(content: bytes, body: bytes) -> int:
    """Return the tokens of an answer that cannot be used, as it states them or else estimated. body: of the request."""
    try:
        usage = _decode_counted(content).usage or Usage()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        usage = Usage()
    if usage.prompt_tokens is not None and usage.completion_tokens is not None:
        return usage.prompt_tokens + usage.completion_tokens
    return (len(body) + len(content)) // BYTES_PER_TOKEN


def read_draw(response: ChatResponse, request: Request, n: int, channels: Channels | None = None) -> Draw:
    """Return at most `n` completions from a response, with their token counts.

    channels: take what completions say from their token ids, not from the server's texts.
    The server counts tokens for all choices together: each choice gets a share in proportion to the bytes of its text
    and reasoning. Where the server counts nothing, tokens are estimated at `BYTES_PER_TOKEN`.
    """
    choices = sorted(response.choices, key=lambda choice: choice.index)[:n]
    usage = response.usage or Usage()
    prompt_tokens, total = usage.prompt_tokens, usage.completion_tokens
    if total is None:
        # Estimates, never zeros: with these a token budget would never be used up.
        tokens = [min(_estimate(_size(choice)), request.sampling.max_tokens) for choice in choices]
    elif len(choices) == 1:
        tokens = [total]
    else:
        tokens = _shares(total, [_size(choice) for choice in choices])
    estimated = prompt_tokens is None or total is None
    if prompt_tokens is None:
        prompt_tokens = _estimate(sum(len(message["content"].encode()) for message in request.messages))
    drawn = [_completion(c, t, request, channels) for c, t in zip(choices, tokens, strict=True)]
    return Draw(
        completions=[completion for completion, _ in drawn],
        prompt_tokens=prompt_tokens,
        cached_tokens=usage.cached_tokens,
        estimated=estimated,
        error=next((error for _, error in drawn if error), None),
    )


def _completion(
    choice: Choice, tokens: int, request: Request, channels: Channels | None
) -> tuple[Completion, str | None]:
    reason = _reason(choice)
    refusal = choice.said.refusal
    if refusal or reason in _FILTER_REASONS:
        error = one_line(f"refused by the model: {refusal}" if refusal else f"stopped by the server's filter: {reason}")
        return Completion(text="", finish_reason="rejected", tokens=tokens), error
    ids = choice.token_ids if request.token_ids else None
    if request.token_ids and ids is None:
        return Completion(text="", finish_reason="rejected", tokens=tokens), WITHOUT_IDS
    logprobs = choice.logprobs.token_logprobs if request.logprobs and choice.logprobs is not None else None
    if request.logprobs and (logprobs is None or (ids is not None and len(logprobs) != len(ids))):
        return Completion(text="", finish_reason="rejected", tokens=tokens), WITHOUT_LOGPROBS
    asked = request.sampling.confidence
    confidences: list[float] | None = []
    if asked is not UNSET:
        confidences = None if choice.logprobs is None else choice.logprobs.read_confidences(asked.top)
        if confidences is None:
            why = WITHOUT_CONFIDENCES.format(top=asked.top)
            return Completion(text="", finish_reason="rejected", tokens=tokens), why
    finish: FinishReason = "length" if reason in _LENGTH_REASONS else "stop"
    text = choice.said.text
    if channels is not None and ids is not None:
        text = channels.text(ids, starts_in_final=request.json_schema is not None)
    # Some servers ignore `stop`, and some models refuse the field.
    found = [at for stop in request.sampling.stop if (at := text.find(stop)) >= 0]
    if found:
        text, finish = text[: min(found)], "stop"
    tokens = tokens if ids is None else len(ids)
    completion = Completion(
        text=text,
        finish_reason=finish,
        tokens=tokens,
        token_ids=ids,
        logprobs=logprobs,
        **confidence_fields(confidences or (), asked),
    )
    return completion, None


def _reason(choice: Choice) -> str:
    return (choice.finish_reason or "stop").lower()


def _size(choice: Choice) -> int:
    """Return the bytes of a completion and of what was thought before it."""
    return len(choice.said.text.encode()) + len((choice.said.reasoning_content or "").encode())


def _estimate(size: int) -> int:
    return max(1, -(-size // BYTES_PER_TOKEN))


def _shares(total: int, sizes: list[int]) -> list[int]:
    """Split `total` in proportion to `sizes`."""
    # The running sum is rounded, not each part, so that the parts add up to the total.
    whole = sum(sizes) or 1
    running, parts, before = 0, [], 0
    for size in sizes[:-1]:
        running += size
        upto = round(total * running / whole)
        parts.append(upto - before)
        before = upto
    return [*parts, total - before]
