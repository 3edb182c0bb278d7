"""The input of a job's own process, which a launcher composed."""

from typing import Any

import msgspec

from evorun.models.sharing import SharedModels


class GivenJob(msgspec.Struct):
    """A composed job."""

    config: dict[str, Any]
    """The composed configuration as plain data."""
    folder: str
    command: list[str]
    """The command that makes the same run, which its manifest records."""
    debug: bool
    """True: an error shows its traceback."""
    shared: SharedModels | None = None
    """Models that another process serves to this job and others."""
