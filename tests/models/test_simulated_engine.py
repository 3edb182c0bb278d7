"""The simulated engine refuses what only weights and a tokenizer could give, and has the latency of a server."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from building import make_config
from evorun.errors import EngineError
from evorun.models import Request, Sampling
from evorun.models.config import ModelConfig
from evorun.models.simulator import Skill
from virtual_time import run_virtually


class Parrot:
    """A simulator that says the same to everything."""

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        return "four"

    def with_skill(self, skill: Skill) -> "Parrot":
        return self


async def test_token_ids_are_refused_as_data() -> None:
    engine = make_config("engine", "simulated").open_for(ModelConfig(name="m", id="m"), Parrot())
    reply = await engine.complete(Request(messages=(), sampling=Sampling(n=2), token_ids=True))
    assert [c.finish_reason for c in reply.completions] == ["rejected", "rejected"]
    assert "no token ids" in (reply.error or "")
    assert (await engine.complete(Request(messages=()))).completions[0].text == "four"


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
