"""Finds the isolation that the sandbox's settings give on this machine."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from evorun.errors import EvorunError
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.pool import Sandbox

COVERED = "programs have no network, see no files but the interpreter's, no environment and no processes, leave nothing"
"""The promise of full isolation, in one line."""


class Probe(NamedTuple):
    """The result of probing the sandbox."""

    isolation: str
    """bubblewrap | namespaces | gvisor | rlimits | none"""
    full: bool
    """No network, no files but the interpreter's, nothing left behind."""
    note: str
    """One line on what programs can do, or on why none can run; empty if the isolation is full."""


def probe(config: SandboxConfig, private: Sequence[Path] = ()) -> Probe:
    """Open a sandbox of one slot, report its isolation and close it (about 0.3 s). Never raises.

    private: see `Sandbox.open`.
    """

    async def look() -> Probe:
        try:
            sandbox = await Sandbox.open(replace(config, slots=1, preload=[]), private)
        except (EvorunError, OSError) as error:  # OSError: this machine lets us create no folder or process
            return Probe("none", False, str(error))
        await sandbox.close()
        return Probe(sandbox.isolation, sandbox.fully_isolated, sandbox.note)

    # In a new thread: an event loop may already be running in this one, and loops do not nest.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(look())).result()


def isolation_warning(isolation: str, note: str) -> str:
    """Return a one-line warning about an isolation that is not full."""
    return f"no full isolation ({isolation}): {note}"
