"""Engine and trainer on one GPU: what it costs to take turns, and whether the engine wakes with its own weights."""

import argparse
import asyncio
import dataclasses
import hashlib
import importlib.util
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from measure_training import Evorun, job, random_completions

from decoding_part import make_request
from evorun.models.config import ModelConfig
from evorun.models.vllm.engine import VllmConfig
from evorun.training.process import TrainerProcess
from evorun.training.wire import Export, Job
from figures import Setting, attempt, median, peak_memory, report
from random_models import write_random_model

SIZES = {"full": {"steps": 3, "rows": 32, "tokens": 512}, "tiny": {"steps": 2, "rows": 4, "tokens": 8}}
"""Steps after the first, completions in each, and their tokens."""
SHARE = 0.7
"""Of the GPU's memory, which the engine takes while it is awake."""


LEVELS = {"level1": 1, "level2": 2}
"""Sleep levels by piece."""


class Trained(NamedTuple):
    """The outcome of some steps."""

    seconds: float
    """Median of a step."""
    waiting: float
    """GiB that the trainer's GPU holds while it waits."""
    adapter: str
    """Digest of the trained adapter."""


def measure(setting: Setting, piece: str) -> None:
    """Report the figures of a trainer by itself, or of one beside a vLLM that sleeps at a level."""
    if piece != "trainer" and (importlib.util.find_spec("vllm") is None or setting.device == "cpu"):
        report("vLLM on the trainer's GPU", "not tried: needs vLLM and a GPU")
        return
    with attempt(f"sharing: {piece}"):
        sizes = argparse.Namespace(device=setting.device, threads=1, **SIZES[setting.size])
        sizes.model = str(write_random_model("dense", setting))
        if piece == "trainer":
            _leave(setting, sizes)
        else:
            asyncio.run(_take_turns(setting, sizes, LEVELS[piece]))


def _leave(setting: Setting, sizes: argparse.Namespace) -> None:
    staying, leaving = (
        asyncio.run(_train(setting, sizes, make_job(setting, sizes, offload=offload))) for offload in (False, True)
    )
    report("step of a trainer that leaves the GPU", leaving.seconds, "s", f"{staying.seconds:.3g} s staying")
    report("its memory while it waits", leaving.waiting, "GiB", f"{staying.waiting:.3g} GiB staying")
    report("its adapter after these steps is that of one that stays", leaving.adapter == staying.adapter)


def make_job(setting: Setting, sizes: argparse.Namespace, *, offload: bool) -> Job:
    """Return what a trainer is told."""
    folder = setting.scratch / "checkpoints"
    folder.mkdir(exist_ok=True)
    plain = job(sizes, folder)
    training = dataclasses.replace(plain.training, micro_batch=10, offload=offload)
    return msgspec.structs.replace(plain, training=training)


async def _train(setting: Setting, sizes: argparse.Namespace, given: Job) -> Trained:
    trainer = await TrainerProcess.start(given, setting.scratch / "trainer.log")
    try:
        evorun, seconds = Evorun(trainer, sizes), list[float]()
        for step in range(sizes.steps + 1):
            started = time.perf_counter()
            await evorun.learn(random_completions(sizes.rows, sizes.tokens, step))
            seconds.append(time.perf_counter() - started)
        with peak_memory(evorun.process) as peak:
            waiting = peak()
        folder = setting.scratch / f"adapter-{given.training.offload}"
        await trainer.ask(Export(str(folder), "dense"))
        digest = hashlib.sha256((folder / "adapter_model.safetensors").read_bytes()).hexdigest()
        return Trained(median(seconds), waiting, digest)
    finally:
        await trainer.close()


async def _take_turns(setting: Setting, sizes: argparse.Namespace, level: int) -> None:
    """Update an adapter and complete under it, in turns, as a run does."""
    given = make_job(setting, sizes, offload=True)
    engine = VllmConfig(
        gpu_memory_utilization=SHARE, sleep=True, sleep_level=level, lora_rank=given.training.rank, max_num_seqs=64
    )
    model: Any = await engine.open(ModelConfig(name="dense", id=sizes.model, dtype="bfloat16", context_length=2048))
    try:
        async with model.asleep():
            with peak_memory() as peak:
                report(f"level {level}: memory of the GPU while vLLM sleeps", peak(), "GiB")
            trainer = await TrainerProcess.start(given, setting.scratch / "trainer.log")
        try:
            evorun = Evorun(trainer, sizes)
            for step in range(sizes.steps + 1):
                folder = setting.scratch / f"level{level}-step{step}"
                await trainer.ask(Export(str(folder), "dense"))
                view = await model.with_adapter(Path(folder), f"policy@{step}")
                await asyncio.gather(*(view.complete(make_request(i, 64)) for i in range(8)))
                async with model.asleep():
                    with peak_memory() as peak:
                        await evorun.learn(random_completions(sizes.rows, sizes.tokens, step))
            await view.complete(make_request(0, 8))
        finally:
            await trainer.close()
        wakings = model.take_wakings()
        report(f"level {level}: peak of an update beside a sleeping vLLM", peak(), "GiB")
        report(f"level {level}: to sleep, wake and check", median([waking.seconds for waking in wakings]), "s")
        report(
            f"level {level}: log-probabilities after a sleep, mean distance",
            max(waking.distance for waking in wakings),
            "nats",
            f"{sum(waking.reloads for waking in wakings)} of {len(wakings)} times weights were read again",
        )
    finally:
        await model.close()
