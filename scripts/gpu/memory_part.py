"""A training run whose first passes do not fit the GPU's memory, beside the same run with all of it."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from figures import Setting, attempt, peak_memory, report
from runs_part import MODEL, SUMS, evorun

PASSES = (
    *SUMS[:3],
    "method.eval_samples=1",
    "method.steps=1",
    "method.eval_every=1",
    "method.problems_per_step=4",
    "method.group=8",
    "method.max_tokens=256",
    "training.micro_batch=32",
    "training.micro_batch_tokens=32768",
    "training.gradient_checkpointing=false",
)
"""One update of 32 completions, in a single pass that keeps all activations. PPO learns from equal rewards, too, which
a small model often has."""


def measure(setting: Setting, _: str) -> None:
    """Report whether a run goes on with smaller passes, and what it then learns."""
    if setting.device == "cpu":
        report("a run short of memory", "not tried: needs a GPU")
        return
    with attempt("a run short of memory"):
        roomy, tight = setting.scratch / "roomy", setting.scratch / "tight"
        seconds, peak = _train(roomy, setting)
        # The pass of all completions needs nearly this peak, and that of half of them a little more than half of it.
        with _occupied(leaving=0.75 * peak):
            tight_seconds = _train(tight, setting)[0]
        [made] = json.loads((tight / "manifest.json").read_text())["smaller_passes"]
        report("a run with room for its passes", seconds, "s", f"{peak:.3g} GiB at its peak")
        report("the same with three quarters of that memory", tight_seconds, "s", f"{made['reason']}"[:200])
        report("the passes that it then takes", made["reduced"], "tokens", f"{made['configured']:,} configured")
        norms = [_read_norm(run) for run in (roomy, tight)]
        report("its gradient's norm", norms[1], "", f"{norms[0]:.6g} with room")


def _train(folder: Path, setting: Setting) -> tuple[float, float]:
    with peak_memory() as peak:
        before = peak()
        started = time.perf_counter()
        evorun("method=ppo", *MODEL, f"engine.device={setting.device}", *PASSES, f"hydra.run.dir={folder}")
        return time.perf_counter() - started, peak() - before


@contextmanager
def _occupied(*, leaving: float) -> Iterator[None]:
    """Hold the GPU's free memory but for some GiB."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    held = torch.empty(int(free - leaving * 2**30), dtype=torch.uint8, device="cuda")
    try:
        yield
    finally:
        del held
        torch.cuda.empty_cache()


def _read_norm(run: Path) -> float:
    lines = (run / "training.jsonl").read_text().splitlines()
    norm: float = json.loads(lines[0])["grad_norm"]
    return norm
