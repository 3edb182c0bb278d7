"""Whole runs of the embedded model: a step of each method that trains, and a killed run that goes on."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from figures import Setting, attempt, report

MODEL = ("model=smollm2_135m", "engine=transformers", "evorun.progress=off", "training.save_every=1")
SUMS = ("task=arithmetic", "task.limit=2", "task.train_problems=8", "method.max_tokens=16", "method.eval_samples=1")
ROLLOUTS = ("method.steps=1", "method.problems_per_step=2", "method.group=2", "method.eval_every=1")
METHODS = {
    "duel_evolve": ("task=arithmetic", "task.limit=2", "method.generations=1", "method.max_tokens=16"),
    "grpo": (*SUMS, *ROLLOUTS),
    "cispo": (*SUMS, *ROLLOUTS),
    "rloo": (*SUMS, *ROLLOUTS),
    "ppo": (*SUMS, *ROLLOUTS),
    "espl": (*SUMS, *ROLLOUTS),
    "mpo": (*SUMS, *ROLLOUTS, "reward=smollm2_135m", "reward_engine=transformers"),
    "sft": (*SUMS, "method.eval_every=1", "method.epochs=1", "method.batch=4"),
}
KILLED = (*SUMS, *ROLLOUTS, "method.steps=4", "method.eval_every=4")
"""The run that is killed after its second step."""


def measure(setting: Setting) -> None:
    """Report which methods complete a run, and whether a killed run's records and weights are an undisturbed one's."""
    device = f"engine.device={setting.device}"
    for name, words in METHODS.items():
        with attempt(f"a run of {name}"):
            folder = setting.scratch / name
            if name == "sft":
                words = (*words, f"method.data={_write_sums(setting.scratch / 'sums.jsonl')}")
            started = time.perf_counter()
            _evorun(f"method={name}", *MODEL, device, *words, f"hydra.run.dir={folder}")
            report(f"a run of {name}", True, "", f"{time.perf_counter() - started:.0f} s with start and report")
    with attempt("a run that was killed and resumed"):
        _kill_and_resume(setting.scratch, device)


def _evorun(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "evorun", *words], capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, file=sys.stderr)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise RuntimeError(said[-1] if said else f"exit code {done.returncode}")


def _kill_and_resume(scratch: Path, device: str) -> None:
    calm, killed = scratch / "calm", scratch / "killed"
    words = ("method=grpo", *MODEL, device, *KILLED)
    _evorun(*words, f"hydra.run.dir={calm}")
    process = subprocess.Popen(
        [sys.executable, "-m", "evorun", *words, f"hydra.run.dir={killed}"], stdout=subprocess.DEVNULL
    )
    while process.poll() is None and not list(killed.glob("checkpoints/*2")):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    if process.wait() != -signal.SIGKILL:
        raise RuntimeError("the run ended before it could be killed")
    _evorun("resume", str(killed))
    results = [json.loads((run / "results.json").read_text())["metrics"] for run in (calm, killed)]
    report("killed after a step and resumed: metrics equal", results[0] == results[1])
    report("the same: rollouts equal", *_compare(calm, killed))


def _compare(calm: Path, killed: Path) -> tuple[bool, str, str]:
    files = [run / "rollouts.jsonl" for run in (calm, killed)]
    lines = [file.read_text().splitlines() for file in files]
    equal = sum(one == other for one, other in zip(*lines, strict=True))
    return lines[0] == lines[1], "", f"{equal} of {len(lines[0])} lines"


def _write_sums(file: Path) -> Path:
    chats = (
        [{"role": "user", "content": f"What is {i} + {i + 1}?"}, {"role": "assistant", "content": f"{2 * i + 1}"}]
        for i in range(8)
    )
    file.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    return file
