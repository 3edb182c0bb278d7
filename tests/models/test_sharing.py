"""A model in another process, asked by several runs: an engine like any other, and what becomes of it when it ends."""

import asyncio
from pathlib import Path

import pytest

from building import make_config
from evorun.errors import EngineError
from evorun.models import Reply, Request
from evorun.models.base import Completion
from evorun.models.config import ModelConfig, ServedModel
from evorun.models.sharing import SharedModels, find_shared, key_of, use
from evorun.testing import check_engine
from evorun.testing.engines import ask, decoder
from shared_process import Running, running
from tiny_llama import write_talking_llama

SERVED = ServedModel(ModelConfig(name="m", id="m"), make_config("engine", "transformers"))


class Slow:
    """Answers when it is told to, and fails for a text."""

    name = "m"

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.waiting: set[str] = set()

    async def complete(self, request: Request) -> Reply:
        text = request.messages[-1]["content"]
        if text == "broken":
            raise ValueError("no such token")
        self.waiting.add(text)
        try:
            await self.may_answer.wait()
        finally:
            self.waiting.remove(text)
        return Reply(completions=(Completion(text=text, finish_reason="stop", tokens=1),), prompt_tokens=1, seconds=0.5)

    async def close(self) -> None:
        self.may_answer.set()


async def until_waiting(model: Slow, texts: set[str]) -> None:
    async with asyncio.timeout(60):
        while model.waiting != texts:  # noqa: ASYNC110 (beyond a socket: nothing tells when it changes)
            await asyncio.sleep(0.001)


@pytest.mark.nightly
@pytest.mark.embedded
async def test_a_shared_model_passes_the_suite_of_engines(tmp_path: Path) -> None:
    folder = write_talking_llama(tmp_path / "model")
    model = ModelConfig(name="talking", id=str(folder), dtype="float32", context_length=8192)
    served = ServedModel(model, make_config("engine", "transformers"))
    from transformers import AutoTokenizer

    async with running(await served.engine.open(model), served, tmp_path) as process:
        await check_engine(process.open, decoder(AutoTokenizer.from_pretrained(folder)))


async def test_a_run_that_leaves_takes_its_own_requests_along(tmp_path: Path) -> None:
    model = Slow()
    async with running(model, SERVED, tmp_path) as process:
        one, other = await process.open(), await process.open()
        leaving, staying = (
            [asyncio.create_task(run.complete(ask(f"{name} {number}"))) for number in range(2)]
            for name, run in (("one", one), ("other", other))
        )
        await until_waiting(model, {"one 0", "one 1", "other 0", "other 1"})
        leaving[0].cancel()
        await until_waiting(model, {"one 1", "other 0", "other 1"})
        await one.close()
        await until_waiting(model, {"other 0", "other 1"})
        with pytest.raises(EngineError, match="has ended"):
            await leaving[1]
        model.may_answer.set()
        assert [(await task).completions[0].text for task in staying] == ["other 0", "other 1"]
        await other.close()


async def test_what_the_model_raises_reaches_the_run(tmp_path: Path) -> None:
    async with running(Slow(), SERVED, tmp_path) as process:
        run = await process.open()
        with pytest.raises(EngineError, match=r"model 'm': ValueError: no such token"):
            await run.complete(ask("broken"))
        await run.close()


async def test_no_call_waits_for_a_process_that_has_ended(tmp_path: Path) -> None:
    model = Slow()
    process = Running(model, SERVED, tmp_path)
    run = await process.open()
    call = asyncio.create_task(run.complete(ask("late")))
    await until_waiting(model, {"late"})
    await process.end()
    for late in (call, run.complete(ask("later")), process.open()):
        with pytest.raises(EngineError, match=r"model 'm': the process .* has ended; see model_server\.log"):
            await late
    await run.close()


def test_only_a_model_with_the_same_settings_is_shared() -> None:
    other = ServedModel(SERVED.model, make_config("engine", "transformers", max_batch_size=7))
    shared = SharedModels("models", (key_of(SERVED),), 2, "log", -1)
    use(shared)
    try:
        assert find_shared(SERVED) == shared
        assert find_shared(other) is None
    finally:
        use(None)
    assert find_shared(SERVED) is None
