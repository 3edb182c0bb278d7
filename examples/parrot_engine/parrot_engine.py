"""An engine in one module: a parrot, whose words are those of the prompt. Put your own model's client in its place."""

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from msgspec.structs import replace

from evorun.fields import PositiveInt
from evorun.models import Completion, LanguageModel, Reply, Request, make_rejection
from evorun.models.config import EngineConfig, ModelConfig


class Parrot:
    """Answers with words of the prompt in random order; a token is a word with the blank before it."""

    def __init__(self, name: str, context_length: int, stop_rate: int) -> None:
        self.name = name
        self._context_length = context_length
        self._stop_rate = stop_rate

    async def complete(self, request: Request) -> Reply:
        prompt = [word for message in request.messages for word in message["content"].split()]
        if len(prompt) >= self._context_length:
            return make_rejection(request, f"a prompt of {len(prompt):,} words exceeds {self._context_length:,}")
        if request.logprobs:
            return make_rejection(request, "the parrot has no log-probabilities")
        if request.sampling.confidence:
            return make_rejection(request, "the parrot has no confidences")
        if request.seen is not None:
            return make_rejection(request, "the parrot does not go on from token ids")
        await asyncio.sleep(0)  # a client would wait here for its server, and let others go on
        room = min(request.sampling.max_tokens, self._context_length - len(prompt))
        # The text depends on the request alone: not on other requests, nor on the order in which they come.
        content = json.dumps([request.messages, request.sampling.temperature and request.seed])
        rng = np.random.default_rng(list(hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()))
        completions = tuple(self._speak(request, prompt, room, rng) for _ in range(request.sampling.n))
        reply = Reply(completions=completions, prompt_tokens=len(prompt), seconds=0.0)
        if request.token_ids:  # training asks for them
            return replace(reply, prompt_ids=tuple(map(_number, prompt)))
        return reply

    def _speak(self, request: Request, prompt: Sequence[str], room: int, rng: np.random.Generator) -> Completion:
        if request.json_schema is not None:
            words = json.dumps(_fill(request.json_schema, rng)).split()
        else:
            words = rng.choice(prompt or ["?"], 1 + rng.poisson(self._stop_rate)).tolist()
        text = " ".join(words[:room])
        reason: Literal["stop", "length"] = "stop" if len(words) <= room else "length"
        if found := [place for stop in request.sampling.stop if (place := text.find(stop)) >= 0]:
            text, reason = text[: min(found)], "stop"
        said = words[: min(room, len(text.split()) + bool(found))]
        spoken = Completion(text=text, finish_reason=reason, tokens=max(1, len(said)))
        return replace(spoken, token_ids=tuple(map(_number, said))) if request.token_ids else spoken

    async def close(self) -> None:
        """Hold nothing, so release nothing."""


def _fill(schema: dict[str, Any], rng: np.random.Generator) -> Any:
    """Return a value that fits a schema of evorun's: objects, texts, numbers, lists."""
    if "enum" in schema:
        return schema["enum"][rng.integers(len(schema["enum"]))]
    if schema.get("type") == "object":
        return {key: _fill(value, rng) for key, value in schema.get("properties", {}).items()}
    return {"string": "So it is."[: schema.get("maxLength", 9)], "number": 1, "integer": 1, "array": []}.get(
        str(schema.get("type"))
    )


def _number(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=3).digest())


@dataclass
class ParrotConfig(EngineConfig):
    """The settings of `engine=parrot`."""

    name: str = "parrot"
    stop_rate: PositiveInt = 12
    """Mean number of words after the first."""

    async def open(self, model: ModelConfig) -> LanguageModel:
        return Parrot(self.journal_name(model), model.context_length, self.stop_rate)
