"""`evorun doctor`: what this machine can run, which data it has, and how to get what is missing."""

import os
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evorun.cli.compose import default_config
from evorun.errors import EvorunError
from evorun.models import embedded
from evorun.models.requirements import absent
from evorun.models.transformers import engine
from evorun.runner import registry
from evorun.runs.environment import hardware
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.isolation import COVERED, probe
from evorun.training import requirements


class Finding(NamedTuple):
    """One line of the report."""

    what: str
    ready: bool
    found: str
    remedy: str = ""


def print_findings(console: Console) -> None:
    """Print all findings as a table."""
    table = Table(title="evorun doctor", title_justify="left", box=None, pad_edge=False)
    for column in ("", "what", "found", "how to get it"):
        table.add_column(column, overflow="fold")  # never cut off: a remedy may hold a long URL
    for finding in findings():
        mark = Text("yes", style="green") if finding.ready else Text("no", style="yellow")
        # As Text, since rich would read 'evorun[vllm]' as markup.
        table.add_row(mark, finding.what, Text(finding.found), Text("" if finding.ready else finding.remedy))
    console.print(table)


def findings() -> Iterator[Finding]:
    """Yield what was found, cheapest first. No engine is imported: torch alone would take seconds."""
    machine = hardware()
    yield Finding("machine", True, f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['processor']}")
    gpus = machine["gpus"] if isinstance(machine["gpus"], list) else []
    yield Finding("GPU", bool(gpus), "; ".join(gpus) or "none", "needed for models beyond about 1B parameters")
    yield _packages("training", requirements.PACKAGES, "pip install 'evorun[train]'")
    yield _packages("engine=transformers", engine.PACKAGES, "pip install 'evorun[transformers]'")
    yield _packages("engine=vllm", ("vllm",), "on a GPU machine: pip install 'evorun[vllm]'; on a CPU: make test-vllm")
    yield Finding("engine=server", True, "any OpenAI-compatible endpoint: engine.base_urls=[URL]")
    ready = embedded.is_ready()
    yield Finding("model=smollm2_135m", ready, "weights ready" if ready else "weights not ready", "make setup")
    yield from _data()
    probed = probe(SandboxConfig())
    # The default isolation is full or none, and what hinders it says what to do.
    found = f"{probed.isolation}: {COVERED}" if probed.full else f"programs do not run: {probed.note}"
    yield Finding("sandbox", probed.full, found, "apt install bubblewrap; docs/sandbox.md")
    sbatch, launcher = shutil.which("sbatch"), _version("hydra-submitit-launcher") is not None
    found = f"{sbatch or 'no sbatch'}, {'launcher installed' if launcher else 'launcher not installed (evorun[slurm])'}"
    yield Finding("SLURM", bool(sbatch and launcher), found, "on a cluster: pip install 'evorun[slurm]'")


def _packages(what: str, modules: tuple[str, ...], remedy: str) -> Finding:
    missing = absent(modules)
    if missing:
        return Finding(what, False, f"not installed: {', '.join(missing)}", remedy)
    versions = []
    for module in modules:
        distributions = metadata.packages_distributions().get(module, [module])
        known = filter(None, map(_version, distributions))
        versions.append(f"{module} {next(known, 'of unknown version')}")
    return Finding(what, True, ", ".join(versions), remedy)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _data() -> Iterator[Finding]:
    root = os.environ.get("EVORUN_DATA")
    found = bool(root and Path(root).is_dir())
    yield Finding("$EVORUN_DATA", found, root or "not set", "a folder with one subfolder for each task")
    for name in registry.names("task"):
        try:
            with registry.blaming_plugins():
                provenance = default_config("task", name).load().provenance
        except EvorunError as error:
            yield Finding(f"data of task={name}", False, "not found", str(error))
        else:
            yield Finding(f"data of task={name}", True, provenance.description)
