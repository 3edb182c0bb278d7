"""An engine behind a LazyModel: opened by the first call that needs it, once, whatever comes of it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from evorun.errors import EngineDied, EngineError, WeightsLost
from evorun.models import LanguageModel, Reply, Request
from evorun.models.adapters import ModelUnderAdapter
from evorun.models.base import Completion, Wasted, make_rejection
from evorun.models.lazy import DIED, LazyModel


class Engine:
    """Counts how often it is closed."""

    name = "m"

    def __init__(self) -> None:
        self.closed = 0

    async def complete(self, request: Request) -> Reply:
        return make_rejection(request, "nothing to say")

    async def close(self) -> None:
        self.closed += 1


class AdapterEngine(Engine):
    """Remembers which adapters and weights it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Path, str]] = []

    async def with_adapter(self, folder: Path, name: str) -> LanguageModel:
        self.asked.append((folder, name))
        return Engine()

    with_weights = with_adapter


class Opener:
    """Fails as often as told, then opens; every attempt yields to the event loop."""

    def __init__(self, *failures: BaseException, engine: Engine | None = None) -> None:
        self.failures = list(failures)
        self.attempts = 0
        self.engine = engine or Engine()

    async def __call__(self) -> LanguageModel:
        self.attempts += 1
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        return self.engine


REQUEST = Request(messages=())


async def test_fifty_callers_share_one_opening() -> None:
    opener = Opener()
    model = LazyModel("m", opener)
    assert opener.attempts == 0
    replies = await asyncio.gather(*(model.complete(REQUEST) for _ in range(50)))
    assert len(replies) == 50
    assert opener.attempts == 1


async def test_fifty_callers_share_one_failure() -> None:
    opener = Opener(EngineError("no weights"))
    model = LazyModel("m", opener)
    results = await asyncio.gather(*(model.complete(REQUEST) for _ in range(50)), return_exceptions=True)
    assert [str(result) for result in results] == ["no weights"] * 50
    assert all(isinstance(result, EngineError) for result in results)
    with pytest.raises(EngineError, match="no weights"):
        await model.complete(REQUEST)
    assert opener.attempts == 1
    await model.close()
    assert opener.engine.closed == 0


async def test_an_error_names_the_key_of_its_engine() -> None:
    refusal = EngineError("401; set engine.api_key_env, or judge_engine=server")

    class Refusing(Engine):
        async def complete(self, request: Request) -> Reply:
            raise refusal

    for opener in (Opener(engine=Refusing()), Opener(refusal)):
        with pytest.raises(EngineError) as caught:
            await LazyModel("m", opener, "reward_engine").complete(REQUEST)
        assert str(caught.value) == "401; set reward_engine.api_key_env, or judge_engine=server"


async def test_a_cancelled_opening_is_no_failure() -> None:
    opener = Opener(asyncio.CancelledError())
    model = LazyModel("m", opener)
    with pytest.raises(asyncio.CancelledError):
        await model.complete(REQUEST)
    assert (await model.complete(REQUEST)).error == "nothing to say"
    assert opener.attempts == 2


async def test_closing_closes_what_was_opened_once() -> None:
    opener = Opener()
    model = LazyModel("m", opener)
    await model.close()
    assert (opener.attempts, opener.engine.closed) == (0, 0)
    await model.complete(REQUEST)
    await model.close()
    await model.close()
    assert opener.engine.closed == 1


async def test_a_view_under_an_adapter_or_with_other_weights_opens_the_engine() -> None:
    engine = AdapterEngine()
    opener = Opener(engine=engine)
    model = LazyModel("m", opener)
    await model.with_adapter(Path("step1"), "policy@1")
    await model.complete(REQUEST)
    await model.with_weights(Path("step2"), "policy@2")
    assert (opener.attempts, engine.asked) == (1, [(Path("step1"), "policy@1"), (Path("step2"), "policy@2")])
    await model.close()
    assert engine.closed == 1


async def test_an_engine_that_takes_no_adapters_is_one_line() -> None:
    with pytest.raises(EngineError, match=r"model .m.: its engine takes no adapters .* engine=vllm") as caught:
        await LazyModel("m", Opener()).with_adapter(Path("step1"), "policy@1")
    assert "\n" not in str(caught.value)


async def test_an_engine_that_cannot_replace_its_weights_is_one_line() -> None:
    with pytest.raises(EngineError, match=r"model .m.: its engine cannot replace its weights") as caught:
        await LazyModel("m", Opener()).with_weights(Path("step1"), "policy@1")
    assert "\n" not in str(caught.value)


# --- an engine whose process dies -----------------------------------------------------------------------------------


