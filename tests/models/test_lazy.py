"""An engine behind a LazyModel: opened by the first call that needs it, once, whatever comes of it."""

import asyncio
from pathlib import Path

import pytest

from evorun.errors import EngineError
from evorun.models import LanguageModel, Reply, Request
from evorun.models.base import make_rejection
from evorun.models.lazy import LazyModel


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
