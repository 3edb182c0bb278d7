"""`evorun doctor`: what this machine can run, where data was found, and how to get what is missing."""

import os
import shutil
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evorun.cli.compose import default_config
from evorun.errors import EvorunError
from evorun.runner import registry
from evorun.runs.environment import hardware


class Finding(NamedTuple):
    """One line of the report."""

    what: str
    ready: bool
    found: str
    remedy: str = ""


def print_findings(console: Console) -> None:
    """Print all findings as a table."""
    table = Table(title="evorun doctor", title_justify="left", box=None, pad_edge=False)
    for column in ("", "what", "found", "to get it"):
        table.add_column(column)
    for finding in findings():
        mark = Text("yes", style="green") if finding.ready else Text("no", style="yellow")
        # as Text: 'evorun[vllm]' is no markup
        table.add_row(mark, finding.what, Text(finding.found), Text("" if finding.ready else finding.remedy))
    console.print(table)


def findings() -> Iterator[Finding]:
    """Yield what was found, cheapest first; imports no engine."""
    machine = hardware()
    yield Finding("machine", True, f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['processor']}")
    gpus = machine["gpus"] if isinstance(machine["gpus"], list) else []
    yield Finding("GPU", bool(gpus), "; ".join(gpus) or "none", "needed for models beyond about 1B parameters")
    yield _package("training", ("torch", "trl", "peft", "datasets", "accelerate"), "pip install 'evorun[train]'")
    yield _package("engine=transformers", ("torch", "transformers", "llguidance"), "pip install 'evorun[transformers]'")
    yield _package("engine=vllm", ("vllm",), "pip install 'evorun[vllm]' on a GPU machine, or make test-vllm on a CPU")
    yield Finding("engine=server", True, "any OpenAI-compatible endpoint: engine.base_urls=[URL]")
    yield _embedded_model()
    yield from _data()
    yield _sandbox()
    yield _slurm()


def _package(what: str, modules: tuple[str, ...], remedy: str) -> Finding:
    absent = [module for module in modules if util.find_spec(module) is None]
    versions = ", ".join(f"{module} {_version(module)}" for module in modules if module not in absent)
    return Finding(what, not absent, versions if not absent else f"not installed: {', '.join(absent)}", remedy)


def _version(module: str) -> str:
    for name in metadata.packages_distributions().get(module, [module]):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "of unknown version"


def _embedded_model() -> Finding:
    from evorun.models.embedded import is_ready

    ready = is_ready()
    return Finding("model=smollm2_135m", ready, "weights ready" if ready else "weights not ready", "make setup")


def _data() -> Iterator[Finding]:
    root = os.environ.get("EVORUN_DATA")
    yield Finding(
        "$EVORUN_DATA", bool(root and Path(root).is_dir()), root or "not set", "a folder with one sub-folder a task"
    )
    for name in registry.names("task"):
        try:
            provenance = default_config("task", name).load().provenance
        except EvorunError as error:
            yield Finding(f"data of task={name}", False, "not found", str(error))
        else:
            yield Finding(f"data of task={name}", True, provenance.description)


def _sandbox() -> Finding:
    from evorun.sandbox.config import SandboxConfig
    from evorun.sandbox.isolation import probe

    found = probe(SandboxConfig())
    isolation = f"{found.isolation}, {'full isolation' if found.full else 'no full isolation'}"
    remedy = "for full isolation: apt install bubblewrap, and allow user namespaces"
    return Finding("sandbox", found.full, f"{isolation}: {found.note}" if found.note else isolation, remedy)


def _slurm() -> Finding:
    sbatch = shutil.which("sbatch")
    plugin = util.find_spec("hydra_plugins") is not None and _is_installed("hydra-submitit-launcher")
    found = ", ".join(
        (sbatch or "no sbatch", "launcher installed" if plugin else "launcher not installed (evorun[slurm])")
    )
    return Finding("SLURM", bool(sbatch and plugin), found, "on a cluster: pip install 'evorun[slurm]'")


def _is_installed(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True
