"""Continuous batching for the transformers engine: each step decodes one token for every row in flight.

Rows join the batch as soon as there is room, and leave it when they end. Short judgments therefore never wait for long
generations beside them. Prompts are processed once and shared (see `kv_cache`). The decoder is synchronous; the engine
runs it in one worker thread.

Imports torch: only `evorun.models.transformers.engine` imports this module, when it opens a model.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jinja2 import TemplateError
from msgspec import UNSET

from evorun.errors import EngineError
from evorun.models.base import Completion, FinishReason, Reply, Request, make_rejection
from evorun.models.channels import find_channels
from evorun.models.chat import prompt_token_ids
from evorun.models.confidence import WindowMonitor, confidence_fields
from evorun.models.config import ModelConfig
from evorun.models.transformers.kv_cache import PrefixStore, RowCache
from evorun.models.transformers.row_sampling import Draw, Grammars, next_tokens


@dataclass(eq=False)
class Ticket:
    """A request on its way through the decoder."""

    request: Request
    deliver: Callable[[Reply | EngineError], None]
    """Receives the reply, or the error that ended the engine; called in the worker thread."""
    started: float | None = None
    """Time at which its prompt was processed, in seconds of `time.perf_counter`."""
    cancelled: bool = False
    """Any thread may set it; the ticket's rows leave the batch before the next step."""
    prompt: tuple[int, ...] = ()
    completions: dict[int, Completion] = field(default_factory=dict)
    """Finished completions by index."""
    error: str | None = None


