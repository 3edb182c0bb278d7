"""Says why vLLM cannot start or has ended: its processes log the cause, and their parent learns only that they died."""

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evorun.models.memory import format_size, says_out_of_memory

LONGEST = 400
"""Characters of a message that an error quotes. `ours`."""

_KEYS = (
    (
        "less than desired GPU memory",
        "another process uses the GPU: end it, or lower engine.gpu_memory_utilization",
    ),
    (
        "No available memory for the cache blocks",
        "raise engine.gpu_memory_utilization on an unshared GPU (engine.cpu_kv_cache_gib on a CPU) or "
        "engine.tensor_parallel_size, or lower engine.max_num_seqs",
    ),
    (
        "available KV cache memory",
        "lower engine.max_model_len, or raise engine.gpu_memory_utilization (engine.cpu_kv_cache_gib on a CPU) or "
        "engine.tensor_parallel_size",
    ),
    ("", "lower engine.max_num_seqs, engine.max_model_len or engine.gpu_memory_utilization"),
)
"""Advice by a part of vLLM's message."""

_EXCEPTION = re.compile(r"(?:^|[\s\]])((?:\w+\.)*\w*(?:Error|Exception)): (.+)")


class EngineErrors:
    """The errors that the processes of one engine log, in a file of their own."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="evorun-vllm-")
        self._file = Path(self._folder.name) / "errors.log"
        handlers: dict[str, dict[str, Any]] = {
            "stream": {"class": "logging.StreamHandler", "formatter": "plain", "level": "ERROR"},
            "file": {
                **{"class": "logging.FileHandler", "formatter": "plain", "level": "ERROR"},
                **{"filename": str(self._file), "delay": True},
            },
        }
        settings = {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"plain": {"format": "%(processName)s %(levelname)s %(asctime)s %(message)s"}},
            "handlers": handlers,
            "loggers": {"vllm": {"handlers": [*handlers], "level": "ERROR", "propagate": False}},
        }
        self._settings = Path(self._folder.name) / "logging.json"
        self._settings.write_text(json.dumps(settings))

    def environment(self, own: Mapping[str, str]) -> dict[str, str]:
        """Return the variables by which vLLM's processes log here; none if the user has configured their logging."""
        if "VLLM_LOGGING_CONFIG_PATH" in own or own.get("VLLM_CONFIGURE_LOGGING") == "0":
            return {}
        return {"VLLM_LOGGING_CONFIG_PATH": str(self._settings), "VLLM_CONFIGURE_LOGGING": "1"}

    def find_cause(self) -> str:
        """Return the first exception that a process has logged (`ValueError: ...`), or an empty text."""
        try:
            text = self._file.read_text(errors="replace")
        except OSError:
            return ""
        # A traceback's own message comes first; what its parents raise in consequence comes later. Lack of memory
        # counts before all others, since it causes them.
        found = [f"{kind}: {message}" for kind, message in _EXCEPTION.findall(text)]
        return next((error for error in found if says_out_of_memory(error)), found[0] if found else "")

    def close(self) -> None:
        """Remove the file."""
        self._folder.cleanup()


@dataclass(frozen=True)
class Diagnosis:
    """The messages and arguments of an engine, read when its processes die."""

    errors: EngineErrors
    arguments: Mapping[str, Any]

    def explain_death(self) -> str:
        """Return why the engine's process died, and what to do."""
        cause = self.errors.find_cause()
        if says_out_of_memory(cause):
            return describe_lack(cause, self.arguments)
        if cause:
            return f"{shorten(cause)}; see its messages above, and evorun resume continues the run"
        # A process that the kernel kills logs nothing.
        return (
            "it logged no error, as if the system had killed it for a lack of main memory: lower engine.max_num_seqs "
            "or engine.cpu_kv_cache_gib"
        )


def describe_lack(reason: str, arguments: Mapping[str, Any]) -> str:
    """Return vLLM's message about a lack of memory with the engine's sizes and what to set.

    arguments: of `AsyncEngineArgs`.
    """
    keys = next(keys for part, keys in _KEYS if part in reason)
    sizes = [f"engine.{key}={arguments[key]}" for key in ("max_num_seqs", "max_model_len", "gpu_memory_utilization")]
    files = [file.stat().st_size for file in Path(arguments["model"]).glob("*.safetensors")]
    weights = [f"weights {format_size(sum(files))}"] if files else []
    return f"out of memory: {shorten(reason)} ({', '.join([*weights, *sizes])}); {keys}"


def shorten(text: str) -> str:
    """Return a text on one line, cut to a readable length."""
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
