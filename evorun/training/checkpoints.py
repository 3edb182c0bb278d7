"""Checkpoints of a run: which are whole, which is the newest, and which may go.

A checkpoint is written under another name and gets its own once it is whole, so that one which a crash or a full disk
has cut short is never gone on from. It holds the adapter, the optimiser, the schedule and the random state; the data's
position and the method's own state are functions of the journal (see `policy`), and the number of updates names it.
"""

import os
import shutil
from pathlib import Path

UNFINISHED = "unfinished"
ROLLOUTS = "rollouts-"
"""Begins the name of an adapter that is no checkpoint: another engine reads it."""
_PREFIX = "update-"


class Checkpoints:
    """The folder `checkpoints/` of a run."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self._keep = keep

    def numbers(self) -> list[int]:
        """Return after which updates there is a whole checkpoint, in order."""
        names = [path.name.removeprefix(_PREFIX) for path in self.folder.glob(f"{_PREFIX}*")]
        return sorted(int(name) for name in names if name.isdigit())

    def path(self, update: int) -> Path:
        """Return the folder of the checkpoint after that update."""
        return self.folder / f"{_PREFIX}{update}"

    def remove_rollouts(self) -> None:
        """Remove the adapters that another engine has read."""
        for folder in self.folder.glob(f"{ROLLOUTS}*"):
            shutil.rmtree(folder, ignore_errors=True)

    def begin(self) -> Path:
        """Return the folder to write the next checkpoint into; what is left of others is removed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for left_over in [*self.folder.glob("checkpoint-*"), *self.folder.glob(f"{UNFINISHED}*")]:
            shutil.rmtree(left_over, ignore_errors=True)
        return self.folder / UNFINISHED

    def seal(self, update: int) -> None:
        """Give what has been written its name, and remove those that are too many."""
        _sync(self.folder / UNFINISHED)
        shutil.rmtree(self.path(update), ignore_errors=True)
        (self.folder / UNFINISHED).rename(self.path(update))
        for number in self.numbers()[: -self._keep]:
            shutil.rmtree(self.path(number), ignore_errors=True)


def _sync(folder: Path) -> None:
    """Make the files durable before the name says that they are whole."""
    for file in folder.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