@dataclass(eq=False)
class Row:
    """A completion in progress."""

    ticket: Ticket
    index: int
    draw: Draw
    limit: int
    """Maximum completion tokens under `max_tokens` and the context."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    monitor: WindowMonitor | None = None
    """Of the confidence, if the request asks for it."""


@dataclass(eq=False)
class _Waiting:
    """A checked request with rows that have not joined the batch yet."""

    ticket: Ticket
    rows: deque[Row]


class BatchDecoder:
    """Decodes tickets with one model. `submit`, then `step` while `busy`; not thread-safe."""

    def __init__(
        self, model: Any, tokenizer: Any, config: ModelConfig, max_batch_size: int, prefix_cache_tokens: int
    ) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._config = config
        self._max_batch_size = max_batch_size
        self._device: torch.device = model.device
        # Models without learned positions may declare no maximum length.
        positions = int(getattr(model.config.get_text_config(), "max_position_embeddings", None) or 2**31)
        self._context = min(config.context_length, positions)
        self._channels = find_channels(tokenizer)
        self._eos = eos_tokens(model, tokenizer).union(self._channels.stops if self._channels is not None else ())
        self._grammars = Grammars(tokenizer, model.config.get_text_config().vocab_size, sorted(self._eos))
        self._prefixes = PrefixStore(prefix_cache_tokens)
        self._cache = RowCache(max_batch_size)
        self._rows: list[Row] = []
        self._waiting: deque[_Waiting] = deque()

    @property
    def busy(self) -> bool:
        """True while any ticket is unfinished."""
        return bool(self._rows or self._waiting)

    def forget(self) -> None:
        """Drop cached prompts and free the buffers, as after a change of the weights. Never call it while `busy`."""
        self._prefixes.clear()
        self._cache.clear()

    @property
    def in_flight(self) -> int:
        """Number of completions that are decoded together now."""
        return len(self._rows)

    @property
    def weights(self) -> int:
        """Bytes of the model's weights."""
        return sum(tensor.nbytes for tensor in (*self._model.parameters(), *self._model.buffers()))

    def restart(self, max_batch_size: int) -> None:
        """Begin all unfinished requests again, fewer completions at once, as after a step that has failed.

        They get the same completions but for rounding, since a random stream depends only on the request.
        """
        tickets = dict.fromkeys([*(row.ticket for row in self._rows), *(waiting.ticket for waiting in self._waiting)])
        self._rows.clear()
        self._waiting.clear()
        self._prefixes.clear()
        self._max_batch_size = max_batch_size
        self._cache = RowCache(max_batch_size)
        for ticket in tickets:
            ticket.completions.clear()
            self.submit(ticket)

    def submit(self, ticket: Ticket) -> None:
        """Check a request and queue its rows. A request that cannot be served is rejected at once."""
        request = ticket.request
        try:
            open_final_channel = request.json_schema is not None
            prompt = tuple(
                prompt_token_ids(
                    self._tokenizer, request.messages, self._config, request.seen, open_final_channel=open_final_channel
                )
            )
            grammar = self._grammars.matcher(request.json_schema) if request.json_schema is not None else None
        except (TemplateError, ValueError) as error:
            return ticket.deliver(make_rejection(request, str(error)))
        ticket.prompt = prompt
        room = self._context - len(prompt)
        if room < 1:
            reason = f"prompt has {len(prompt)} tokens, the context takes {self._context} with the completion"
            return ticket.deliver(make_rejection(request, reason, prompt_tokens=len(prompt)))
        limit = min(request.sampling.max_tokens, room)
        rows: deque[Row] = deque()
        for index in range(request.sampling.n):
            # Each completion's random stream depends only on the request's seed, not on the batch around it.
            rng = np.random.default_rng((request.seed, index))
            own_grammar = grammar.deep_copy() if grammar is not None else None
            draw = Draw(request.sampling, rng, own_grammar, request.logprobs)
            asked = request.sampling.confidence
            monitor = None if asked is UNSET else WindowMonitor(asked)
            rows.append(Row(ticket, index, draw, limit, monitor=monitor))
        self._waiting.append(_Waiting(ticket, rows))

    def step(self) -> None:
        """Drop cancelled rows, admit waiting ones, and decode one token for each row."""
        self._waiting = deque(w for w in self._waiting if not w.ticket.cancelled)
        # From the last row down, here and below, because the last row moves to the index of a removed row.
        for index in reversed(range(len(self._rows))):
            if self._rows[index].ticket.cancelled:
                self._remove(index)
        self._admit()
        if self._rows:
            logits = self._cache.forward(self._model, [row.tokens[-1] for row in self._rows], self._device)
            for index in sorted(self._extend(self._rows, logits), reverse=True):
                self._remove(index)

    def _admit(self) -> None:
        """Fill the batch with waiting rows, and draw their first tokens."""
        while self._waiting and len(self._rows) < self._max_batch_size:
            waiting = self._waiting[0]
            waiting.ticket.started = waiting.ticket.started or time.perf_counter()
            prefix = self._prefixes.prefill(self._model, waiting.ticket.prompt, self._device)
            room = self._max_batch_size - len(self._rows)
            rows = [waiting.rows.popleft() for _ in range(min(room, len(waiting.rows)))]
            # The prompt's logits give the first token, so a row may end without joining.
            ended = self._extend(rows, prefix.logits.expand(len(rows), -1))
            joining = [row for index, row in enumerate(rows) if index not in ended]
            if joining:
                self._cache.add(prefix, len(joining))
                self._rows += joining
            if not waiting.rows:
                self._waiting.popleft()

    def _extend(self, rows: Sequence[Row], logits: torch.Tensor) -> set[int]:
        """Draw a token for each row, deliver completed replies, and return the indices of ended rows."""
        ended = set()
        drawn = next_tokens(logits, [row.draw for row in rows])
        for index, (row, token, logprob, confidence) in enumerate(zip(rows, *drawn, strict=True)):
            row.tokens.append(token)
            row.logprobs.append(logprob)
            unsure = row.monitor is not None and row.monitor.add(confidence)
            completion = self._completion(row)
            if completion is None and unsure:
                completion = self._finished(row, self._text(row), "low_confidence")
            if completion is None:
                continue
            ended.add(index)
            ticket, n = row.ticket, row.ticket.request.sampling.n
            ticket.completions[row.index] = completion
            if len(ticket.completions) == n:
                ticket.deliver(
                    Reply(
                        completions=tuple(ticket.completions[i] for i in range(n)),
                        prompt_tokens=len(ticket.prompt),
                        seconds=time.perf_counter() - (ticket.started or 0.0),
                        error=ticket.error,
                        prompt_ids=ticket.prompt if self._gives_ids(ticket.request) else UNSET,
                    )
                )
        return ended

    def _completion(self, row: Row) -> Completion | None:
        """Return the row's completion if its newest token has ended it, else None."""
        token, grammar = row.tokens[-1], row.draw.grammar
        if grammar is not None:
            grammar.consume_token(token)
            if grammar.is_error():
                row.ticket.error = f"JSON schema cannot be enforced: {grammar.get_error().splitlines()[0]}"
                return Completion(text="", finish_reason="rejected", tokens=0)
        if token in self._eos:
            return self._finished(row, self._text(row), "stop")
        if row.ticket.request.sampling.stop:
            # Search all tokens at each step: a stop string may begin within one token and end within another.
            text = self._text(row)
            found = [at for stop in row.ticket.request.sampling.stop if (at := text.find(stop)) >= 0]
            if found:
                return self._finished(row, text[: min(found)], "stop")
        if grammar is not None and grammar.is_stopped():
            return self._finished(row, self._text(row), "stop")
        if len(row.tokens) >= row.limit:
            return self._finished(row, self._text(row), "length")
        return None

    def _text(self, row: Row) -> str:
        if self._channels is not None:
            return self._channels.text(row.tokens, starts_in_final=row.ticket.request.json_schema is not None)
        tokens = row.tokens[:-1] if row.tokens[-1] in self._eos else row.tokens
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return text

    def _gives_ids(self, request: Request) -> bool:
        # The next turn continues from the ids of a turn in channels, whose text is only a part of it.
        return request.token_ids or self._channels is not None

    def _finished(self, row: Row, text: str, reason: FinishReason) -> Completion:
        ids = tuple(row.tokens) if self._gives_ids(row.ticket.request) else None
        logprobs = tuple(row.logprobs) if row.draw.logprobs else None
        confidences = () if row.monitor is None else row.monitor.values
        return Completion(
            text=text,
            finish_reason=reason,
            tokens=len(row.tokens),
            token_ids=ids,
            logprobs=logprobs,
            **confidence_fields(confidences, row.ticket.request.sampling.confidence),
        )

    def _remove(self, index: int) -> None:
        self._cache.remove(index)
        last = self._rows.pop()
        if index < len(self._rows):
            self._rows[index] = last


def eos_tokens(model: Any, tokenizer: Any) -> set[int]:
    """Return the tokens that end a completion; chat models often have more of them than their tokenizer names."""
    declared = model.generation_config.eos_token_id
    tokens = set(declared) if isinstance(declared, list) else {declared}
    return {token for token in tokens | {tokenizer.eos_token_id} if token is not None}
