"""The status of each process (rank) of the trainer, in files that the run's process reads if a rank fails or hangs.

Messages would not do: a rank that hangs or is killed sends none, and only the first one is connected to the run.
"""

import contextlib
import faulthandler
import os
import signal
import sys
import time
from pathlib import Path
from typing import TypeVar

import msgspec

from evorun.training.wire import Failed

T = TypeVar("T")

_STATUS, _FAILURE, _STACK = "status", "failure", "stack"


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The present work of a rank."""

    rank: int
    pid: int
    notes: int = 0
    """Number of statuses since the start of the command; grows while the rank makes progress."""
    doing: str = "starting"
    waits: bool = False
    """True while the rank waits for other ranks, or for the run's next command."""
    rows: int = 0
    """Number of sequences in the pass."""
    tokens: int = 0
    """Tokens of the pass, including padding."""
    weights: int = 0
    """Bytes of the model's weights, once they are loaded."""


class Rank:
    """Writes the status of this process. Without a folder, as in tests of single parts, it writes nothing."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._file = -1
        self._command = ""
        self.status = Status(rank=0, pid=os.getpid())

    def begin(self, folder: Path, rank: int) -> None:
        """Write all later statuses into the folder, and on SIGUSR1 the stack of each thread."""
        self._folder = folder
        self._file = os.open(folder / f"{_STATUS}-{rank}", os.O_WRONLY | os.O_CREAT)
        self.status = Status(rank=rank, pid=os.getpid())
        faulthandler.register(signal.SIGUSR1, file=(folder / f"{_STACK}-{rank}").open("w"), all_threads=True)
        self._write()

    def begin_command(self, command: str) -> None:
        """Note that this process carries out another command; all ranks start to count their notes anew."""
        self._command = command
        self.status = msgspec.structs.replace(self.status, doing=command, rows=0, tokens=0, waits=False, notes=0)
        self._write()

    def note(self, doing: str = "", *, rows: int = 0, tokens: int = 0, waits: bool = False) -> None:
        """Note what this process does next, in its command."""
        self.status = msgspec.structs.replace(
            self.status,
            doing=", ".join(filter(None, (self._command, doing))),
            rows=rows,
            tokens=tokens,
            waits=waits,
            notes=self.status.notes + 1,
        )
        self._write()

    def note_weights(self, size: int) -> None:
        """Note the size of the model's weights in bytes."""
        self.status = msgspec.structs.replace(self.status, weights=size)
        self._write()

    def fail(self, failure: Failed) -> None:
        """Write why this process ends."""
        if self._folder is not None:
            with contextlib.suppress(OSError):  # the run has ended and removed the folder
                (self._folder / f"{_FAILURE}-{failure.rank}").write_bytes(msgspec.json.encode(failure))

    def _write(self) -> None:
        if self._file >= 0:
            # Of a fixed size, so that one write replaces the former status. Not a thread: it would go on in a hang.
            os.pwrite(self._file, msgspec.json.encode(self.status).ljust(512), 0)


RANK = Rank()
"""This process."""


def log_of_rank(log: Path, rank: int, ranks: int) -> Path:
    """Return the file with the output of a rank: `trainer.log`, or `trainer.rank1.log` if there are several."""
    return log if ranks == 1 else log.with_suffix(f".rank{rank}{log.suffix}")


def log_of_node(log: Path, node: int) -> Path:
    """Return the file with the output of a node's launcher: `trainer.node1.log`."""
    return log.with_suffix(f".node{node}{log.suffix}")


def write_into(log: Path) -> None:
    """Let this process write its output into a file of its own from now on."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)


def read_statuses(folder: Path) -> list[Status]:
    """Return the statuses of all ranks that have started, by rank."""
    return sorted(_read(folder, _STATUS, Status), key=lambda status: status.rank)


def read_failures(folder: Path) -> list[Failed]:
    """Return the exceptions that have ended ranks, the first one first."""
    return sorted(_read(folder, _FAILURE, Failed), key=lambda failure: failure.time)


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the contents of all ranks' files, by name."""
    found = {}
    for file in (file for kind in (_STATUS, _FAILURE, _STACK) for file in folder.glob(f"{kind}-*")):
        with contextlib.suppress(OSError):
            found[file.name] = file.read_bytes()
    return found


def write_position(folder: Path, status: Status, patience_s: float = 2.0) -> None:
    """Let a rank of this machine write where it is, for `read_position`."""
    file = folder / f"{_STACK}-{status.rank}"
    with contextlib.suppress(OSError):
        before = file.stat().st_size
        os.kill(status.pid, signal.SIGUSR1)
        give_up = time.monotonic() + patience_s
        while (size := file.stat().st_size) == before and time.monotonic() < give_up:
            time.sleep(0.01)
        while size != before:  # it writes line by line
            time.sleep(0.05)
            before, size = size, file.stat().st_size


def read_position(folder: Path, rank: int) -> str:
    """Return where a rank's main thread was (`model.py:12 in forward`), or an empty text if it has not said so."""
    try:
        stacks = (folder / f"{_STACK}-{rank}").read_text()
    except OSError:
        return ""
    # The main thread comes last, its innermost call first; a line before it may say that garbage is collected.
    lines = stacks.rpartition("(most recent call first):")[2].splitlines()
    return next((shorten_frame(line) for line in lines if line.lstrip().startswith('File "')), "")


def shorten_frame(line: str) -> str:
    """Return a stack's line `File "/a/model.py", line 12 in forward` as `model.py:12 in forward`."""
    path, _, rest = line.strip().removeprefix('File "').partition('", line ')
    number, _, function = rest.replace(",", "").partition(" in ")
    return f"{Path(path).name}:{number} in {function}"


def _read(folder: Path, kind: str, of: type[T]) -> list[T]:
    found = []
    for file in folder.glob(f"{kind}-*"):
        with contextlib.suppress(OSError, msgspec.DecodeError):  # a rank that is just starting
            found.append(msgspec.json.decode(file.read_bytes(), type=of))
    return found
