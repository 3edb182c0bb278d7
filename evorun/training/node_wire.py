"""Messages between a run and the agents of its trainer, one on each of several nodes."""

import contextlib
import os
from pathlib import Path

import msgspec

from evorun.training.wire import Job

RENDEZVOUS = "trainer_nodes.json"
"""File in the run directory that tells the nodes where the run listens; only its owner can read it."""


class Rendezvous(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run listens, and its secret."""

    addresses: list[str]
    port: int
    secret: str


class Joined(msgspec.Struct, frozen=True, kw_only=True, tag="joined"):
    """The first message of an agent."""

    host: str
    """Name of its node, in SLURM's words where SLURM started it."""
    port: int
    """A free port of its node."""


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """Start the node's processes."""

    job: Job
    rank: int
    """Number of the node among those of the trainer."""
    nodes: int
    processes: int
    """Number of processes on this node."""
    devices: tuple[int, ...] | None
    """GPUs of these processes, as the node numbers them; None: any."""
    address: str
    """Where the first node's processes wait for the others, with its port."""
    port: int
    log: str
    """File for the output of the node's launcher."""


class Gather(msgspec.Struct, frozen=True, kw_only=True, tag="gather"):
    """Send the files about the node's ranks (`evorun.training.ranks`); answered by Gathered."""

    stacks: bool = False
    """Also where each rank is."""


class Gathered(msgspec.Struct, frozen=True, tag="gathered"):
    """Files about the node's ranks, by name."""

    files: dict[str, bytes]


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The node's launcher has ended, with this exit code."""

    code: int


decode_order = msgspec.msgpack.Decoder(Begin | Gather).decode
decode_report = msgspec.msgpack.Decoder(Joined | Gathered | Ended).decode


def write_rendezvous(file: Path, rendezvous: Rendezvous) -> None:
    """Write the file at once, so that no node reads a part of it, and only for the user."""
    unfinished = file.with_suffix(".part")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(msgspec.json.encode(rendezvous))
        os.fsync(descriptor)
    unfinished.replace(file)


def read_rendezvous(file: Path) -> Rendezvous | None:
    """Return what the file says; None without one."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(file.read_bytes(), type=Rendezvous)
    return None
