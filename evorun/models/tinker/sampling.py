"""Samples completions through Tinker's API: prompts are rendered here and sent as token ids."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from jinja2 import TemplateError
from msgspec import UNSET

from evorun.errors import EngineError, first_line
from evorun.models.base import Completion, Reply, Request, make_rejection
from evorun.models.channels import find_channels
from evorun.models.chat import PromptTokenizer, load_tokenizer
from evorun.models.config import ModelConfig
from evorun.models.embedded import resolve
from evorun.models.tinker.service import explain


class Sampler:
    """Turns requests into prompts of one model, and samples into replies. Belongs to one event loop."""

    def __init__(self, model: ModelConfig, timeout: float | None) -> None:
        """timeout: seconds for a request, including waits in the server's queue; None: no limit.

        Raises EngineError when the tokenizer cannot be loaded.
        """
        self._model = model
        self._timeout = timeout
        self._tokenizer = load_tokenizer(model)
        self._channels = find_channels(self._tokenizer)
        self._prompts = PromptTokenizer(self._tokenizer, model)
        self._stops = sorted({*end_tokens(model, self._tokenizer), *(self._channels.stops if self._channels else ())})

    async def answer(self, client: Any, request: Request) -> Reply:
        """Return the completions of a request. client: Tinker's SamplingClient, which holds the weights.

        A request that the server refuses gets rejected completions. Raises EngineError for all other failures.
        """
        started = time.perf_counter()
        try:
            prompt = await self._prompts.token_ids(request)
        except (TemplateError, ValueError) as error:
            return make_rejection(request, first_line(error), seconds=time.perf_counter() - started)
        context = self._model.context_length
        room = context - len(prompt)
        if room < 1:
            reason = f"prompt has {len(prompt)} tokens, the context takes {context} with the completion"
            return make_rejection(request, reason, prompt_tokens=len(prompt))
        sampling = request.sampling
        if request.logprobs and (sampling.temperature not in (0, 1) or sampling.top_p != 1):
            reason = "Tinker's API states no log-probabilities for temperatures other than 1, or for top_p below 1"
            return make_rejection(request, reason, prompt_tokens=len(prompt))
        if sampling.confidence is not UNSET:
            reason = "Tinker's API gives no log-probabilities of the likeliest tokens, which confidences need"
            return make_rejection(request, reason, prompt_tokens=len(prompt))
        try:
            sampled = client.sample(**self._arguments(request, prompt, room))
            response = await asyncio.wait_for(sampled.result_async(), self._timeout)
        except Exception as error:
            reason = explain("sampling", error)
            if is_refusal(error):
                spent = time.perf_counter() - started
                return make_rejection(request, reason, prompt_tokens=len(prompt), seconds=spent)
            advice = "`evorun resume RUN_DIR` goes on from here"
            raise EngineError(f"model '{self._model.id}': {reason}; {advice}") from error
        completions = tuple(self._completion(request, sequence) for sequence in response.sequences)
        if sampling.temperature == 0:  # one was drawn: all would be equal
            completions *= sampling.n
        return Reply(
            completions=completions,
            prompt_tokens=len(prompt),
            seconds=time.perf_counter() - started,
            prompt_ids=tuple(prompt) if self._gives_ids(request) else UNSET,
            cached_tokens=int(getattr(response, "prompt_cache_hit_tokens", 0)) or UNSET,
        )

    def close(self) -> None:
        """End the tokenizer's thread; idempotent."""
        self._prompts.close()

    def _arguments(self, request: Request, prompt: Sequence[int], room: int) -> dict[str, Any]:
        from tinker import types

        sampling = request.sampling
        # The API takes texts or token ids, not both.
        stop: list[Any] = list(self._stops)
        if sampling.stop:
            stop = [*sampling.stop, *(self._tokenizer.decode([token]) for token in self._stops)]
        return {
            "prompt": types.ModelInput.from_ints(list(prompt)),
            "num_samples": 1 if sampling.temperature == 0 else sampling.n,
            "sampling_params": types.SamplingParams(
                max_tokens=min(sampling.max_tokens, room),
                seed=request.seed,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                stop=stop,
            ),
        }

    def _completion(self, request: Request, sequence: Any) -> Completion:
        ids = tuple(sequence.tokens)
        logprobs = None if sequence.logprobs is None else tuple(sequence.logprobs)
        if request.logprobs and (logprobs is None or len(logprobs) != len(ids)):
            raise EngineError(
                f"model '{self._model.id}': expected Tinker's server to give a log-probability for each of {len(ids)} "
                f"tokens, got {0 if logprobs is None else len(logprobs)}; training needs them"
            )
        if self._channels is not None:
            text = self._channels.text(ids, starts_in_final=request.json_schema is not None)
        else:
            ended = ids and ids[-1] in self._stops
            text = self._tokenizer.decode(ids[:-1] if ended else ids, skip_special_tokens=True)
        for stop in request.sampling.stop:
            text = text.partition(stop)[0]
        return Completion(
            text=text,
            finish_reason="stop" if sequence.stop_reason == "stop" else "length",
            tokens=len(ids),
            token_ids=ids if self._gives_ids(request) else None,
            logprobs=logprobs if request.logprobs else None,
        )

    def _gives_ids(self, request: Request) -> bool:
        # The next turn continues from the ids of a turn in channels, whose text is only a part of it.
        return request.token_ids or self._channels is not None


def is_refusal(error: BaseException) -> bool:
    """Tell whether the server refused this request because of its content."""
    category = getattr(error, "category", None)
    return getattr(category, "value", category) == "user" or getattr(error, "status_code", None) in (400, 413, 422)


def end_tokens(model: ModelConfig, tokenizer: Any) -> set[int]:
    """Return the tokens that end a completion; chat models often have more of them than their tokenizer names."""
    from transformers.utils.hub import cached_file

    declared: Any = None
    try:
        file = cached_file(resolve(model), "generation_config.json", _raise_exceptions_for_missing_entries=False)
        if file is not None:
            with open(file, "rb") as written:
                declared = msgspec.json.decode(written.read()).get("eos_token_id")
    except (OSError, msgspec.DecodeError):  # the tokenizer's own token is left
        declared = None
    named = declared if isinstance(declared, list) else [declared]
    return {token for token in (*named, tokenizer.eos_token_id) if token is not None}
