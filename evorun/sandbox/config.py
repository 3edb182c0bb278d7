"""Settings of the sandbox, and which isolation they lead to on this machine."""

import asyncio
import importlib.util
import threading
from dataclasses import dataclass, field
from typing import NamedTuple

from evorun.errors import ConfigError, EvorunError
from evorun.validation import at_least, one_of

CHOICES = ("auto", "strict", "bubblewrap", "namespaces", "rlimits")


@dataclass
class SandboxConfig:
    """How untrusted programs are shielded, and how many run at once."""

    isolation: str = "auto"
    """auto: the best that works here. strict: as auto, but refuse to run without full isolation. bubblewrap |
    namespaces (full isolation as well, without the bwrap program) | rlimits (network and readable files are not
    shielded)."""
    slots: int | None = None
    """Programs at a time. Null: as many as this process may use cores."""
    packages: list[str] = field(default_factory=lambda: ["numpy"])
    """Installed packages that programs may import beside the standard library; those not installed are passed over.
    LiveCodeBench's programs use numpy."""

    def __post_init__(self) -> None:
        one_of("sandbox.isolation", self.isolation, CHOICES)
        at_least("sandbox.slots", self.slots, 1)
        for package in self.packages:
            if not package.isidentifier():
                raise ConfigError(f"sandbox.packages: expected names of top-level packages, got '{package}'")


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
    from evorun.sandbox.pool import Sandbox

    try:
        sandbox = await Sandbox.open(SandboxConfig(config.isolation, 1, config.packages))
    except EvorunError as error:
        return Probe("none", False, str(error))
    await sandbox.close()
    return Probe(sandbox.isolation, sandbox.fully_isolated, sandbox.note)


def package_folders(names: list[str]) -> dict[str, list[str]]:
    """Return, for each site folder, the names in it that the packages consist of (`numpy`, `numpy.libs`)."""
    folders: dict[str, list[str]] = {}
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            continue
        site, _, _ = spec.submodule_search_locations[0].rpartition("/")
        folders.setdefault(site, []).extend([name, f"{name}.libs"])
    return folders
