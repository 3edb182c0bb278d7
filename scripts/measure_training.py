"""A training step through evorun against the same step in a bare script of TRL: seconds, peak memory, tokens a second.

    python scripts/measure_training.py [--steps 5] [--rows 8] [--tokens 64] [--threads 1] [--model FOLDER]

Both train a LoRA adapter of a model, the embedded one by default, with GRPO, each in a process of its own. Their steps
take turns, so that other work on the machine slows both alike; all times are medians, and the first step counts for
neither. CPU seconds are the process's own, and steadier than the clock's where the machine has other work.
First both learn from the same completions, drawn at random; then each samples its own, evorun with its batch decoder
and TRL with transformers' `generate`.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from evorun.cli.compose import yaml_values
from evorun.models import Message, Request, Sampling
from evorun.models.chat import prompt_token_ids
from evorun.models.config import ModelConfig
from evorun.models.embedded import ensure
from evorun.runner.typed import typed
from evorun.training.config import TrainingConfig
from evorun.training.objectives import GradientSettings
from evorun.training.process import TrainerProcess
from evorun.training.wire import Generate, Job, PolicyGradient, Replies, Row, Train

GROUP = 4


def prompts(rows: int) -> list[list[Message]]:
    """Return a prompt a row; those of a group are the same."""
    return [[Message(role="user", content=f"What is {17 + i // GROUP} + {5 * (i // GROUP)}?")] for i in range(rows)]


def random_completions(rows: int, tokens: int, step: int) -> list[list[int]]:
    """Return token ids, about as many a row as asked for; the last rows are the shortest."""
    rng = random.Random(step)
    return [[rng.randrange(20, 49000) for _ in range(max(tokens - i, tokens // 2, 1))] for i in range(rows)]


def peak_memory(process: int) -> float:
    """Return the most memory that a process has held, in MiB."""
    [line] = [line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def cpu_seconds(process: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bare:
    """A script that uses TRL alone, in a process of its own; it makes a step whenever it is told to."""

    def __init__(self, arguments: argparse.Namespace, *, samples: bool) -> None:
        command = [sys.executable, __file__, "--bare", "samples" if samples else "given"]
        keys = ("steps", "rows", "tokens", "threads", "model", "device")
        command += [f"--{key}={getattr(arguments, key)}" for key in keys]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._receive()

    def step(self) -> dict[str, float]:
        """Make a step and return the script's measurements of it."""
        print("go", file=self.process.stdin, flush=True)
        return self._receive()

    def _receive(self) -> dict[str, float]:
        for line in self.process.stdout or ():
            if line.startswith("@"):
                said: dict[str, float] = json.loads(line[1:])
                return said
        raise SystemExit("the TRL script ended early")


def be_bare(arguments: argparse.Namespace) -> None:
    """Train with TRL alone, step by step as told on stdin."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    asked: Any = prompts(arguments.rows)
    said: dict[str, float] = {}
    steps = iter(range(arguments.steps + 2))

    def await_turn() -> int:
        print("@" + json.dumps(said), flush=True)
        if not sys.stdin.readline():
            os._exit(0)
        return next(steps)

    def given(_: list[Any], trainer: Any) -> dict[str, Any]:
        step = await_turn()
        texts = [tokenizer.apply_chat_template(p, add_generation_prompt=True, tokenize=False) for p in asked]
        ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
        completions = random_completions(arguments.rows, arguments.tokens, step)
        return {"prompt_ids": ids, "completion_ids": completions, "logprobs": None}

    def rewards(completions: list[Any], **_: Any) -> list[float]:
        return [float(i % 2) for i in range(len(completions))]

    gpu = arguments.device == "cuda"
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.bfloat16 if gpu else torch.float32),
            reward_funcs=rewards,
            train_dataset=Dataset.from_dict({"prompt": asked[::GROUP] * (arguments.steps + 2)}),
            processing_class=tokenizer,
            peft_config=LoraConfig(r=32, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
            rollout_func=given if arguments.bare == "given" else None,
            args=GRPOConfig(
                output_dir=folder,
                use_cpu=not gpu,  # on a GPU as evorun trains by default
                bf16=gpu,
                gradient_checkpointing=gpu,
                loss_type="dr_grpo",
                scale_rewards=False,
                per_device_train_batch_size=arguments.rows,
                num_generations=GROUP,
                max_completion_length=arguments.tokens,
                max_steps=arguments.steps + 2,
                shuffle_dataset=False,
                logging_steps=1,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
        )
        if arguments.bare == "samples":
            sample = trainer._generate_single_turn

            def timed(*arguments: Any, **options: Any) -> Any:
                await_turn()
                started = time.perf_counter()
                completions, *rest = sample(*arguments, **options)
                said.update(seconds=time.perf_counter() - started, tokens=sum(map(len, completions)))
                return completions, *rest

            trainer._generate_single_turn = timed
        trainer.train()


@contextmanager
def bare(arguments: argparse.Namespace, *, samples: bool) -> Iterator[Bare]:
    started = Bare(arguments, samples=samples)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()


class Evorun:
    """evorun's trainer process, spoken to as a run does."""

    def __init__(self, trainer: TrainerProcess, arguments: argparse.Namespace) -> None:
        self._trainer = trainer
        self._arguments = arguments
        self._updates = 0
        self._model = ModelConfig(name="measured", id=arguments.model)
        self._tokenizer = AutoTokenizer.from_pretrained(arguments.model)

    @property
    def process(self) -> int:
        """Number of the trainer process."""
        [process] = self._trainer.pids()
        return process

    async def learn(self, completions: list[list[int]]) -> None:
        """Make an update on completions."""
        self._updates += 1
        asked = [prompt_token_ids(self._tokenizer, messages, self._model) for messages in prompts(self._arguments.rows)]
        rows = [
            Row(
                prompt=tuple(prompt),
                tokens=tuple(tokens),
                learned=(True,) * len(tokens),
                reward=float(i % 2),
                advantage=i % 2 - 0.5,
                logprobs=(-11.0,) * len(tokens),  # as if drawn uniformly; what it is costs nothing
            )
            for i, (prompt, tokens) in enumerate(zip(asked, completions, strict=True))
        ]
        await self._trainer.ask(Train(number=self._updates, rows=tuple(rows)))

    async def sample(self) -> list[list[int]]:
        """Return a completion for each prompt."""
        requests = [
            Request(
                messages=tuple(messages),
                sampling=Sampling(max_tokens=self._arguments.tokens),
                seed=1000 * self._updates + i,
                token_ids=True,
            )
            for i, messages in enumerate(prompts(self._arguments.rows))
        ]
        answer = await self._trainer.ask(Generate(requests=tuple(requests), version=self._updates))
        replies = answer.replies if isinstance(answer, Replies) else ()
        return [list(reply.completions[0].token_ids or ()) for reply in replies]


