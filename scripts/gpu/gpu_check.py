"""Check evorun on one GPU without a network: what runs there, how fast, and what it agrees with.

    python scripts/gpu/gpu_check.py [--parts decoding ...] [--device cuda] [--size full] [--out FOLDER]

Each part is a process of its own with nine minutes at most. A part that fails or is cut off is reported with its last
lines, and the others go on. FOLDER receives gpu_check.json, gpu_check.md (the table for docs/guides/gpus.md), and a log
and the figures of each part, line by line as they come: a killed check keeps them. A repeated call replaces only
the parts that it runs. Weights are random, in the shapes of published models.

`--device cpu --size tiny` tries everything but CUDA in a few minutes.
"""

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from figures import Setting, to_table
from random_models import SIZES

PARTS = {
    "decoding": "decoding_part",
    "training": "training_part",
    "runs": "runs_part",
    "resume": "resume_part",
    "memory": "memory_part",
    "sharing": "sharing_part",
    "vllm": "vllm_part",
    "transfer": "transfer_part",
}
MINUTES = 9
LAST_LINES = 15


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


def run_part(part: str, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Carry out a part in a process of its own; return its figures, or how it failed."""
    log, figures = folder / f"{part}.log", folder / f"{part}.jsonl"
    with (
        tempfile.TemporaryDirectory(prefix="gpu-check-") as scratch,
        log.open("wb") as errors,
        figures.open("wb") as output,
    ):
        command = [sys.executable, __file__, "--inside", part, "--scratch", scratch]
        command += ["--device", arguments.device, "--size", arguments.size]
        above = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}
        process = subprocess.Popen(
            command, stdout=output, stderr=errors, start_new_session=True, env={**os.environ, **above}
        )
        try:
            code = process.wait(timeout=60 * arguments.minutes)
            problem = f"ended with exit code {code}" if code else None
        except subprocess.TimeoutExpired:
            problem = f"cut off after {arguments.minutes} minutes"
        finally:  # also where the check itself is stopped: its session would go on with the GPU
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    said = figures.read_bytes()
    found: dict[str, Any] = {"figures": [json.loads(line) for line in said.splitlines() if line.startswith(b"{")]}
    if problem is not None:
        lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        found |= {"problem": problem, "last_lines": lines}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=[*PARTS], default=[*PARTS])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--size", choices=SIZES, default="full")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for each part")
    parser.add_argument("--out", type=Path, default=Path("outputs/gpu_check"), metavar="FOLDER")
    parser.add_argument("--inside", choices=[*PARTS], help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        import_module(PARTS[arguments.inside]).measure(Setting(arguments.device, arguments.size, arguments.scratch))
        return
    if arguments.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            parser.error("torch finds no GPU here; try --device cpu --size tiny")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "gpu_check.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    found |= {"machine": describe_machine(arguments.device), "size": arguments.size}
    failed = False
    for part in arguments.parts:
        print(f"== {part}", flush=True)
        of_part = found.setdefault("parts", {})[part] = run_part(part, arguments, arguments.out)
        file.write_text(json.dumps(found, indent=1) + "\n")
        (arguments.out / "gpu_check.md").write_text(to_table(found))
        print(to_table({**found, "parts": {part: of_part}}), flush=True)
        failed |= "problem" in of_part
    print(f"written to {arguments.out}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
