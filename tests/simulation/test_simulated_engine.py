"""The simulated engine makes up what only a tokenizer could give, and has the latency of a server."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from building import make_config
from evorun.errors import EngineError
from evorun.models import Message, Request
from evorun.models.config import ModelConfig
from evorun.simulation.engine import decode_text
from evorun.simulation.skill import Skill
from virtual_time import run_virtually


class Parrot:
    """A simulator that says the same to everything."""

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        return "four"

    def with_skill(self, skill: Skill) -> "Parrot":
        return self


async def test_made_up_tokens_are_as_many_as_were_counted_and_a_turn_goes_on_from_those_before_it() -> None:
    engine = make_config("engine", "simulated").open_for(ModelConfig(name="m", id="m"), Parrot())
    said = [Message(role="user", content="How many are two and two?"), Message(role="assistant", content="four")]
    plain = await engine.complete(Request(messages=tuple(said[:1])))
    first = await engine.complete(Request(messages=tuple(said[:1]), token_ids=True, logprobs=True))
    [one] = first.completions
    assert (one.text, one.tokens) == (plain.completions[0].text, plain.completions[0].tokens)
    assert len(one.token_ids or ()) == len(one.logprobs or ()) == one.tokens
    assert (
        decode_text(one.token_ids or ()).rstrip() == one.text
    )  # by which a simulated policy knows what it learns from
    assert all(logprob < 0 for logprob in one.logprobs or ())
    assert len(first.prompt_ids or ()) == first.prompt_tokens == plain.prompt_tokens
    seen = (*(first.prompt_ids or ()), *(one.token_ids or ()))
    more = (*said, Message(role="tool", content="That is right."))
    second = await engine.complete(Request(messages=more, token_ids=True, seen=seen))
    assert (second.prompt_ids or ())[: len(seen)] == seen
    assert len(second.prompt_ids or ()) == second.prompt_tokens > len(seen)


class Dice:
    """A simulator whose texts are its random numbers."""

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        return str(rng.random())

    def with_skill(self, skill: Skill) -> "Dice":
        return self


async def test_streams_share_no_random_numbers_and_each_repeats_its_own() -> None:
    async def drawn(stream: str) -> list[str]:
        engine = make_config("engine", "simulated", stream=stream).open_for(ModelConfig(name="m", id="m"), Dice())
        replies = [await engine.complete(Request(messages=(), seed=seed)) for seed in range(50)]
        return [reply.completions[0].text for reply in replies]

    streams = {name: await drawn(name) for name in ("", "espl", "grpo")}
    assert len({text for texts in streams.values() for text in texts}) == 150
    assert await drawn("espl") == streams["espl"]


def test_the_wait_for_a_slot_is_no_model_time() -> None:
    engine = make_config("engine", "simulated", slots=1, seconds_per_token=1.0)
    model = engine.open_for(ModelConfig(name="m", id="m"), Parrot())

    async def ask() -> list[float]:
        replies = await asyncio.gather(*(model.complete(Request(messages=(), seed=seed)) for seed in range(3)))
        assert asyncio.get_running_loop().time() == pytest.approx(6.0)
        return [reply.seconds for reply in replies]

    assert run_virtually(ask()) == pytest.approx([2.0] * 3)


def test_an_adapter_is_one_line(tmp_path: Path) -> None:
    model = ModelConfig(name="m", id="m", adapter=str(tmp_path))
    with pytest.raises(EngineError, match=r"model\.adapter: engine=simulated") as caught:
        make_config("engine", "simulated").open_for(model, Parrot())
    assert "\n" not in str(caught.value)
