"""Settings of the sandbox."""

import importlib.util
from dataclasses import dataclass, field
from typing import Annotated

from evorun.errors import ConfigError
from evorun.fields import Checked, OneOf, PositiveInt

CHOICES = ("auto", "bubblewrap", "namespaces", "gvisor", "rlimits")


@dataclass
class SandboxConfig(Checked):
    """Isolation of untrusted programs, and the number that run at once."""

    section = "sandbox"

    isolation: Annotated[str, OneOf(CHOICES)] = "auto"
    """auto: bubblewrap, else namespaces (without the bwrap program): full isolation, or no program runs. gvisor: a
    separate kernel, by gVisor's runsc program; needs root. rlimits: only limits, where nothing else works;
    docs/sandbox.md says what programs can do there."""
    slots: PositiveInt | None = None
    """Programs that run at once. Null: one per core that this process may use."""
    packages: list[str] = field(default_factory=lambda: ["numpy"])
    """Installed packages that programs may import beside the standard library; missing ones are skipped.
    LiveCodeBench's programs use numpy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for package in self.packages:
            if not package.isidentifier():
                raise ConfigError(f"sandbox.packages: expected names of top-level packages, got '{package}'")


def find_package_folders(names: list[str]) -> dict[str, list[str]]:
    """Return, for each site folder, the names of the packages' parts in it (`numpy`, `numpy.libs`)."""
    folders: dict[str, list[str]] = {}
    for name in names:
        spec = importlib.util.find_spec(name)  # finds without importing
        if spec is None or not spec.submodule_search_locations:
            continue
        site, _, _ = spec.submodule_search_locations[0].rpartition("/")
        folders.setdefault(site, []).extend([name, f"{name}.libs"])
    return folders
