"""Steps of the trainers: seconds and peak memory, by an adapter and all weights, beside bare TRL's."""

import argparse
import asyncio
import dataclasses
import importlib.util
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from measure_training import Evorun, bare, job, random_completions

from evorun.cli.compose import yaml_values
from evorun.runner.typed import typed
from evorun.training.objectives import ProximalSettings
from evorun.training.process import TrainerProcess
from evorun.training.wire import FineTuning, Job, ProximalPolicy, Train
from figures import Setting, attempt, median, peak_memory, read_gpu_memory, report
from random_models import write_random_model

SIZES = {"full": {"steps": 4, "rows": 32, "tokens": 512}, "tiny": {"steps": 2, "rows": 4, "tokens": 8}}
"""Steps after the first, completions in each, and their tokens."""


def measure(setting: Setting, piece: str) -> None:
    """Report the figures of each way to train that belongs to a piece.

    adapter, full, ppo: the dense model's adapters, all its weights, PPO. trl: bare TRL beside evorun, with the dense
    model; moe: the same with a sparse one.
    """
    family = "moe" if piece == "moe" else "dense"
    with attempt(f"{family}: training"):
        sizes = argparse.Namespace(device=setting.device, threads=1, **SIZES[setting.size])
        sizes.model = str(write_random_model(family, setting))
        for what, changed in _jobs(sizes, setting, piece).items():
            with attempt(f"{family}: {what}"):
                asyncio.run(_train(f"{family}: {what}", changed, sizes, setting))
        if piece in ("moe", "trl"):
            with attempt(f"{family}: bare TRL"):
                _train_bare(f"{family}: GRPO of bare TRL, adapter", sizes, setting)


def _jobs(sizes: argparse.Namespace, setting: Setting, piece: str) -> Mapping[str, Job]:
    """Return what trainers are told, by a name of each way to train."""
    checkpoints = setting.scratch / "checkpoints"
    checkpoints.mkdir(exist_ok=True)
    plain = job(sizes, checkpoints)
    changed = msgspec.structs.replace
    plain = changed(plain, training=dataclasses.replace(plain.training, micro_batch=10))
    # as of a run: all weights take the learning rates of training=full_policy_gradient and training=full
    full = dataclasses.replace(plain.training, weights="full", learning_rate=1e-6)
    match piece:
        case "moe" | "trl":
            return {"GRPO, adapter": plain}
        case "ppo":
            return {"PPO with its critic, adapter": changed(plain, objective=_proximal(sizes.steps + 1))}
        case "full":
            tuned = changed(plain, objective=_tuning(sizes, setting))
            return {
                "GRPO, all weights": changed(plain, training=full),
                "fine-tuning, all weights": changed(tuned, training=dataclasses.replace(full, learning_rate=1e-5)),
            }
    stored = dataclasses.replace(plain.training, gradient_checkpointing=False)
    jobs = {"GRPO, adapter": plain}
    if importlib.util.find_spec("bitsandbytes") is not None:
        jobs["GRPO, adapter on weights of nf4"] = changed(
            plain, training=dataclasses.replace(plain.training, quantise="nf4")
        )
    jobs["GRPO, adapter, activations kept"] = changed(plain, training=stored)
    jobs["fine-tuning, adapter"] = changed(plain, objective=_tuning(sizes, setting))
    return jobs


def _tuning(sizes: argparse.Namespace, setting: Setting) -> FineTuning:
    return FineTuning(
        train=str(_write_conversations(setting.scratch / "conversations.jsonl", sizes)),
        held_out=None,
        source="conversations.jsonl",
        epochs=1.0,
        batch=sizes.rows,
        max_length=2 * sizes.tokens + 128,
    )


def _proximal(steps: int) -> ProximalPolicy:
    values = yaml_values("method", "ppo")
    names = {field.name for field in dataclasses.fields(ProximalSettings)}
    settings = typed(ProximalSettings, {name: values[name] for name in names}, "method")
    return ProximalPolicy(settings=settings, steps=steps, temperature=1.0)


def _write_conversations(file: Path, sizes: argparse.Namespace) -> Path:
    text = " ".join(str(i % 97) for i in range(sizes.tokens // 2))
    lines = (
        {
            "line": number,
            "messages": [{"role": "user", "content": f"{number}?"}, {"role": "assistant", "content": text}],
        }
        for number in range(1, (sizes.steps + 1) * sizes.rows + 1)
    )
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


async def _train(what: str, given: Job, sizes: argparse.Namespace, setting: Setting) -> None:
    before = read_gpu_memory()  # what this process holds, since it has drawn the weights
    trainer = await TrainerProcess.start(given, setting.scratch / "trainer.log")
    try:
        evorun, seconds = Evorun(trainer, sizes), list[float]()
        with peak_memory(evorun.process) as peak:
            for step in range(sizes.steps + 1):
                started = time.perf_counter()
                if isinstance(given.objective, FineTuning):
                    await trainer.ask(Train(number=step + 1))
                else:
                    await evorun.learn(random_completions(sizes.rows, sizes.tokens, step))
                seconds.append(time.perf_counter() - started)
        _report(what, seconds, peak() - before, sizes)
    finally:
        await trainer.close()


def _train_bare(what: str, sizes: argparse.Namespace, setting: Setting) -> None:
    seconds, before = [], read_gpu_memory()
    with bare(sizes, samples=False) as script, peak_memory(script.process.pid) as peak:
        for _ in range(sizes.steps + 1):
            started = time.perf_counter()
            script.step()
            seconds.append(time.perf_counter() - started)
        _report(what, seconds, peak() - before, sizes)


def _report(what: str, seconds: list[float], memory: float, sizes: Any) -> None:
    step = median(seconds)
    report(f"{what}: step of {sizes.rows} completions of {sizes.tokens} tokens", step, "s")
    report(f"{what}: memory", memory, "GiB")
