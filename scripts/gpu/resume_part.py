"""A training run of the embedded model that is killed and goes on, beside an undisturbed one."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from figures import Setting, attempt, report
from runs_part import MODEL, ROLLOUTS, SUMS, evorun

KILLED = (*SUMS, *ROLLOUTS, "method.steps=4", "method.eval_every=4", "training.save_every=1")
"""The run that is killed after its second step; PPO learns from equal rewards, too, which a small model often has."""


def measure(setting: Setting, _: str) -> None:
    """Report whether a killed run's records are those of an undisturbed one."""
    with attempt("a run that was killed and resumed"):
        _kill_and_resume(setting.scratch, f"engine.device={setting.device}")


def _kill_and_resume(scratch: Path, device: str) -> None:
    calm, killed = scratch / "calm", scratch / "killed"
    words = ("method=ppo", *MODEL, device, *KILLED)
    evorun(*words, f"hydra.run.dir={calm}")
    process = subprocess.Popen(
        [sys.executable, "-m", "evorun", *words, f"hydra.run.dir={killed}"], stdout=subprocess.DEVNULL
    )
    while process.poll() is None and not list(killed.glob("checkpoints/*2")):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    if process.wait() != -signal.SIGKILL:
        raise RuntimeError("the run ended before it could be killed")
    evorun("resume", str(killed))
    results = [json.loads((run / "results.json").read_text())["metrics"] for run in (calm, killed)]
    report("killed after a step and resumed: metrics equal", results[0] == results[1])
    report("the same: rollouts equal", *_compare(calm, killed))


def _compare(calm: Path, killed: Path) -> tuple[bool, str, str]:
    files = [run / "rollouts.jsonl" for run in (calm, killed)]
    lines = [file.read_text().splitlines() for file in files]
    equal = sum(line == other for line, other in zip(*lines, strict=True))
    return lines[0] == lines[1], "", f"{equal} of {len(lines[0])} lines"
