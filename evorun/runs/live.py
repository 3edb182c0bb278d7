"""The progress of a run while it goes on, in a file for other processes to read."""

import os
from pathlib import Path

import msgspec

from evorun.runs.files import read_regular
from evorun.runs.schema import Spent

PROGRESS = ".progress.json"

WRITE_INTERVAL_S = 2.0
"""Maximum seconds between two records of a run's progress (ours): as often as `evorun status --watch` reads them."""


class ProgressRecord(msgspec.Struct, frozen=True, kw_only=True):
    """.progress.json: how far the process that works on a run is, some seconds ago at most."""

    share: float
    """Completed share of the run, of its steps or of its budget, whichever is larger; at most 0.99 before its end."""
    ended: int
    """Problems that have ended."""
    problems: int
    """Problems in all."""
    cost: dict[str, Spent] = {}
    """Model calls and their tokens by role, those of earlier processes included."""
    seconds: float
    """Seconds since this process began the run."""
    left_seconds: float | None
    """Estimated seconds until the end; null where there is no estimate yet, or only evaluations or results are left."""
    host: str | None = None
    """Name of the machine of this process."""

    @property
    def calls(self) -> int:
        """Model calls of all roles."""
        return sum(spent.calls for spent in self.cost.values())


def write_progress(file: Path, progress: ProgressRecord) -> None:
    """Replace the file. Raises OSError."""
    # neither durable nor under a name that nobody could guess: it is written every few seconds and believed by nobody
    temporary = file.with_name(f"{file.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(msgspec.json.encode(progress))
    os.replace(temporary, file)


def read_progress(run: Path) -> ProgressRecord | None:
    """Read what a run last said of itself; None where it said nothing that can be read."""
    try:
        return msgspec.json.decode(read_regular(run / PROGRESS), type=ProgressRecord)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
