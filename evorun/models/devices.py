"""The GPUs of this machine, and their assignment to child processes."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from evorun.errors import ConfigError
from evorun.models.keys import child_environment

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable with the GPUs that a process sees, numbered in this order. CUDA reads it on first use."""


_MAX_COUNT = 1024
"""Most nodes, and GPUs of a node, in an inventory (ours)."""


class Gpu(NamedTuple):
    """A GPU, of this machine or of an inventory."""

    memory: float
    """In GiB."""
    node: int = 0


def read_inventory(given: str) -> list[Gpu]:
    """Return the GPUs of `8x80` (8 of 80 GiB) or `2x8x80` (2 nodes of 8 each). Raises ConfigError."""
    *counts, size = given.split("x")
    try:
        nodes, count = [1, *map(int, counts)][-2:] if len(counts) in (1, 2) else (0, 0)
        memory = float(size)
    except ValueError:
        nodes, count, memory = 0, 0, 0.0
    if not (0 < nodes <= _MAX_COUNT and 0 < count <= _MAX_COUNT and 0 < memory < float("inf")):
        raise ConfigError(f"--gpus: expected COUNTxGIB or NODESxCOUNTxGIB, such as 8x80 or 2x8x80, got {given:.40}")
    return [Gpu(memory, node) for node in range(nodes) for _ in range(count)]


def find_gpus() -> list[Gpu]:
    """Return the GPUs that this process may use; none where nvidia-smi does not tell the memory of each."""
    lines = [line.split(", ") for line in query_gpus("index,uuid,memory.total")]
    known = {}
    for index, uuid, memory in (line for line in lines if len(line) == 3):
        number = memory.removesuffix(" MiB")
        if number.isdecimal():
            known[index] = known[uuid] = Gpu(int(number) / 1024)
    gpus = [known.get(name) for name in visible_gpus()]
    return [gpu for gpu in gpus if gpu is not None] if None not in gpus else []


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, by their names in `CUDA_VISIBLE_DEVICES`."""
    if (given := os.environ.get(VISIBLE)) is not None:
        return [name.strip() for name in given.split(",") if name.strip()]
    return [str(index) for index in range(len(query_gpus("index")))]


def describe_visible_gpus() -> list[str]:
    """Return name and memory of each GPU that this process may use; its name there where nvidia-smi knows no more."""
    lines = [line.split(", ", 2) for line in query_gpus("index,uuid,name,memory.total") if line.count(", ") > 1]
    known = {key: about for index, uuid, about in lines for key in (index, uuid)}
    return [known.get(name, name) for name in visible_gpus()]


def query_gpus(fields: str) -> list[str]:
    """Return one line per GPU with fields from nvidia-smi; empty without that tool."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True, env=child_environment())
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.strip().splitlines()


def device_environment(key: str, devices: Sequence[int] | None) -> dict[str, str]:
    """Return the environment variables that restrict a process to these GPUs. None: no restriction, so empty.

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
    """Raise ConfigError for a list of GPUs that is empty or has repeated or negative numbers."""
    if devices is not None and (not devices or len(set(devices)) < len(devices) or min(devices) < 0):
        raise ConfigError(f"{key}: expected different GPU numbers from 0, or null, got {list(devices)}")
