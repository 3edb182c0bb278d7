"""The GPUs of this machine, as child processes are told which to use."""

import os
import shutil
import subprocess
from collections.abc import Sequence

from evorun.errors import ConfigError
from evorun.models.keys import child_environment

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Variable that CUDA reads when a process first uses it: the GPUs that the process sees, numbered in this order."""


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, by the names that `CUDA_VISIBLE_DEVICES` has for them."""
    if (given := os.environ.get(VISIBLE)) is not None:
        return [name.strip() for name in given.split(",") if name.strip()]
    return [str(index) for index in range(len(query_gpus("index")))]


def query_gpus(fields: str) -> list[str]:
    """Return a line a GPU with fields of the NVIDIA driver's own tool; empty without one."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True, env=child_environment())
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.strip().splitlines()


def of_devices(key: str, devices: Sequence[int] | None) -> dict[str, str]:
    """Return the environment of a process that shall use these GPUs alone; None: empty, it sees what this one sees.

    key: the config key to name in the ConfigError for a GPU that does not exist.
    """
    if devices is None:
        return {}
    gpus = visible_gpus()
    for device in devices:
        if device >= len(gpus):
            there = f"GPUs 0 to {len(gpus) - 1}" if gpus else "no GPU"
            raise ConfigError(f"{key}: expected GPUs of this machine, which has {there}, got {device}")
    return {VISIBLE: ",".join(gpus[device] for device in devices)}


def check_devices(key: str, devices: Sequence[int] | None) -> None:
    """Raise ConfigError for a list of GPUs that is empty, names one twice, or a number below 0."""
    if devices is not None and (not devices or len(set(devices)) < len(devices) or min(devices) < 0):
        raise ConfigError(f"{key}: expected numbers of GPUs from 0, each once, or null, got {list(devices)}")
