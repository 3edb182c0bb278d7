"""`evorun doctor`: what this machine can run, which data it has, and how to get what is missing."""

import os
import shutil
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from rich.table import Table
from rich.text import Text

from evorun.cli.compose import default_config
from evorun.errors import EngineError, EvorunError
from evorun.models import embedded
from evorun.models.devices import query_gpus
from evorun.models.requirements import find_missing_packages
from evorun.models.tinker.service import KEY, require_service
from evorun.models.transformers import engine
from evorun.runner import registry
from evorun.runs.environment import hardware
from evorun.runs.terminal import Terminal
from evorun.sandbox import cgroups
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.isolation import COVERED, probe
from evorun.tasks.benchmark_files import MissingFilesError
from evorun.training import requirements

_DATA_NOTE = (
    "data that is not found: task.data=FOLDER names any folder in place of $EVORUN_DATA/NAME; task.source=hub "
    "downloads the data; task.source=sample uses evorun's own small set of any task instead"
)

_PINNED_CUDA = "13.0"
"""Version of CUDA in the pinned torch, assumed before its libraries are installed."""

_MIN_DRIVERS = {"11": 450, "12": 525, "13": 580}
"""The oldest driver branch (R580, ...) for the libraries of a major version of CUDA, by NVIDIA's release notes."""

_CUDA_RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime-cu11")


class Finding(NamedTuple):
    """One line of the report."""

    what: str
    ready: bool
    found: str
    remedy: str = ""


def print_findings(console: Terminal) -> None:
    """Print all findings as a table."""
    table = Table(title="evorun doctor", title_justify="left", box=None, pad_edge=False)
    for column in ("", "what", "found; how to get it"):
        table.add_column(column, overflow="fold")  # never cut off: a remedy may hold a long URL
    for finding in findings():
        mark = Text("yes", style="green") if finding.ready else Text("no", style="yellow")
        remedy = "" if finding.ready else f"; {finding.remedy}"
        table.add_row(mark, finding.what, f"{finding.found}{remedy}")
    console.print_table(table)
    console.print(_DATA_NOTE)


def findings() -> Iterator[Finding]:
    """Yield the findings, cheapest first. Imports no engine: torch alone would take seconds."""
    machine = hardware()
    yield Finding("machine", True, f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['processor']}")
    gpus = machine["gpus"] if isinstance(machine["gpus"], list) else []
    yield Finding("GPU", bool(gpus), "; ".join(gpus) or "none", "needed for models beyond about 1B parameters")
    if gpus:
        yield _driver(query_gpus("driver_version")[:1])
    yield _packages("training", requirements.PACKAGES, "pip install 'evorun[train]'")
    yield _packages("engine=transformers", engine.PACKAGES, "pip install 'evorun[transformers]'")
    yield _packages("engine=vllm", ("vllm",), "on a GPU machine: pip install 'evorun[vllm]'; on a CPU: make test-vllm")
    yield Finding("engine=server", True, "any OpenAI-compatible endpoint: engine.base_urls=[URL]")
    yield _tinker()
    ready = embedded.is_ready()
    yield Finding("model=smollm2_135m", ready, "weights ready" if ready else "weights not ready", "make setup")
    yield from _data()
    probed = probe(SandboxConfig())
    # The default isolation is full or none; the note of a failure says what to do.
    found = f"{probed.isolation}: {COVERED}" if probed.full else f"programs do not run: {probed.note}"
    yield Finding("sandbox", probed.full, found, "apt install bubblewrap; docs/sandbox.md")
    grouped = cgroups.find_parent_group() is not None
    found = "counted by the kernel, in a cgroup per slot" if grouped else "counted from /proc: no cgroup is delegated"
    yield Finding("sandbox memory", grouped, found, cgroups.HOW_TO_ENABLE)
    sbatch = shutil.which("sbatch")
    yield Finding("SLURM", sbatch is not None, sbatch or "no sbatch", "only a cluster's machines submit jobs")


def _tinker() -> Finding:
    """Check for Tinker's package and its key; connects to nothing."""
    try:
        require_service()
    except EngineError as error:
        return Finding("engine=tinker, training=tinker", False, "no", str(error))
    return Finding("engine=tinker, training=tinker", True, f"tinker {_version('tinker')}, and a key in {KEY}")


def _driver(versions: Sequence[str]) -> Finding:
    """Check that the driver is new enough for torch's CUDA libraries. versions: of one GPU's driver."""
    installed = [version for name in _CUDA_RUNTIMES if (version := _version(name)) is not None]
    major, minor, *_ = [*(installed[0] if installed else _PINNED_CUDA).split("."), "0"]
    oldest = _MIN_DRIVERS.get(major)
    driver = versions[0].strip() if versions else "unknown"
    branch = driver.partition(".")[0]
    ready = oldest is None or (branch.isdecimal() and int(branch) >= oldest)
    remedy = f"CUDA {major}.{minor} needs a driver R{oldest} or newer; update it, or install a torch built for it"
    return Finding("GPU driver", ready, f"{driver}, for the libraries of CUDA {major}.{minor}", remedy)


def _packages(what: str, modules: tuple[str, ...], remedy: str) -> Finding:
    missing = find_missing_packages(modules)
    if missing:
        return Finding(what, False, f"not installed: {', '.join(missing)}", remedy)
    versions = [f"{module} {_version(module) or _version_of_module(module)}" for module in modules]
    return Finding(what, True, ", ".join(versions), remedy)


def _version_of_module(module: str) -> str:
    """Return the version of a module whose distribution has another name; reads all that are installed."""
    distributions = metadata.packages_distributions().get(module, ())
    return next(filter(None, map(_version, distributions)), "of unknown version")


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _data() -> Iterator[Finding]:
    root = os.environ.get("EVORUN_DATA")
    found = bool(root and Path(root).is_dir())
    yield Finding("$EVORUN_DATA", found, root or "not set", "a folder with one subfolder per task")
    for name in registry.names("task"):
        try:
            with registry.blaming_plugins():
                provenance = default_config("task", name).load().provenance
        except MissingFilesError as error:
            yield Finding(f"data of task={name}", False, "not found", error.wanted)
        except EvorunError as error:
            yield Finding(f"data of task={name}", False, "cannot be read", str(error))
        else:
            yield Finding(f"data of task={name}", True, provenance.description)
