"""A sweep's job outside the sweep: the command line that composes it, and what its own process is given."""

from collections.abc import Sequence

from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf, open_dict

from evorun.cli.given_job import GivenJob
from evorun.cli.overrides import as_typed
from evorun.cli.plain import plain, with_absolute_paths
from evorun.cli.secrets import refuse_secrets

CONFIG = "config"
"""Name of the configuration that is composed unless `--config-name` gives another."""
CONFIG_DIR = "--config-dir"
"""Hydra's option for a folder of the user's own configurations."""
SEARCHPATH = "hydra.searchpath="
"""Beginning of the override that does the same."""


def command_of_job(job: HydraConf) -> list[str]:
    """Return the arguments by which a job of a sweep is composed outside the sweep.

    They come from the job's own configuration, which a launcher's process has, too: it has no command line.
    """
    folders = [source.path for source in job.runtime.config_sources if source.provider == "command-line"]
    searched = [word for word in job.overrides.hydra if word.lstrip("+").startswith(SEARCHPATH)]
    options = [word for folder in folders for word in (CONFIG_DIR, folder)]
    name = job.job.config_name
    if name is not None and name != CONFIG:
        options += ["--config-name", name]
    return [*options, *searched, *map(as_typed, job.overrides.task)]


def compose_job(
    context: HydraContext, sweep: DictConfig, overrides: Sequence[str], number: int, folder: str
) -> GivenJob:
    """Compose a job of a sweep for a process of its own. Raises EvorunError.

    sweep: the sweep's configuration. number: the job's place in the sweep. folder: its run directory.
    """
    composed = context.config_loader.load_sweep_config(sweep, list(overrides))
    with open_dict(composed):
        composed.hydra.job.id = composed.hydra.job.num = number
    HydraConfig.instance().set_config(composed)
    values = OmegaConf.masked_copy(composed, [str(key) for key in composed if key != "hydra"])
    refuse_secrets(values)
    return GivenJob(
        config=with_absolute_paths(plain(values)),
        folder=folder,
        debug=composed.evorun.debug is True,
        command=["evorun", *command_of_job(HydraConfig.get())],
    )
