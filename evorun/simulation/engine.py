"""The `simulated` engine: in place of weights, a task's simulator with a given skill, which knows the answers."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from evorun.errors import EngineError
from evorun.fields import NonNegativeFloat, PositiveInt
from evorun.models.adapters import SIMULATED
from evorun.models.base import Completion, LanguageModel, Reply, Request
from evorun.models.confidence import confidence_fields, find_end
from evorun.models.config import EngineConfig, ModelConfig
from evorun.simulation.confidence import draw_confidences
from evorun.simulation.simulator import Assesses, Responder, TaskSimulator
from evorun.simulation.skill import DEFAULT_SKILL, Skill

CHARACTERS_PER_TOKEN = 4
"""A rule of thumb for English text, which gives simulated texts a length in tokens."""
_CONFIDENCE = 0xC0F1
"""Part of the seed of confidences."""
SPEED = ("slots", "seconds_per_token", "seconds_per_update", "priced")
"""Settings that affect the time or the price of a simulated model's answers, never their content."""


@dataclass
class SimulatedConfig(Skill, EngineConfig):
    """Schema of `conf/engine/simulated.yaml`: a skill, the effect of updates, and the latency of a server."""

    simulated = True

    slots: PositiveInt | None = None
    """Requests served at once; null: no limit."""
    seconds_per_token: NonNegativeFloat = 0.0
    """Latency of a request per completion token."""
    stream: str = ""
    """Name of the random stream for answers: runs with different streams share no random numbers, whatever their seeds.
    Empty: only a request's seed matters."""
    seconds_per_update: NonNegativeFloat = 0.0
    """Latency of an update."""
    priced: bool = False
    """Bill the tokens at the price of the model that is simulated, for studies of accuracy against money."""

    @property
    def billed(self) -> bool:
        return self.priced

    def for_seed(self, seed: int) -> "SimulatedConfig":
        return replace(self, principle_seed=seed if self.principle_seed is None else self.principle_seed)

    def judge_identity(self, model: ModelConfig) -> Any:
        return {key: value for key, value in asdict(self).items() if key not in (*SPEED, "principle_seed")}

    async def open(self, model: ModelConfig) -> LanguageModel:
        """Raise EngineError: a simulator comes from a task (`open_for`)."""
        raise EngineError("engine=simulated needs a task whose simulator it can use")

    def open_for(self, model: ModelConfig, simulator: TaskSimulator) -> LanguageModel:
        """Return a model that answers with the simulator's texts.

        Raises EngineError when `model` has an adapter other than one that a simulated fine-tuning left.
        """
        skill = self if model.adapter is None else self._with_adapter(Path(model.adapter).expanduser())
        answering = simulator.at_random() if model.random else simulator.with_skill(skill)
        return SimulatedModel(
            model.id, answering, self.slots, self.seconds_per_token, self.stream, self.confidence_skill
        )

    def _with_adapter(self, folder: Path) -> "SimulatedConfig":
        """Return the engine with the skill that an earlier run's updates added. Raises EngineError."""
        file = folder / SIMULATED
        if not file.is_file():
            raise EngineError(
                "model.adapter: engine=simulated has no weights that an adapter could change; set model.adapter=null "
                "or use another engine"
            )
        try:
            gain = float(msgspec.json.decode(file.read_bytes())["learned"])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
            raise EngineError(f"adapter {folder}: {SIMULATED} cannot be read: {error}; train it again") from error
        return replace(self, learned=min(1.0, max(-1.0, self.learned + gain)))


