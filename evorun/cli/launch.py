"""From the command line to runs, through Hydra: single runs, sweeps and launchers."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from evorun.cli.compose import config_folder, register
from evorun.cli.explain import explain
from evorun.cli.naming import register_resolvers
from evorun.cli.output import complain, show_warnings, sturdy_streams
from evorun.cli.overrides import as_typed, check_command_line, permit_unlisted_key
from evorun.cli.plain import plain, refuse_secrets, with_absolute_paths
from evorun.cli.usage import EXIT_FAILED
from evorun.errors import ConfigError, EvorunError
from evorun.runs.paths import display

_IN_THIS_PROCESS = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"

_outcomes: list[str] = []
"""Statuses of the runs that this process has carried out."""

_typed: list[str] = []
"""The arguments of this process's command line, as they were typed."""


class JobFailed(EvorunError):
    """A sweep's job in another process did not complete."""


def run_hydra(arguments: Sequence[str]) -> int:
    """Compose and run what the arguments ask for; return the exit code.

    Raises ConfigError for a bad command line and KeyboardInterrupt when a run was interrupted.
    """
    _typed[:] = arguments
    # Hydra then hands its exceptions to us instead of printing them
    os.environ["HYDRA_FULL_ERROR"] = "1"
    sys.argv = ["evorun", *map(permit_unlisted_key, arguments)]
    try:
        check_command_line(sys.argv[1:])
        register()
        hydra.main(version_base="1.3", config_path=str(config_folder()), config_name="config")(run_composed)()
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(explain(error)) from error
    except OSError as error:
        key = "hydra.sweep.dir" if {"-m", "--multirun"} & set(arguments) else "hydra.run.dir"
        raise ConfigError(f"cannot make the run directory: {error}; choose another with {key}=FOLDER") from error
    except SystemExit as stop:  # Hydra's own --cfg, --info, ...
        return int(stop.code or 0)
    return EXIT_FAILED if "failed" in _outcomes else 0


def run_composed(composed: DictConfig) -> str:
    """Carry out one composed run (Hydra's task function); return its status.

    A run that failed is complained about and leaves a sweep going. In a process that a launcher made it raises
    instead, which is how the sweep's own process hears of it. Raises KeyboardInterrupt when interrupted.
    """
    show_warnings()  # a launcher's process has not come through main
    with sturdy_streams():
        try:
            status = _carry_out(composed)
        except EvorunError as error:
            if _is_elsewhere() or _wants_traceback(composed):
                raise
            complain(str(error))
            status = "failed"
    _outcomes.append(status)
    if _is_elsewhere() and status != "completed":
        folder = display(Path(HydraConfig.get().runtime.output_dir))
        raise JobFailed(f"the job in {folder} is {status}; its manifest.json and evorun.log say why")
    if status == "interrupted":
        raise KeyboardInterrupt
    return status


def _carry_out(composed: DictConfig) -> str:
    from evorun.cli.running import carry_out

    refuse_secrets(composed)
    config = with_absolute_paths(plain(composed))
    return carry_out(config, Path(HydraConfig.get().runtime.output_dir), _command(), Console())


def _wants_traceback(composed: DictConfig) -> bool:
    settings: Any = composed.get("evorun")
    return isinstance(settings, DictConfig) and settings.get("debug") is True


def _is_elsewhere() -> bool:
    job = HydraConfig.get()
    return bool(job.mode == RunMode.MULTIRUN and job.launcher.get("_target_") != _IN_THIS_PROCESS)


def _command() -> list[str]:
    job = HydraConfig.get()
    return ["evorun", *(_typed if job.mode == RunMode.RUN else map(as_typed, job.overrides.task))]


# at import: a SLURM job resolves its folder's name in a process that composes nothing itself
register_resolvers()
