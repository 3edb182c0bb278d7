"""The isolation that the sandbox's settings lead to on this machine."""

import asyncio
import threading
from typing import NamedTuple

from evorun.errors import EvorunError
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.pool import Sandbox


class Probe(NamedTuple):
    """The result of probing the sandbox."""

    isolation: str
    """bubblewrap | namespaces | rlimits | none"""
    full: bool
    """No network, no files but the interpreter's, nothing left behind."""
    note: str
    """Why the isolation is not full, in one line; empty if it is."""


def probe(config: SandboxConfig) -> Probe:
    """Open a sandbox of one slot, note its isolation and close it: about 0.2 s. Never raises; callable anywhere."""

    async def look() -> Probe:
        try:
            sandbox = await Sandbox.open(SandboxConfig(config.isolation, 1, config.packages))
        except EvorunError as error:
            return Probe("none", False, str(error))
        await sandbox.close()
        return Probe(sandbox.isolation, sandbox.fully_isolated, sandbox.note)

    found: list[Probe] = []
    # In a thread, since an event loop may be running in this one and loops do not nest.
    thread = threading.Thread(target=lambda: found.append(asyncio.run(look())))
    thread.start()
    thread.join()
    return found[0]


def not_full(isolation: str, note: str) -> str:
    """Return a warning about an isolation that is not full, in one line."""
    return f"programs run without full isolation ({isolation}): {note}"
