"""The simulated engine makes up what only a tokenizer could give, and has the latency of a server."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from building import composed, make_config
from evorun.errors import EngineError
from evorun.models import Completion, Message, Request, Sampling
from evorun.models.base import Confidence
from evorun.models.confidence import measure, read_confidences
from evorun.models.config import ModelConfig
from evorun.runner.settings import check
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


@pytest.mark.parametrize("number", [None, 7])
def test_each_seed_is_a_world_of_its_own_unless_a_number_holds_one_fixed(number: int | None) -> None:
    roles = ("generator=[{name:api,id:small},policy]", "generator_engine=[{name:simulated,skill:0.3},policy]")
    held = [] if number is None else [f"engine.principle_seed={number}"]
    worlds, judges = [], []
    for seed in (1, 2):
        run = check(composed("method=ab_mcts", "task=arithmetic", "engine=simulated", f"seed={seed}", *roles, *held))
        others = [served.engine for served in run.others.values()]
        worlds.append([vars(engine)["principle_seed"] for engine in (run.engine, *others)])
        judges.append(run.engine.judge_identity(run.model))
    # The policy, another generator, and the policy among the generators
    assert worlds == ([[1, 1, 1], [2, 2, 2]] if number is None else [[7, 1, 7], [7, 2, 7]])
    assert judges[0] == judges[1]  # principles decide no verdict


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


class Judged(Parrot):
    """A simulator whose even seeds give right responses."""

    def respond(self, request: Request, rng: np.random.Generator) -> str:
        return "four " * 200

    def assess(self, request: Request, text: str) -> float:
        return float(request.seed % 2 == 0)


@pytest.mark.sample(2)
@pytest.mark.parametrize("skill", [0.9, 0.5, 0.2])
async def test_confidences_are_as_informative_as_set(skill: float) -> None:
    engine = make_config("engine", "simulated", confidence_skill=skill).open_for(
        ModelConfig(name="m", id="m"), Judged()
    )

    async def measured(number: int) -> float:
        sampling = Sampling(confidence=Confidence(tokens=True))
        [completion] = (await engine.complete(Request(messages=(), sampling=sampling, seed=number))).completions
        values = read_confidences(completion)
        assert values is not None
        assert len(values) == completion.tokens
        assert completion.confidence == pytest.approx(values.mean(dtype=float), abs=1e-5)
        return completion.confidence or 0.0

    drawn = np.array([await measured(number) for number in range(800)])
    ordered = (drawn[::2, None] > drawn[None, 1::2]).mean()
    assert ordered == pytest.approx(skill, abs=0.07)  # 3 standard deviations


async def test_asking_for_confidences_changes_no_text_and_a_threshold_only_cuts_it() -> None:
    engine = make_config("engine", "simulated").open_for(ModelConfig(name="m", id="m"), Judged())

    async def drawn(**settings: Any) -> Completion:
        asked = {"confidence": Confidence(tokens=True, **settings)} if settings else {}
        request = Request(messages=(), sampling=Sampling(max_tokens=200, **asked), seed=3)
        return (await engine.complete(request)).completions[0]

    plain, whole = await drawn(), await drawn(window=20)
    assert (plain.text, plain.tokens, plain.finish_reason) == (whole.text, whole.tokens, whole.finish_reason)
    values = read_confidences(whole)
    assert values is not None
    minimum = measure(values, "min_window", window=20) + 0.01
    cut = await drawn(window=20, minimum=minimum)
    assert cut.finish_reason == "low_confidence"
    assert 20 <= cut.tokens < whole.tokens
    assert whole.text.startswith(cut.text)
    assert whole.token_confidences is not None
    assert whole.token_confidences.startswith(cut.token_confidences or b"?")
