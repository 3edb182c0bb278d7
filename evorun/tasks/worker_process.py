"""A Python file that runs in a separate process and answers each line with a line: for work that may take long."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, cast

from evorun.errors import DataError
from evorun.models.keys import child_environment


class WorkerProcess:
    """A process that runs a file; it ends with its input, at the latest with the process that started it."""

    def __init__(
        self, file: Path, *arguments: str, purpose: str, package: str, environment: Mapping[str, str] = {}
    ) -> None:
        """Start the process and wait until it is ready.

        The file writes one JSON object per line: first `{"ready": true}`, or `{"error": REASON}` where it cannot work,
        then one reply per line that it reads. It imports nothing of evorun. purpose, package: its purpose and its
        requirement, for the DataError that is raised where it does not start. environment: further variables.
        """
        # -P: the files beside the worker must not hide other modules of their names.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(file), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**child_environment(), **environment},  # it reads untrusted texts of models
            text=True,
        )
        self._requests = cast(IO[str], self._process.stdin)
        self._replies = cast(IO[str], self._process.stdout)
        # The import of its package may take seconds, and may fail; the worker says so before the first request.
        greeting = json.loads(self._replies.readline() or "{}")
        if "ready" not in greeting:
            reason = greeting.get("error") or f"it ended with status {self.end()}"
            self.end()
            raise DataError(f"{purpose} needs {package} (pip install {package}), which does not start: {reason}")

    def ask(self, request: str) -> str:
        """Return the reply to a request, each one line; empty when the request ended the process."""
        with contextlib.suppress(BrokenPipeError):
            self._requests.write(request + "\n")
            self._requests.flush()
        return self._replies.readline()

    def end(self) -> int:
        """Wait for the process, which ends with its input at the latest; return its status."""
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        self._replies.close()
        return self._process.wait()
