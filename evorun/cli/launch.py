"""From the command line to runs, through Hydra: single runs, sweeps and launchers."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from evorun.cli import invocation, sweeper  # the sweeper registers itself with Hydra
from evorun.cli.compose import register
from evorun.cli.explain import advise_on_experiment, explain
from evorun.cli.groups import config_folder
from evorun.cli.job_command import CONFIG, command_of_job
from evorun.cli.naming import register_resolvers, remove_unused_run_dir
from evorun.cli.output import print_error, show_warnings, sturdy_streams
from evorun.cli.overrides import check_command_line, words
from evorun.cli.plain import plain, with_absolute_paths
from evorun.cli.secrets import refuse_secrets, refuse_typed_secrets
from evorun.cli.sweep_end import print_end
from evorun.cli.usage import EXIT_FAILED, Interrupted
from evorun.errors import ConfigError, EvorunError
from evorun.runs.paths import display
from evorun.runs.terminal import Terminal


class JobFailed(EvorunError):
    """A sweep's job in another process did not complete."""


def run_hydra(
    arguments: Sequence[str],
    resumed: Mapping[str, Sequence[str]] | None = None,
    added: invocation.AddedJobs | None = None,
) -> int:
    """Compose and run what the arguments ask for; return the exit code.

    resumed: overrides of jobs by folder, to carry out in the place of those that the arguments make. added: new jobs,
    in their place, too. Raises ConfigError for a bad command line and KeyboardInterrupt when a run was interrupted.
    """
    this = invocation.begin(arguments, resumed, added)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises its exceptions instead of printing them
    # Hydra reads only sys.argv, and takes overrides from a single place: here, before all options.
    in_order = sorted(
        arguments, key=lambda argument: argument.startswith("-") or not (argument.startswith("~") or "=" in argument)
    )
    sys.argv = ["evorun", *(word for argument in in_order for word in words(argument))]
    try:
        refuse_typed_secrets(sys.argv[1:])
        check_command_line(sys.argv[1:])
        register(sys.argv[1:])
        hydra.main(version_base="1.3", config_path=str(config_folder()), config_name=CONFIG)(run_composed)()
    except (HydraException, OmegaConfBaseException) as error:
        if any(word.startswith("experiment=") for word in arguments):
            # one that sweeps is taken for a single run where its jobs cannot be composed, which hides why
            from evorun.cli.composed_jobs import MULTIRUN, compose_jobs

            compose_jobs([MULTIRUN[0], *arguments])
        raise ConfigError(explain(error)) from error
    except OSError as error:
        key = "hydra.sweep.dir" if {"-m", "--multirun"} & set(arguments) else "hydra.run.dir"
        raise ConfigError(f"cannot create the run directory: {error}; choose another with {key}=FOLDER") from error
    except SystemExit as stop:  # Hydra's own --cfg, --info, ...
        return int(stop.code or 0)
    finally:
        print_end(this, Terminal())
    return EXIT_FAILED if "failed" in this.statuses else 0


def run_composed(composed: DictConfig) -> str:
    """Carry out one composed run (Hydra's task function) and return its status.

    A failed run prints its error and lets a sweep continue. In a launcher's process it raises instead, so that the
    sweep's own process learns of the failure. Raises KeyboardInterrupt when interrupted.
    """
    from evorun.cli.running import carry_out

    show_warnings()  # a launcher's process did not start in main
    job = HydraConfig.get()
    elsewhere = job.mode == RunMode.MULTIRUN and job.launcher.get("_target_") != sweeper.IN_THIS_PROCESS
    folder = Path(job.runtime.output_dir)
    invocation.current.folders.append(folder)
    if invocation.current.sweep is not None:
        invocation.current.sweep.job = str(job.sweep.subdir)
    command = ["evorun", *(invocation.current.typed if job.mode == RunMode.RUN else command_of_job(job))]
    with sturdy_streams():
        try:
            launcher = job.runtime.choices["hydra/launcher"]
            if job.mode == RunMode.RUN and launcher != "basic":
                raise ConfigError(f"hydra/launcher={launcher}: launches the jobs of a sweep: add -m, or leave it out")
            refuse_secrets(composed)
            values, of_sweep = with_absolute_paths(plain(composed)), job.mode == RunMode.MULTIRUN
            status = carry_out(values, folder, command, Terminal(), of_sweep=of_sweep)
        except EvorunError as error:
            remove_unused_run_dir(folder)
            settings: Any = composed.get("evorun")
            if elsewhere or (isinstance(settings, DictConfig) and settings.get("debug") is True):
                raise
            message = advise_on_experiment(str(error))
            print_error(message, error, said=invocation.current.is_said(message))
            if invocation.current.sweep is not None:
                invocation.current.sweep.note_failure(str(job.sweep.subdir), message)
            status = "failed"
        except KeyboardInterrupt:
            remove_unused_run_dir(folder)  # if nothing has begun
            raise
        finally:
            if invocation.current.sweep is not None:
                invocation.current.sweep.job = None
    invocation.current.statuses.append(status)
    if elsewhere and status != "completed":
        raise JobFailed(f"the job in {display(folder)} is {status}; its manifest.json and evorun.log say why")
    if status == "interrupted":
        raise Interrupted  # ends a sweep too
    return status


# At import: a SLURM job resolves its folder's name in a process that composes nothing itself.
register_resolvers()
