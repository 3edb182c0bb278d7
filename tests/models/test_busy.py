"""The time in which GPUs have work."""

import asyncio
from pathlib import Path

from evorun.models import LanguageModel, Reply, Request
from evorun.models.base import make_rejection
from evorun.models.busy import BusyTime, at_work
from evorun.models.lazy import LazyModel
from virtual_time import run_virtually


def test_overlapping_blocks_count_once_and_one_that_fails_counts() -> None:
    now = [0.0]
    busy, other = BusyTime(lambda: now[0]), BusyTime(lambda: now[0])
    with at_work([busy]):
        now[0] = 1.0
        with at_work([busy, other]):
            now[0] = 3.0
        assert (busy.seconds, other.seconds) == (3.0, 2.0)
        now[0] = 4.0
    now[0] = 10.0
    try:
        with at_work([busy]):
            now[0] = 11.0
            raise ValueError
    except ValueError:
        now[0] = 20.0
    assert (busy.seconds, other.seconds) == (5.0, 2.0)


class Slow:
    """Takes ten seconds for an answer."""

    name = "m"

    async def complete(self, request: Request) -> Reply:
        await asyncio.sleep(10)
        return make_rejection(request, "")

    async def with_adapter(self, folder: Path, name: str) -> LanguageModel:
        return self

    async def close(self) -> None:
        pass


def test_requests_of_an_engine_and_of_its_adapters_are_work_of_its_gpus_and_its_start_is_not() -> None:
    async def busy_seconds() -> float:
        async def opened() -> LanguageModel:
            await asyncio.sleep(100)
            return Slow()

        model = LazyModel("m", opened)
        gpu = BusyTime(asyncio.get_running_loop().time)
        model.gpus = [gpu]
        adapted = await model.with_adapter(Path(), "m@1")
        asked = Request(messages=())
        await asyncio.gather(model.complete(asked), adapted.complete(asked))
        await asyncio.sleep(7)
        await adapted.complete(asked)
        return gpu.seconds

    assert run_virtually(busy_seconds()) == 20.0
