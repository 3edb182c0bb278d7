"""Trainer and vLLM on one machine's GPUs: who has which, whose turn it is, and what an overlap gains."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from test_policy import ASKED, Noting, answer, rows

from building import composed
from evorun.models.base import LanguageModel, Reply, Request, Sampling, Waking
from evorun.models.config import ServedModel
from evorun.models.devices import VISIBLE
from evorun.models.lazy import LazyModel
from evorun.models.vllm.sleep import SleepMode
from evorun.runner.served import crowded_gpus
from evorun.runner.settings import check
from evorun.runner.training_runs import shared_gpus, trainer_devices
from evorun.training.policy import Policy
from evorun.training.wire import Answer, Command, Export, Generate, Train
from virtual_time import run_virtually

UPDATE_S, REFLECTION_S = 40.0, 30.0


@pytest.mark.parametrize(
    ("gpus", "engine", "training", "own", "said"),
    [
        ("0,1,2", {}, {}, [1], False),
        ("0,1,2", {"devices": [0, 1], "tensor_parallel_size": 2}, {}, [2], False),
        ("0,1,2", {}, {"num_processes": 2}, [1, 2], False),
        ("0,1,2", {}, {"num_processes": 3}, None, True),
        ("0,1,2", {}, {"devices": [0]}, [0], True),
        ("0", {}, {}, None, True),
        ("0", {"sleep": True}, {}, None, False),
        ("0", {"gpu_memory_utilization": 0.4}, {}, None, False),
        ("", {}, {}, None, False),
    ],
)
def test_the_trainer_has_gpus_that_vllm_leaves_free_and_an_overlap_is_said(
    gpus: str, engine: Any, training: Any, own: list[int] | None, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VISIBLE, gpus)
    config = composed("method=grpo", "task=arithmetic", "engine=vllm", "model=qwen2_5_7b")
    checked = check({**config, "engine": config["engine"] | engine, "training": config["training"] | training})
    assert checked.training is not None
    assert trainer_devices(checked, checked.training) == own
    lines = shared_gpus(checked)
    assert len(lines) == said
    assert all("share GPU 0" in line and "engine.sleep=true" in line for line in lines)


@pytest.mark.parametrize(
    ("gpus", "more", "said"),
    [
        ("0,1,2", (), "reward_engine and meta_engine: vLLM engines that would take 180% of the memory of GPU 0; "),
        ("0,1,2", ("meta_engine.devices=[1]",), None),
        ("0,1,2", ("meta=qwen2_5_32b_awq",), None),  # one engine for both
        ("0,1,2", ("engine=vllm", "meta_engine.devices=[1]"), "engine and reward_engine: "),
        ("0,1,2", ("reward_engine.tensor_parallel_size=2", "meta_engine.devices=[1]"), "of GPU 1; "),
        ("0", ("reward_engine.gpu_memory_utilization=0.4", "meta_engine.gpu_memory_utilization=0.5"), None),
        ("", (), None),
    ],
)
def test_vllm_engines_that_do_not_fit_on_a_gpu_together_are_said(
    gpus: str, more: tuple[str, ...], said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VISIBLE, gpus)
    words = ("experiment=mpo/essay", "method=mpo", "reward_engine=vllm", "meta_engine=vllm", *more)
    config = check(composed(*words))
    lines = crowded_gpus(ServedModel(config.model, config.engine), config.others)
    assert len(lines) == (said is not None)
    assert said is None or said in lines[0]


class Memory:
    """A journal without a file, whose writes take no time."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def __contains__(self, key: str) -> bool:
        return key in self.kept

    def keys(self) -> list[str]:
        return list(self.kept)

    async def remember(self, key: str, about: bytes, compute: Callable[[], Awaitable[Any]], *_: Any, **__: Any) -> Any:
        self.kept[key] = await compute()
        return self.kept[key]


class Slow(Noting):
    """Its trainer takes a while for an update, and does one thing at a time."""

    def __init__(self, run: Path) -> None:
        super().__init__(run, Memory())
        self.turn = asyncio.Lock()

    async def _answer(self, command: Command) -> Answer:
        async with self.turn:
            if isinstance(command, Train):
                await asyncio.sleep(UPDATE_S)
            return await super()._answer(command)


class Engine:
    """An engine beside the trainer, which it may share a GPU with; counts calls that it answers while it sleeps."""

    name = "m"
    received = False

    def __init__(self, *, sleeps: bool) -> None:
        self.mode = SleepMode(self, self) if sleeps else None
        self.sleeping, self.slept_through = False, 0
        self.seconds = REFLECTION_S / 3
        """For a completion."""

    async def sleep(self, level: int) -> None:
        self.sleeping = True

    async def wake_up(self) -> None:
        self.sleeping = False

    async def probe(self) -> list[float]:
        return [0.0]

    async def reload_model(self) -> None:
        raise AssertionError

    reload_adapters = reload_model

    def asleep(self) -> Any:
        assert self.mode is not None
        return self.mode.asleep()

    def take_wakings(self) -> Sequence[Waking]:
        return () if self.mode is None else self.mode.take_wakings()

    async def complete(self, request: Request) -> Reply:
        if self.mode is None:
            return await self._answer()
        async with self.mode.awake():
            return await self._answer()

    async def _answer(self) -> Reply:
        await asyncio.sleep(self.seconds)
        self.slept_through += self.sleeping
        return answer("well")

    async def with_adapter(self, folder: Path, name: str) -> LanguageModel:
        return self

    async def close(self) -> None:
        pass


