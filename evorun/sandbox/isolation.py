"""Which isolation the sandbox's settings lead to on this machine."""

import asyncio
import threading
from typing import NamedTuple

from evorun.errors import EvorunError
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.pool import Sandbox


class Probe(NamedTuple):
    """What a look at the sandbox found."""

    isolation: str
    """bubblewrap | namespaces | rlimits | none"""
    full: bool
    """No network, no files but the interpreter's, nothing left behind."""
    note: str
    """One line for people: why it is not full, or an empty text."""


def probe(config: SandboxConfig) -> Probe:
    """Open a sandbox of one slot, look at it and close it: about 0.2 s. Raises nothing; callable from anywhere."""
    found: list[Probe] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(_probe(config))))  # a loop may be running here
    thread.start()
    thread.join()
    return found[0]


def not_full(isolation: str, note: str) -> str:
    """Return the line that warns of an isolation that is not full."""
    return f"programs run without full isolation ({isolation}): {note}"


async def _probe(config: SandboxConfig) -> Probe:
    try:
        sandbox = await Sandbox.open(SandboxConfig(config.isolation, 1, config.packages))
    except EvorunError as error:
        return Probe("none", False, str(error))
    await sandbox.close()
    return Probe(sandbox.isolation, sandbox.fully_isolated, sandbox.note)
