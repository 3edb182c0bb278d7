"""Check evorun on one GPU without a network: what runs there, how fast, and what it agrees with.

    python scripts/gpu/gpu_check.py [--parts decoding training-ppo ...] [--device cuda] [--size full] [--out FOLDER]

Each part is a process of its own with nine minutes at most. `--parts decoding` stands for all that begin so, in the
given order. With `--total 12` no part goes on after 12 minutes. A part that fails or is cut off is reported with its
last lines, and the others go on. FOLDER receives gpu_check.json, gpu_check.md (the table for docs/guides/gpus.md), and
a log and the figures of each part, line by line as they come: a killed check keeps them. A repeated call replaces only
the parts that it runs. Weights are random, in the shapes of published models.

`--device cpu --size tiny` tries everything but CUDA in a few minutes.
"""

import argparse
import datetime
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from figures import Setting, read_gpu_memory, to_table
from random_models import SIZES
from runs_part import METHODS

PARTS = (
    *("decoding-dense", "decoding-moe"),
    *("training-adapter", "training-full", "training-ppo", "training-trl", "training-moe"),
    *(f"runs-{method}" for method in METHODS),
    *("resume", "memory"),
    *("sharing-trainer", "sharing-level1", "sharing-level2"),
    *("vllm-dense", "vllm-moe"),
    *("transfer-ipc", "transfer-folders", "transfer-level2", "transfer-nccl"),
)
"""A group, whose module is `decoding_part` and so on, and what of it."""
MINUTES = 9
LAST_LINES = 15
MOST_HELD = 1.0
"""GiB of a GPU in use before a part, beyond which its figures are beside other work."""


def describe_machine(device: str) -> dict[str, Any]:
    """Return what a reader of the figures must know of the machine."""
    import torch

    from evorun.runs.environment import hardware, package_versions

    about: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "device": device,
        **hardware(),
        "packages": package_versions(),
    }
    if device == "cuda":
        capability = ".".join(map(str, torch.cuda.get_device_capability()))
        about |= {"gpu": torch.cuda.get_device_name(), "compute_capability": capability, "cuda": torch.version.cuda}
    return about


def choose_parts(asked: Sequence[str]) -> list[str]:
    """Return the parts that names of parts and groups stand for, in this order, each once. Raises ValueError."""
    chosen = dict[str, None]()
    for name in asked:
        if not (found := [part for part in PARTS if part == name or part.startswith(f"{name}-")]):
            raise ValueError(f"--parts {name}: expected some of {', '.join(PARTS)}, or what they begin with")
        chosen |= dict.fromkeys(found)
    return list(chosen)


def run_part(part: str, arguments: argparse.Namespace, folder: Path, minutes: float) -> dict[str, Any]:
    """Carry out a part in a process of its own; return its figures and seconds, or how it failed."""
    started, held = time.monotonic(), read_gpu_memory()
    log, figures = folder / f"{part}.log", folder / f"{part}.jsonl"
    with (
        tempfile.TemporaryDirectory(prefix="gpu-check-") as scratch,
        log.open("wb") as errors,
        figures.open("wb") as output,
    ):
        command = [sys.executable, __file__, "--inside", part, "--scratch", scratch]
        command += ["--device", arguments.device, "--size", arguments.size, "--models", str(arguments.models)]
        above = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}
        process = subprocess.Popen(
            command, stdout=output, stderr=errors, start_new_session=True, env={**os.environ, **above}
        )
        try:
            code = process.wait(timeout=60 * minutes)
            problem = f"ended with exit code {code}" if code else None
        except subprocess.TimeoutExpired:
            problem = f"cut off after {minutes:.3g} minutes"
        finally:  # also where the check itself is stopped: its session would go on with the GPU
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    said = figures.read_bytes()
    found: dict[str, Any] = {"seconds": round(time.monotonic() - started, 1)}
    if held > MOST_HELD:
        found["held"] = f"{held:.3g} GiB of the GPU were in use when this part began"
    found |= {"figures": [json.loads(line) for line in said.splitlines() if line.startswith(b"{")]}
    if problem is not None:
        lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        found |= {"problem": problem, "last_lines": lines}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for each part")
    parser.add_argument("--total", type=float, default=math.inf, metavar="MINUTES", help="for all parts together")
    parser.add_argument("--out", type=Path, default=Path("outputs/gpu_check"), metavar="FOLDER")
    for hidden in ("--inside", "--scratch", "--models"):
        parser.add_argument(hidden, type=str if hidden == "--inside" else Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        group, _, piece = arguments.inside.partition("-")
        setting = Setting(arguments.device, arguments.size, arguments.scratch, arguments.models)
        import_module(f"{group}_part").measure(setting, piece)
        return
    try:
        chosen = choose_parts(arguments.parts)
    except ValueError as error:
        parser.error(str(error))
    if arguments.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            parser.error("torch finds no GPU here; try --device cpu --size tiny")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="gpu-check-models-") as models:
        arguments.models = models
        sys.exit(not run_parts(chosen, arguments))


def run_parts(chosen: Sequence[str], arguments: argparse.Namespace) -> bool:
    """Carry out parts one after another, and write their figures after each; return whether all ended well."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "gpu_check.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    found |= {"machine": describe_machine(arguments.device), "size": arguments.size}
    end, well = time.monotonic() + 60 * arguments.total, True
    for part in chosen:
        left = (end - time.monotonic()) / 60
        if left <= 0:
            print(f"== {part}: no time left")
            well = False
            continue
        print(f"== {part}", flush=True)
        of_part = run_part(part, arguments, arguments.out, min(arguments.minutes, left))
        found.setdefault("parts", {})[part] = of_part
        file.write_text(json.dumps(found, indent=1) + "\n")
        (arguments.out / "gpu_check.md").write_text(to_table(found))
        print(to_table({**found, "parts": {part: of_part}}), flush=True)
        well &= "problem" not in of_part
    print(f"written to {arguments.out}")
    return well


if __name__ == "__main__":
    main()