class Process:
    """A trainer process that answers as the trainer of a `Noting` does; notes which commands find the engine asleep."""

    def __init__(self, policy: Noting, engine: "Engine") -> None:
        self._policy = policy
        self._engine = engine
        self.asleep: dict[type[Command], bool] = {}

    async def ask(self, command: Command) -> Answer:
        self.asleep[type(command)] = self._engine.sleeping
        return await Noting._answer(self._policy, command)

    async def close(self) -> None:
        pass


async def test_engines_sleep_while_a_trainer_on_their_gpu_starts_and_their_wakings_are_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Starting(Noting):
        _answer = Policy._answer

        def _job(self) -> Any:
            return None

    engine = Engine(sleeps=True)
    engine.seconds = 0
    lazy = LazyModel("m", partial(asyncio.sleep, 0, engine))
    policy = Starting(tmp_path, Memory())
    policy.training = dataclasses.replace(policy.training, offload=True)
    process, starts = Process(policy, engine), list[bool]()

    async def start(*_: Any) -> Process:
        starts.append(engine.sleeping)
        await asyncio.sleep(0)
        return process

    monkeypatch.setattr("evorun.training.policy.start_trainer", start)
    policy.share_gpu_with(lazy)
    model = policy.serve_via(lazy)
    await lazy.complete(ASKED)  # another role's
    # The first completion needs the untrained adapter, which the trainer writes, while an update wants to begin.
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(model.at(0).complete(ASKED))
        await asyncio.sleep(0)
        group.create_task(policy.update(1, rows(1.0, 0.0)))
        group.create_task(lazy.complete(ASKED))
    await lazy.complete(ASKED)
    await policy.update(2, rows(1.0, 0.0))
    assert starts == [True]
    assert engine.slept_through == 0
    figures = policy.stopwatch.take()
    assert figures["probes"] == 2  # after the start and after the update: requests wait for nothing else
    assert (figures["probe_reloads"], figures["probe_distance"]) == (0, 0)
    assert figures["sleep_seconds"] > 0
    await lazy.complete(ASKED)
    await policy.reference.complete(ASKED)
    assert process.asleep[Train]
    assert process.asleep[Generate]  # for which a trainer that has left the GPU comes back
    await lazy.complete(ASKED)
    await policy.export()
    assert not process.asleep[Export]  # it writes its weights from main memory
    await policy.close()


async def seconds_of_a_step(folder: Path, engine: Engine) -> float:
    """Return the seconds of an update with three reflections beside it, each asked after the one before."""

    async def opened() -> LanguageModel:
        return engine

    policy, lazy = Slow(folder), LazyModel("m", opened)
    if engine.mode is not None:
        policy.share_gpu_with(lazy)
    model = policy.serve_via(lazy)
    await model.at(0).complete(ASKED)  # as the step's completions
    began = asyncio.get_running_loop().time()

    async def reflect() -> None:
        for index in range(3):
            await model.at(0).complete(msgspec.structs.replace(ASKED, seed=index, sampling=Sampling()))

    async with asyncio.TaskGroup() as group:
        group.create_task(policy.update(1, rows(1.0, 0.0)))
        group.create_task(reflect())
    return asyncio.get_running_loop().time() - began


def test_with_a_lag_the_rollouts_of_the_next_step_take_no_time_beside_an_update(tmp_path: Path) -> None:
    async def seconds() -> float:
        async def opened() -> LanguageModel:
            return Engine(sleeps=False)

        policy = Slow(tmp_path)
        policy.max_lag = 1
        model = policy.serve_via(LazyModel("m", opened))
        for step in (1, 2):  # beside the second update, rollouts that have the first one's weights
            began = asyncio.get_running_loop().time()
            async with asyncio.TaskGroup() as group:
                group.create_task(policy.update(step, rows(1.0, 0.0)))
                group.create_task(model.at(step - 1).complete(ASKED))
        return asyncio.get_running_loop().time() - began

    assert run_virtually(seconds()) == pytest.approx(UPDATE_S)


def test_on_gpus_of_their_own_update_and_reflections_take_the_time_of_the_longer(tmp_path: Path) -> None:
    took = run_virtually(seconds_of_a_step(tmp_path, Engine(sleeps=False)))
    assert took <= 1.1 * max(UPDATE_S, REFLECTION_S)


def test_on_one_gpu_they_run_in_turn(tmp_path: Path) -> None:
    engine = Engine(sleeps=True)
    assert run_virtually(seconds_of_a_step(tmp_path, engine)) == pytest.approx(UPDATE_S + REFLECTION_S)
    assert engine.slept_through == 0