class Mortal(Engine):
    """Answers with its number and adapter until it dies; then each call under way, and each later one, fails."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.dies = asyncio.Event()
        self.answers = asyncio.Event()

    async def answer(self, adapter: str) -> Reply:
        waits = [asyncio.ensure_future(event.wait()) for event in (self.dies, self.answers)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if self.dies.is_set():
            raise EngineDied("model 'm': the engine process died: set engine.size")
        text = f"{self.number}{adapter}"
        return Reply(completions=(Completion(text=text, finish_reason="stop", tokens=1),), prompt_tokens=5, seconds=1)

    async def complete(self, request: Request) -> Reply:
        return await self.answer("")

    async def with_adapter(self, folder: Path, name: str) -> LanguageModel:
        return ModelUnderAdapter(name, lambda request: self.answer(f" under {folder.name}"))

    async def with_weights(self, folder: Path, name: str) -> LanguageModel:
        return ModelUnderAdapter(name, lambda request: self.answer(f" with {folder.name}"))

    async def receive_weights(self, name: str, send: Any) -> LanguageModel:
        await send(self)
        return ModelUnderAdapter(name, lambda request: self.answer(f" with {name}"))


class Births:
    """Opens an engine each time."""

    def __init__(self) -> None:
        self.born: list[Mortal] = []

    async def __call__(self) -> LanguageModel:
        await asyncio.sleep(0)
        self.born.append(Mortal(len(self.born)))
        return self.born[-1]


def read(reply: Reply) -> tuple[str, object]:
    return reply.completions[0].text, reply.wasted or None


async def test_an_engine_that_dies_is_started_again_once_and_asked_again(tmp_path: Path) -> None:
    births = Births()
    model = LazyModel("m", births, "judge_engine")
    folders = [tmp_path / name for name in ("gone", "one", "whole")]
    for folder in folders:
        folder.mkdir()
    views = [await model.with_adapter(folder, folder.name) for folder in folders[:2]]
    views.append(await model.with_weights(folders[2], "whole"))
    folders[0].rmdir()  # by whoever trains, who has no use for it any more
    calls = [asyncio.ensure_future(one.complete(REQUEST)) for one in (model, model, *views[1:])]
    await asyncio.sleep(0)
    births.born[0].dies.set()
    while len(births.born) < 2:  # noqa: ASYNC110 - the restart is no event
        await asyncio.sleep(0)
    births.born[1].answers.set()
    died = {DIED: Wasted(1, 5)}
    assert [read(reply) for reply in await asyncio.gather(*calls)] == [
        *[("1", died)] * 2,
        ("1 under one", died),
        ("1 with whole", died),
    ]
    assert read(await views[1].complete(REQUEST)) == ("1 under one", None)
    assert births.born[0].closed == 1
    births.born[1].dies.set()
    for one in (model, views[2]):
        with pytest.raises(EngineDied, match=r"the engine process died"):
            await one.complete(REQUEST)
    with pytest.raises(EngineDied, match=r"set judge_engine\.size"):
        await model.complete(REQUEST)
    assert len(births.born) == 2


async def test_an_engine_that_cannot_start_again_is_its_error() -> None:
    engine = Mortal(0)
    opener = Opener(engine=engine)
    model = LazyModel("m", opener)
    call = asyncio.ensure_future(model.complete(REQUEST))
    while model.opened is None:  # noqa: ASYNC110 - nor is the opening
        await asyncio.sleep(0)
    opener.failures = [EngineError("no memory")]
    engine.dies.set()
    with pytest.raises(EngineError, match="no memory"):
        await call
    with pytest.raises(EngineError, match="no memory"):
        await model.complete(REQUEST)
    assert opener.attempts == 2


async def test_weights_from_a_trainers_memory_are_lost_with_their_engine() -> None:
    births = Births()
    model = LazyModel("m", births)
    sent: list[Any] = []

    async def send(to: Any) -> None:
        sent.append(to)

    view = await model.receive_weights("policy@1", send)
    calls = [asyncio.ensure_future(view.complete(REQUEST)) for _ in range(2)]
    await asyncio.sleep(0)
    births.born[0].dies.set()
    for call in calls:
        with pytest.raises(WeightsLost, match="has started again, without the weights") as caught:
            await call
        assert isinstance(caught.value.__cause__, EngineDied)  # an attempt that was paid for
    with pytest.raises(WeightsLost) as caught:
        await view.complete(REQUEST)
    assert caught.value.__cause__ is None
    view = await model.receive_weights("policy@1", send)
    births.born[1].answers.set()
    assert read(await view.complete(REQUEST)) == ("1 with policy@1", None)
    assert sent == births.born
    with pytest.raises(EngineError, match="its engine receives no weights from a trainer; use engine=vllm"):
        await LazyModel("m", Opener()).receive_weights("policy@1", send)
