"""From the command line to runs, through Hydra: single runs, sweeps and launchers."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
from rich.console import Console

import evorun
from evorun import registry
from evorun.cli import EXIT_FAILED, EXIT_INTERRUPTED, complain
from evorun.errors import ConfigError, EvorunError

TYPED_GROUPS = ("method", "task", "model", "engine", "judge", "judge_engine", "budget", "run", "evorun")
"""Groups whose keys evorun checks against their schema; a key may be set whether or not the YAML lists it."""

_outcomes: list[str] = []
"""Statuses of the runs that this process has carried out."""


def config_folder() -> Path:
    """Return the folder of YAML files: inside an installed wheel, or beside the package in a checkout."""
    package = Path(evorun.__file__).parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent / "conf"


def choices(group: str) -> list[str]:
    """Return the names that a config group offers, in alphabetical order."""
    files = {file.stem for file in (config_folder() / group).glob("*.yaml")}
    if group in ("judge", "judge_engine"):
        files |= set(choices("model" if group == "judge" else "engine"))
    if group in ("method", "task"):
        files |= set(registry.names("method" if group == "method" else "task"))
    return sorted(files)


def run_hydra(arguments: Sequence[str]) -> int:
    """Compose and run what the arguments ask for; return the exit code. Raises ConfigError for a bad command line."""
    # Hydra then hands its exceptions to us instead of printing them
    os.environ["HYDRA_FULL_ERROR"] = "1"
    register()
    sys.argv = [sys.argv[0], *map(permit_unlisted_key, arguments)]
    entry = hydra.main(version_base="1.3", config_path=str(config_folder()), config_name="config")(run_composed)
    try:
        entry()
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error)) from error
    except OSError as error:
        raise ConfigError(
            f"cannot make the run directory: {error}; choose another with hydra.run.dir=FOLDER"
        ) from error
    except SystemExit as stop:  # Hydra's own --cfg, --info, ...
        return int(stop.code or 0)
    if "interrupted" in _outcomes:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if "failed" in _outcomes else 0


def register() -> None:
    """Tell Hydra of the groups that are not files: judges, and the defaults of plug-in methods and tasks."""
    store = ConfigStore.instance()
    for group, of in (("judge", "model"), ("judge_engine", "engine")):
        for name in choices(of):
            store.store(group=group, name=name, node={"defaults": [{f"/{of}@_here_": name}, "_self_"]})
    for name in registry.plugins("method"):
        store.store(group="method", name=name, node=registry.method_class(name).Config)
    for name in registry.plugins("task"):
        store.store(group="task", name=name, node=registry.task_config_class(name))


def run_composed(composed: DictConfig) -> str:
    """Carry out one composed run (Hydra's task function); return its status."""
    from evorun.cli.running import carry_out

    path = Path(HydraConfig.get().runtime.output_dir)
    try:
        status = carry_out(plain(composed), path, _command(), Console())
    except EvorunError as error:
        if composed.evorun.debug:
            raise
        complain(str(error))
        status = "failed"
    _outcomes.append(status)
    return status


def plain(composed: DictConfig) -> dict[str, Any]:
    """Return a composed configuration as plain data. Raises ConfigError for a value that is missing."""
    try:
        config: Any = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(explain(error)) from error
    return dict(config)


def _command() -> list[str]:
    return ["evorun", *HydraConfig.get().overrides.task]


def permit_unlisted_key(argument: str) -> str:
    """Let a schema's key be set that the chosen YAML does not list; the schema refuses unknown ones by name."""
    group = re.match(r"([a-z_]+)\.", argument)
    return f"++{argument}" if group and group.group(1) in TYPED_GROUPS and "=" in argument else argument


def _job_name(overrides: Sequence[str]) -> str:
    """Return a stable folder name for a sweep's job: what it overrides, shortened, without its method and task."""
    parts = []
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if key in ("method", "task") or key.startswith(("evorun.", "hydra")):
            continue
        parts.append(f"{key.rpartition('.')[2]}-{re.sub(r'[^A-Za-z0-9.-]+', '-', value).strip('-')[:40]}")
    return "_".join(sorted(parts)) or "run"


def explain(error: Exception) -> str:
    """Say in one line what Hydra or OmegaConf found wrong."""
    text = str(error)
    missing = re.search(r"Could not find '(\w+)/([^']*)'", text)
    if missing:
        return str(registry.unknown(missing.group(1), missing.group(2), choices(missing.group(1))))
    stray = re.search(r"Could not override '([^']+)'", text)
    if stray:
        known = ", ".join((*TYPED_GROUPS[:7], "seed", "experiment", "run", "evorun", "hydra"))
        return f"{stray.group(1)}: unknown key; the top level has {known}"
    if isinstance(error, OverrideParseException):
        given = error.override.lstrip("+")
        return f"{given}: expected KEY=VALUE in Hydra's override grammar, got {text.splitlines()[0]}; quote the value"
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key}: expected a value, none was given; set {error.full_key}=VALUE"
    cause = error.__cause__
    first = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    return f"{first} ({str(cause).splitlines()[0]})" if cause is not None and str(cause) else first


# at import: a SLURM job resolves its folder's name in a process that composes nothing itself
OmegaConf.register_new_resolver("evorun_job", _job_name, replace=True)
