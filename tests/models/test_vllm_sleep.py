"""An engine's requests and its sleep, in turn, and the check of the weights that it wakes with; no vLLM."""

import asyncio
import logging
from collections.abc import Callable, Mapping

import pytest

from evorun.errors import EngineError, WeightsLost
from evorun.models.vllm.sleep import TOLERANCE, SleepMode

DISK = {"model": -2.0, "adapter": 0.5}


class Engine:
    """An engine and its weights, each a number that is added to log-probabilities; writes down what happens to it."""

    def __init__(self, damage: Callable[[Mapping[str, float]], Mapping[str, float]] = dict) -> None:
        """damage: done to the weights by waking."""
        self.events: list[str] = []
        self.held = dict(DISK)
        self.disk = dict(DISK)
        self._damage = damage
        self.received = False

    async def sleep(self, level: int) -> None:
        self.events.append(f"sleep {level}")
        if level == 2:  # drops all weights
            self.held = dict.fromkeys(DISK, float("nan"))
        await asyncio.sleep(0)

    async def wake_up(self, tags: list[str] | None = None) -> None:
        self.events.append("wake" if tags is None else f"wake {', '.join(tags)}")
        if tags != ["kv_cache"]:
            self.held = dict(self._damage(self.held))
        await asyncio.sleep(0)

    async def probe(self) -> list[float]:
        return [sum(self.held.values()) - position for position in range(3)]

    async def reload_model(self) -> None:
        self.events.append("reload model")
        self.held["model"] = self.disk["model"]

    async def reload_adapters(self) -> None:
        self.events.append("reload adapters")
        self.held["adapter"] = self.disk["adapter"]


async def update(mode: SleepMode) -> None:
    async with mode.asleep():
        pass


async def request(mode: SleepMode) -> None:
    async with asyncio.timeout(10), mode.awake():
        pass


async def test_requests_end_before_the_engine_sleeps_and_later_ones_wait() -> None:
    engine, free = Engine(), asyncio.Event()
    mode = SleepMode(engine, engine)

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
    mode = SleepMode(engine, engine)
    for _ in range(2):
        await update(mode)
    assert engine.events == ["sleep 1"]
    await request(mode)
    await request(mode)
    assert engine.events == ["sleep 1", "wake"]


async def test_what_fails_in_its_sleep_keeps_no_request_waiting() -> None:
    engine = Engine()
    mode = SleepMode(engine, engine)
    try:
        async with mode.asleep():
            raise ValueError("the trainer has ended")
    except ValueError:
        pass
    await request(mode)
    assert engine.events == ["sleep 1", "wake"]


async def test_weights_that_it_drops_come_back_from_disk_before_the_cache() -> None:
    engine = Engine()
    mode = SleepMode(engine, engine, level=2)
    await update(mode)
    await request(mode)
    assert engine.events == ["sleep 2", "wake weights", "reload model", "wake kv_cache", "reload adapters"]
    (waking,) = mode.take_wakings()
    assert (waking.distance, waking.reloads) == (0, 0)
    assert not mode.take_wakings()


@pytest.mark.parametrize("level", [1, 2])
async def test_dropped_weights_that_others_will_replace_are_not_read(level: int) -> None:
    engine = Engine()
    mode = SleepMode(engine, engine, level=level)
    await update(mode)
    async with mode.awake(replaces=True):
        engine.held = dict(DISK)
    await update(mode)
    assert engine.events == [f"sleep {level}", "wake", f"sleep {level}"]
    assert len(mode.take_wakings()) == (level == 1)  # kept weights are checked


@pytest.mark.parametrize(("lost", "change"), [("model", 0.04), ("adapter", 0.04), ("adapter", float("nan"))])
async def test_weights_that_a_sleep_changed_are_read_again(
    lost: str, change: float, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine(lambda held: {**held, lost: held[lost] + change})
    mode = SleepMode(engine, engine)
    await update(mode)
    with caplog.at_level(logging.WARNING):
        await request(mode)
    assert engine.events == ["sleep 1", "wake", "reload model", "reload adapters"]
    assert engine.held == DISK
    assert f"are {change} nats from those before" in caplog.text
    assert [waking.reloads for waking in mode.take_wakings()] == [1]


async def test_rounding_is_no_damage() -> None:
    engine = Engine(lambda held: {**held, "model": held["model"] + TOLERANCE / 2})
    mode = SleepMode(engine, engine)
    await update(mode)
    await request(mode)
    assert engine.events == ["sleep 1", "wake"]
    assert [waking.distance for waking in mode.take_wakings()] == [pytest.approx(TOLERANCE / 2)]


@pytest.mark.parametrize("broken", [1.0, float("nan")])
async def test_weights_that_stay_wrong_end_the_run_in_one_line(broken: float) -> None:
    engine = Engine(lambda held: {**held, "adapter": broken})
    engine.disk["adapter"] = broken
    mode = SleepMode(engine, engine)
    await update(mode)
    for _ in range(2):  # later requests too, without another try
        with pytest.raises(EngineError, match=r"woke with other weights.*engine\.sleep_level=2") as caught:
            await request(mode)
        assert "\n" not in str(caught.value)
    assert engine.events.count("wake") == 1


async def test_an_engine_that_cannot_sleep_is_one_line() -> None:
    class Sleepless(Engine):
        async def sleep(self, level: int) -> None:
            raise RuntimeError("CUDA error:\nan illegal memory access")

    engine = Sleepless()
    mode = SleepMode(engine, engine)
    with pytest.raises(EngineError, match=r"could not sleep: CUDA error: an illegal memory access$"):
        await update(mode)


@pytest.mark.parametrize(("level", "change"), [(2, 0.0), (1, 1.0)])
async def test_weights_from_a_trainers_memory_are_never_read_from_disk(level: int, change: float) -> None:
    engine = Engine(lambda held: {**held, "model": held["model"] + change})
    engine.received = True
    mode = SleepMode(engine, engine, level=level)
    await update(mode)
    for _ in range(2):  # whoever asks before they have been sent again
        with pytest.raises(WeightsLost):
            await request(mode)
    async with mode.awake(replaces=True):
        engine.held = dict(DISK)
    await request(mode)
    assert not [event for event in engine.events if event.startswith("reload")]
    assert [waking.reloads for waking in mode.take_wakings()] == ([] if level == 2 else [1, 1])
