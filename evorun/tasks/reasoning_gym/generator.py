"""A worker process that generates problems.

Importing Reasoning Gym takes seconds, and some families depend on the interpreter's hash seed, which is fixed there.
"""

import atexit
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from evorun.errors import ConfigError, DataError
from evorun.tasks.worker_process import WorkerProcess

FAMILIES = Path(__file__).with_name("families.py")


class Generator:
    """Asks the worker, one request at a time; the first one starts it."""

    def __init__(self) -> None:
        self._worker: WorkerProcess | None = None
        self._lock = Lock()

    def ask(self, work: str, given: Mapping[str, Any]) -> Any:
        """Return the result of a function of `families` that the worker serves.

        Raises ConfigError for settings that the family refuses; DataError where Reasoning Gym is not installed, or the
        worker ends.
        """
        with self._lock:
            worker = self._worker = self._worker or WorkerProcess(
                FAMILIES,
                "serve",
                purpose="task=reasoning_gym",
                package="'evorun[reasoning-gym]'",
                environment={"PYTHONHASHSEED": "0"},
            )
            line = worker.ask(json.dumps([work, given]))
            if not line:
                self._worker = None
                raise DataError(f"task=reasoning_gym: the process that makes problems ended with status {worker.end()}")
        reply = json.loads(line)
        if "error" in reply:
            raise ConfigError(reply["error"])
        return reply["result"]

    def close(self) -> None:
        """End the worker."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None


@cache
def shared() -> Generator:
    """Return the generator that all tasks of this process share."""
    generator = Generator()
    atexit.register(generator.close)
    return generator
