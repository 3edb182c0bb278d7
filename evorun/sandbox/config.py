"""Settings of the sandbox."""

import importlib.util
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
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

    distributions: list[str] = field(default_factory=list)
    """Installed distributions, by their names on the package index, that programs may import with all that these
    require; missing ones are skipped. Tasks add those of their graders."""
    preload: list[str] = field(default_factory=list)
    """Modules imported once, in the process that programs are forked from: for packages that take seconds to import."""
    cache: str | None = None
    """Folder of test results that runs share: a program is tested once in all of them. Null: each run tests its own."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cache == "":
            raise ConfigError("sandbox.cache: expected a folder or null, got an empty string")
        for package in self.packages:
            if not package.isidentifier():
                raise ConfigError(f"sandbox.packages: expected names of top-level packages, got '{package}'")
        for module in self.preload:
            if not all(part.isidentifier() for part in module.split(".")):
                raise ConfigError(f"sandbox.preload: expected names of modules, got '{module}'")


def find_package_folders(config: SandboxConfig) -> dict[str, list[str]]:
    """Return, for each site folder, the names of the packages' parts in it (`numpy`, `numpy.libs`, `six.py`)."""
    folders: dict[str, list[str]] = {}
    for name in config.packages:
        spec = importlib.util.find_spec(name)  # finds without importing
        if spec is None or not spec.submodule_search_locations:
            continue
        site, _, _ = spec.submodule_search_locations[0].rpartition("/")
        folders.setdefault(site, []).extend([name, f"{name}.libs"])
    for site, names in _find_parts(tuple(config.distributions)).items():
        folders.setdefault(site, []).extend(names)
    return {site: list(dict.fromkeys(names)) for site, names in folders.items()}


@cache
def _find_parts(distributions: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Return, for each site folder, the parts in it of these distributions and of all that they require.

    Cached, since the list of a distribution's files may be long, and each way to start a sandbox asks.
    """
    folders: dict[str, list[str]] = {}
    for distribution in _find_required(distributions):
        tops = dict.fromkeys(file.parts[0] for file in distribution.files or ())
        names = [top for top in tops if top not in ("..", "__pycache__") and not top.endswith((".dist-info", ".pth"))]
        folders.setdefault(str(Path(str(distribution.locate_file("")))), []).extend(names)
    return folders


def _find_required(names: Iterable[str]) -> list[metadata.Distribution]:
    """Return the installed distributions of these names and of all that they require, without their extras."""
    found: dict[str, metadata.Distribution] = {}
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        required = (line for line in found[name].requires or () if not re.search(r";.*\bextra\s*==", line))
        waiting += [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in required]
    return list(found.values())
