"""The folder of a run's checkpoints.

A checkpoint holds the trained weights (an adapter or all), the optimiser, the schedule and the random state. It also
holds the weights before them that calls during an update may ask for (`TrainingConfig.former_versions`). The journal
determines the position in the data and the method's state (see `policy`). The number of updates names the checkpoint.
"""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import msgspec

UNFINISHED = "unfinished"
ROLLOUTS = "rollouts-"
"""Prefix of folders that hold weights for another engine, not a checkpoint."""
_FORMER = "former-"
"""Prefix of files in a checkpoint with the trained weights of former updates."""
REMOTE = "tinker.json"
"""File in a checkpoint whose weights lie on a server: their addresses, by update under `snapshots`."""
_PREFIX = "update-"


@dataclass(frozen=True)
class Checkpoints:
    """The folder `checkpoints/` of a run."""

    folder: Path
    keep: int
    """Number of checkpoints to keep (the newest ones)."""

    def saved_updates(self) -> list[int]:
        """Return the updates with a complete checkpoint, in order."""
        names = [path.name.removeprefix(_PREFIX) for path in self.folder.glob(f"{_PREFIX}*")]
        return sorted(int(name) for name in names if name.isdigit())

    def path(self, update: int) -> Path:
        """Return the folder of the checkpoint after an update."""
        return self.folder / f"{_PREFIX}{update}"

    def oldest_version(self, update: int) -> int:
        """Return the oldest update whose weights this update's checkpoint holds (0: the untrained weights)."""
        remote = self.path(update) / REMOTE
        if remote.is_file():
            return min(map(int, msgspec.json.decode(remote.read_bytes())["snapshots"]))
        return min(find_former(self.path(update)), default=update)

    def newest(self, recorded: Container[int], former: int) -> int:
        """Return the newest recorded update whose checkpoint holds enough former weights; 0: none does.

        A fork may need more than the run that wrote the checkpoint kept. Sharded weights have no former ones.
        """
        for update in reversed(self.saved_updates()):
            held = update - self.oldest_version(update)
            if update in recorded and (held == 0 or held >= min(former, update)):
                return update
        return 0

    def begin(self) -> Path:
        """Remove unfinished checkpoints and return the folder for the next one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        # `checkpoint-*` is transformers' own name, before the trainer renames it.
        for unfinished in [*self.folder.glob("checkpoint-*"), *self.folder.glob(f"{UNFINISHED}*")]:
            shutil.rmtree(unfinished, ignore_errors=True)
        return self.folder / UNFINISHED

    def seal(self, update: int) -> None:
        """Give the written checkpoint its name, and remove the oldest ones beyond `keep`."""
        # The name marks a complete checkpoint, so that a crash or a full disk leaves none that is incomplete. The files
        # must therefore be on disk before the name is.
        for file in (self.folder / UNFINISHED).rglob("*"):
            if file.is_file():
                descriptor = os.open(file, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        shutil.rmtree(self.path(update), ignore_errors=True)
        (self.folder / UNFINISHED).rename(self.path(update))
        for number in self.saved_updates()[: -self.keep]:
            shutil.rmtree(self.path(number), ignore_errors=True)


def former_file(folder: Path, version: int) -> Path:
    """Return the file in a checkpoint's folder that holds the weights of a former update."""
    return folder / f"{_FORMER}{version}.safetensors"


def find_former(folder: Path) -> dict[int, Path]:
    """Return the files of former weights in a checkpoint's folder by update."""
    files = folder.glob(f"{_FORMER}*.safetensors")
    return {int(file.stem.removeprefix(_FORMER)): file for file in files}


def choose_sync_folder(configured: str | None, checkpoints: Path) -> Path:
    """Return the folder for the weights that another engine reads: a run's own in the configured one, or its own."""
    if configured is None:
        return checkpoints.resolve()
    # The same after a kill, so that what is left there is written over, and removed in the end.
    run = hashlib.sha256(os.fsencode(checkpoints.resolve())).hexdigest()[:12]
    return Path(configured).expanduser().resolve() / f"evorun-{run}"


def remove_rollouts(folder: Path) -> None:
    """Remove the weights that another engine has read, and a folder that held nothing else."""
    for written in folder.glob(f"{ROLLOUTS}*"):
        shutil.rmtree(written, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.rmdir()
