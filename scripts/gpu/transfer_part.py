"""All weights of an update on their way to vLLM: from memory (CUDA IPC, NCCL), and by folders."""

import argparse
import asyncio
import dataclasses
import importlib.util
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch
from measure_training import Evorun, job, random_completions

from decoding_part import load_plain, make_request, score
from evorun.models.base import Reply, WeightReceiver
from evorun.models.config import ModelConfig
from evorun.models.vllm.engine import VllmConfig
from evorun.training.process import TrainerProcess
from evorun.training.wire import Export, Job, Send
from figures import Setting, attempt, peak_memory, report
from random_models import write_random_model

SIZES = {"full": {"steps": 4, "rows": 8, "tokens": 64}, "tiny": {"steps": 2, "rows": 4, "tokens": 8}}
"""Updates, completions in each, and their tokens."""
SHARE = 0.4
"""Of the GPU's memory for vLLM; the trainer has float32 weights, gradients and Adam's moments beside it."""
LEARNING_RATE = 1e-4
"""Far above a usual one: log-probabilities under the weights before and after an update must be told apart."""
TIMES = 3
"""Pushes that are timed beside the first ones."""
RAM_DISK = Path("/dev/shm")  # noqa: S108 - folders with random names


def measure(setting: Setting, piece: str) -> None:
    """Report whether vLLM computes with the weights that it was sent, and the seconds of a piece's way.

    ipc, nccl: from memory, on one GPU and between two. folders: beside one push by CUDA IPC. level2: to an engine that
    has slept at level 2.
    """
    if importlib.util.find_spec("vllm") is None or setting.device == "cpu":
        report("weights from a trainer's memory", "not tried: needs vLLM and a GPU")
        return
    if piece == "nccl" and torch.cuda.device_count() < 2:
        report("weights by NCCL", "not tried: needs two GPUs")
        return
    with attempt(f"transfer of weights: {piece}"):
        sizes = argparse.Namespace(device=setting.device, threads=1, **SIZES[setting.size])
        sizes.model = str(write_random_model("dense", setting))
        torch.cuda.empty_cache()
        asyncio.run(_transfer(setting, sizes, piece))


def make_job(setting: Setting, sizes: argparse.Namespace, piece: str) -> Job:
    """Return what a trainer of all weights is told."""
    folder = setting.scratch / "checkpoints"
    folder.mkdir(exist_ok=True)
    plain = job(sizes, folder)
    training = dataclasses.replace(
        plain.training,
        weights="full",
        learning_rate=LEARNING_RATE,
        micro_batch=4,
        offload=piece == "level2",
        devices=[1] if piece == "nccl" else None,
    )
    return msgspec.structs.replace(plain, training=training)


async def _transfer(setting: Setting, sizes: argparse.Namespace, piece: str) -> None:
    """Update all weights, send them, and complete with them, in turns."""
    way = "nccl" if piece == "nccl" else "ipc"
    engine = VllmConfig(
        gpu_memory_utilization=SHARE,
        sleep=piece == "level2",
        sleep_level=2 if piece == "level2" else 1,
        max_num_seqs=16,
        enforce_eager=True,
        devices=[0] if piece == "nccl" else None,
    ).for_transfer(way)
    model: Any = await engine.open(ModelConfig(name="dense", id=sizes.model, dtype="bfloat16", context_length=2048))
    try:
        async with model.asleep():
            trainer = await TrainerProcess.start(make_job(setting, sizes, piece), setting.scratch / "trainer.log")
        try:
            updates = Evorun(trainer, sizes)
            before = await model.complete(make_request(0, 64))
            for step in (1,) if piece == "folders" else (1, 2):
                async with model.asleep():
                    await updates.learn(random_completions(sizes.rows, sizes.tokens, step))
                with timed(f"{piece}: push {step} from memory"), peak_memory() as peak:
                    view = await model.receive_weights(f"policy@{step}", sending(trainer, step, way))
                report(f"{piece}: peak memory of the GPU in this push", peak(), "GiB")
                after = await view.complete(make_request(0, 64))
                exported = setting.scratch / f"step-{step}"
                await trainer.ask(Export(str(exported), "dense", step))
                _compare(f"{piece}: after update {step}", exported, Path(sizes.model), after, before)
            if piece == "folders":
                for where, place in (("disk", setting.scratch), ("a RAM disk", RAM_DISK)):
                    await _push_by_folders(trainer, model, where, place, after)
                return
            for again in range(TIMES):
                with timed(f"{piece}: push {3 + again} from memory"):
                    await model.receive_weights("policy", sending(trainer, 2, way))
        finally:
            await trainer.close()
    finally:
        await model.close()


def sending(trainer: TrainerProcess, version: int, way: str) -> Callable[[WeightReceiver], Any]:
    """Return what lets a trainer send an update's weights. way: ipc or nccl."""

    async def send(to: WeightReceiver) -> None:
        await trainer.send(Send(version=version, transfer=way, engine=to.number, processes=to.processes), to.call)

    return send


async def _push_by_folders(trainer: TrainerProcess, model: Any, where: str, place: Path, sent: Reply) -> None:
    with tempfile.TemporaryDirectory(dir=place) as scratch:
        for again in range(TIMES):
            folder = Path(scratch) / str(again)
            with timed(f"push by a folder on {where}"):
                await trainer.ask(Export(str(folder), "dense", 1, for_engine=True))
                view = await model.with_weights(folder, f"folder@{again}")
            shutil.rmtree(folder)
        read = await view.complete(make_request(0, 64))
    report(f"the completion after a push by a folder on {where} is that after one from memory",
           read.completions[0].token_ids == sent.completions[0].token_ids)  # fmt: skip


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Report the seconds of a block."""
    started = time.perf_counter()
    yield
    report(what, time.perf_counter() - started, "s")


def _compare(what: str, new: Path, old: Path, after: Reply, before: Reply) -> None:
    """Report how far vLLM's log-probabilities are from those of transformers with the weights that a trainer wrote."""
    given, former = after.completions[0], before.completions[0]
    own, exact, stale = (
        _score(folder, after, dtype)
        for folder, dtype in ((new, torch.bfloat16), (new, torch.float32), (old, torch.bfloat16))
    )
    said = torch.tensor(given.logprobs or ())
    beside = f"{_distance(own, exact):.3g} nats: transformers' bfloat16 from its float32"
    report(f"{what}: vLLM's log-probabilities from transformers', mean", _distance(own, said), "nats", beside)
    report(f"{what}: the same from the untrained weights'", _distance(stale, said), "nats", "far more")
    report(f"{what}: the completion is another than before", former.token_ids != given.token_ids)


def _score(folder: Path, reply: Reply, dtype: torch.dtype) -> torch.Tensor:
    scores = score(load_plain(folder, dtype, "cuda"), reply)
    torch.cuda.empty_cache()
    return scores


def _distance(first: torch.Tensor, second: torch.Tensor) -> float:
    return float((first - second).abs().mean())
