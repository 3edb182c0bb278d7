"""An engine's requests and its sleep, in turn; no vLLM."""

import asyncio

from evorun.models.vllm.sleep import SleepMode


class Engine:
    """Writes down what happens to it."""

    def __init__(self) -> None:
        self.events: list[str] = []

    async def sleep(self, level: int) -> None:
        self.events.append(f"sleep {level}")
        await asyncio.sleep(0)

    async def wake_up(self) -> None:
        self.events.append("wake")
        await asyncio.sleep(0)


async def test_requests_end_before_the_engine_sleeps_and_later_ones_wait() -> None:
    engine, free = Engine(), asyncio.Event()
    mode = SleepMode(engine)

    async def request(name: str) -> None:
        async with mode.awake():
            engine.events.append(f"{name} begins")
            await free.wait()
            engine.events.append(f"{name} ends")

    async def update(name: str) -> None:
        async with mode.asleep():
            engine.events.append(f"{name} begins")
            await asyncio.sleep(0)
            engine.events.append(f"{name} ends")

    async with asyncio.TaskGroup() as group:
        group.create_task(request("first"))
        await asyncio.sleep(0)
        group.create_task(update("update"))
        await asyncio.sleep(0)
        group.create_task(request("late"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert engine.events == ["first begins"]
        free.set()
    before, after = ["first begins", "first ends"], ["wake", "late begins", "late ends"]
    assert engine.events == [*before, "sleep 1", "update begins", "update ends", *after]


async def test_it_is_woken_for_requests_not_between_two_updates() -> None:
    engine = Engine()
    mode = SleepMode(engine)
    for _ in range(2):
        async with mode.asleep():
            pass
    assert engine.events == ["sleep 1"]


async def test_what_fails_in_its_sleep_keeps_no_request_waiting() -> None:
    engine = Engine()
    mode = SleepMode(engine)
    try:
        async with mode.asleep():
            raise ValueError("the trainer has ended")
    except ValueError:
        pass
    async with asyncio.timeout(10), mode.awake():
        assert engine.events == ["sleep 1", "wake"]