async def measure(arguments: argparse.Namespace) -> None:
    for part in (measure_updates, measure_whole_steps):  # in new processes each, so that peaks of memory are the part's
        with tempfile.TemporaryDirectory() as name:
            trainer = await TrainerProcess.start(job(arguments, Path(name)), Path(name) / "trainer.log")
            try:
                await part(Evorun(trainer, arguments), arguments)
            finally:
                await trainer.close()


async def measure_updates(evorun: Evorun, arguments: argparse.Namespace) -> None:
    ours, theirs = [], []
    with bare(arguments, samples=False) as script:
        for step in range(arguments.steps + 1):
            started = _clocks(evorun.process)
            await evorun.learn(random_completions(arguments.rows, arguments.tokens, step))
            ours.append(_since(started, evorun.process))
            started = _clocks(script.process.pid)
            await asyncio.to_thread(script.step)
            theirs.append(_since(started, script.process.pid))
        memory = peak_memory(script.process.pid)
    for clock, name in enumerate(("seconds an update, same completions", "CPU seconds an update")):
        medians = [statistics.median(times[clock] for times in of[1:]) for of in (ours, theirs)]
        show(name, medians[0], medians[1], most="1.05")
    show("peak memory, MiB", peak_memory(evorun.process), memory, "1.1")


def _clocks(process: int) -> tuple[float, float]:
    return time.perf_counter(), cpu_seconds(process)


def _since(started: tuple[float, float], process: int) -> tuple[float, float]:
    return time.perf_counter() - started[0], cpu_seconds(process) - started[1]


async def measure_whole_steps(evorun: Evorun, arguments: argparse.Namespace) -> None:
    ours, theirs, speeds, their_speeds = [], [], [], []
    with bare(arguments, samples=True) as script:
        for _ in range(arguments.steps + 1):
            started = time.perf_counter()
            completions = await evorun.sample()
            sampled = time.perf_counter()
            await evorun.learn(completions)
            ours.append((time.perf_counter() - started) / sum(map(len, completions)))
            speeds.append(sum(map(len, completions)) / (sampled - started))
            started = time.perf_counter()
            said = await asyncio.to_thread(script.step)
            theirs.append((time.perf_counter() - started) / said["tokens"])
            their_speeds.append(said["tokens"] / said["seconds"])
        memory = peak_memory(script.process.pid)
    show("sampled tokens a second", statistics.median(speeds[1:]), statistics.median(their_speeds[1:]))
    show("ms a token, whole step", 1000 * statistics.median(ours[1:]), 1000 * statistics.median(theirs[1:]))
    show("peak memory with sampling, MiB", peak_memory(evorun.process), memory, "1.1")


def show(what: str, evorun: float, trl: float, most: str | None = None) -> None:
    target = f"  (target: at most {most})" if most else ""
    print(f"{what:38} evorun {evorun:9.2f}   TRL {trl:9.2f}   ratio {evorun / trl:5.3f}{target}", flush=True)


def job(arguments: argparse.Namespace, folder: Path) -> Job:
    objective = PolicyGradient(
        loss="dr_grpo",
        steps=arguments.steps + 1,
        settings=GradientSettings(minibatches=1, kl=0.0, clip_low=0.2, clip_high=0.2),
        temperature=1.0,
    )
    return Job(
        socket="",
        model=ModelConfig(name="measured", id=arguments.model),
        weights=arguments.model,
        training=typed(TrainingConfig, {**yaml_values("training", "lora"), "micro_batch": arguments.rows}, "training"),
        objective=objective,
        seed=0,
        folder=str(folder),
        checkpoint=None,
        device=arguments.device,
        max_batch_size=32,
        prefix_cache_tokens=32768,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rows", type=int, default=8, help=f"completions in a batch, a multiple of {GROUP}")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of a completion, at most")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each of the two")
    parser.add_argument("--model", default=str(ensure()), metavar="FOLDER", help="default: the embedded model")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--bare", choices=("given", "samples"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # as evorun's trainer sets it for itself
    if arguments.bare:
        be_bare(arguments)
    else:
        asyncio.run(measure(arguments))


if __name__ == "__main__":
    main()
