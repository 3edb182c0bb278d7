"""A sweep's job outside the sweep: the command line that composes it, and the input of its own process."""

from typing import Any

import msgspec
from hydra.conf import HydraConf

from evorun.cli.overrides import as_typed

CONFIG = "config"
"""Name of the configuration that is composed unless `--config-name` gives another."""


def command_of_job(job: HydraConf) -> list[str]:
    """Return the arguments by which a job of a sweep is composed outside the sweep.

    They come from the job's own configuration, which a launcher's process has, too: it has no command line.
    """
    folders = [source.path for source in job.runtime.config_sources if source.provider == "command-line"]
    searched = [word for word in job.overrides.hydra if word.lstrip("+").startswith("hydra.searchpath=")]
    options = [word for folder in folders for word in ("--config-dir", folder)]
    name = job.job.config_name
    if name is not None and name != CONFIG:
        options += ["--config-name", name]
    return [*options, *searched, *map(as_typed, job.overrides.task)]


class GivenJob(msgspec.Struct):
    """The input of a job's process under `hydra/launcher=local`."""

    config: dict[str, Any]
    """The composed configuration as plain data."""
    folder: str
    command: list[str]
    """The command that makes the same run, which its manifest records."""
    debug: bool
    """True: an error shows its traceback."""
    parent: int
    """Id of the launcher's process."""