class SimulatedModel:
    """Serves a simulator's texts, with a server's latency if one is given."""

    def __init__(
        self,
        name: str,
        simulator: Responder,
        slots: int | None = None,
        seconds_per_token: float = 0.0,
        stream: str = "",
        confidence_skill: float = DEFAULT_SKILL.confidence_skill,
    ) -> None:
        self.name = name
        self._confidence_skill = confidence_skill
        self._stream = (int.from_bytes(blake2b(stream.encode(), digest_size=8).digest()),) if stream else ()
        self._simulator = simulator
        self._slots = contextlib.nullcontext() if slots is None else asyncio.Semaphore(slots)
        self._seconds_per_token = seconds_per_token

    async def complete(self, request: Request) -> Reply:
        """Return the simulator's texts; the same request always gets the same texts."""
        async with self._slots:
            return await self._answer(request)

    async def _answer(self, request: Request) -> Reply:
        started = asyncio.get_running_loop().time()
        streams = (request.seed, *self._stream)
        rng = np.random.Generator(np.random.PCG64(streams if self._stream else request.seed))
        limit = request.sampling.max_tokens
        completions: list[Completion] = []
        for _ in range(request.sampling.n):
            text = self._simulator.respond(request, rng)
            tokens = len(text) // CHARACTERS_PER_TOKEN + 1
            if tokens <= limit:
                completion = Completion(text=text, finish_reason="stop", tokens=tokens)
            else:
                cut = text[: limit * CHARACTERS_PER_TOKEN]
                completion = Completion(text=cut, finish_reason="length", tokens=limit)
            if request.sampling.confidence is not UNSET:
                completion = self._with_confidence(completion, text, request, (*streams, len(completions)))
            completions.append(_tokenized(completion, request))
        if self._seconds_per_token:
            # The n completions of a request are decoded together, so the longest determines the time.
            await asyncio.sleep(self._seconds_per_token * max(c.tokens for c in completions))
        prompt_ids = _prompt_ids(request) if request.token_ids else UNSET
        characters = sum(len(message["content"]) for message in request.messages)
        return Reply(
            completions=tuple(completions),
            prompt_tokens=characters // CHARACTERS_PER_TOKEN if prompt_ids is UNSET else len(prompt_ids),
            seconds=asyncio.get_running_loop().time() - started,
            prompt_ids=prompt_ids,
        )

    def _with_confidence(
        self, completion: Completion, text: str, request: Request, streams: Sequence[int]
    ) -> Completion:
        """Return a completion with its confidences, cut where they fall below the threshold.

        text: the whole text, which decides the confidence of a completion that `max_tokens` cuts, too. streams: of
        random numbers that the texts do not use, so that asking for confidences changes no text.
        """
        asked = request.sampling.confidence
        assert asked is not UNSET  # noqa: S101 - the caller has checked it
        degree = self._simulator.assess(request, text) if isinstance(self._simulator, Assesses) else None
        rng = np.random.default_rng((*streams, _CONFIDENCE))
        values = draw_confidences(completion.tokens, degree, self._confidence_skill, rng)
        end = find_end(values, asked)
        if end is not None and end < completion.tokens:
            values, cut = values[:end], completion.text[: end * CHARACTERS_PER_TOKEN]
            completion = Completion(text=cut, finish_reason="low_confidence", tokens=end)
        return msgspec.structs.replace(completion, **confidence_fields(values, asked))

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _token_ids(text: str, count: int) -> npt.NDArray[np.uint32]:
    """Return `count` made-up token ids: each is four bytes of the text, so that a trained policy can read them."""
    encoded = text.encode(errors="replace")[: 4 * count].ljust(4 * count)
    return np.frombuffer(encoded, "<u4")


def decode_text(token_ids: Sequence[int]) -> str:
    """Return the text of made-up token ids, without an incomplete last character."""
    return np.array(token_ids, "<u4").tobytes().decode(errors="ignore")


def _prompt_ids(request: Request) -> tuple[int, ...]:
    """Return the token ids of a prompt; a prompt that continues earlier turns begins with theirs."""
    said = [number for number, message in enumerate(request.messages) if message["role"] == "assistant"]
    first = 0 if request.seen is None else max(said, default=-1) + 1
    text = "".join(message["content"] for message in request.messages[first:])
    ids = _token_ids(text, len(text) // CHARACTERS_PER_TOKEN).tolist()
    return (*(request.seen or ()), *ids)


def _tokenized(completion: Completion, request: Request) -> Completion:
    """Return a completion with token ids and log-probabilities, if the request asks for them."""
    if not request.token_ids and not request.logprobs:
        return completion
    ids = _token_ids(completion.text, completion.tokens)
    return msgspec.structs.replace(
        completion,
        token_ids=tuple(ids.tolist()) if request.token_ids else None,
        # Hundredths: made up like the ids, and short in the journal.
        logprobs=tuple((-(ids % 97 + 1.0) / 100).tolist()) if request.logprobs else None,
    )
