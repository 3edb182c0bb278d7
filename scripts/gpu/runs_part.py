"""Whole runs of the embedded model: a step of each method that trains."""

import json
import subprocess
import sys
import time
from pathlib import Path

from figures import Setting, attempt, report

MODEL = ("model=smollm2_135m", "engine=transformers", "evorun.progress=off")
SUMS = ("task=arithmetic", "task.limit=2", "task.train_problems=8", "method.max_tokens=16", "method.eval_samples=1")
ROLLOUTS = ("method.steps=1", "method.problems_per_step=2", "method.group=2", "method.eval_every=1")
METHODS = {
    "duel_evolve": ("task=arithmetic", "task.limit=2", "method.generations=1", "method.max_tokens=16"),
    "grpo": (*SUMS, *ROLLOUTS),
    "cispo": (*SUMS, *ROLLOUTS),
    "rloo": (*SUMS, *ROLLOUTS),
    "ppo": (*SUMS, *ROLLOUTS),
    # a small model rambles to the limit of a reflection or a judgment
    "espl": (*SUMS, *ROLLOUTS, "method.reflection_max_tokens=64"),
    "mpo": (*SUMS, *ROLLOUTS, "reward=smollm2_135m", "reward_engine=transformers", "method.reward_max_tokens=64"),
    "sft": (
        *SUMS[:3],
        "method.eval_samples=1",
        "method.eval_max_tokens=16",
        "method.eval_every=1",
        "method.epochs=1",
        "method.batch=4",
    ),
}


def measure(setting: Setting, name: str) -> None:
    """Report whether a method completes a run."""
    with attempt(f"a run of {name}"):
        words = METHODS[name]
        if name == "sft":
            words = (*words, f"method.data={_write_sums(setting.scratch / 'sums.jsonl')}")
        started = time.perf_counter()
        device, folder = f"engine.device={setting.device}", setting.scratch / name
        evorun(f"method={name}", *MODEL, device, *words, f"hydra.run.dir={folder}")
        report(f"a run of {name}", True, "", f"{time.perf_counter() - started:.0f} s with start and report")


def evorun(*words: str) -> None:
    """Run a command of evorun. Raises RuntimeError with its last line when it fails."""
    done = subprocess.run([sys.executable, "-m", "evorun", *words], capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, file=sys.stderr)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise RuntimeError(said[-1] if said else f"exit code {done.returncode}")


def _write_sums(file: Path) -> Path:
    chats = (
        [{"role": "user", "content": f"What is {i} + {i + 1}?"}, {"role": "assistant", "content": f"{2 * i + 1}"}]
        for i in range(8)
    )
    file.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    return file
