"""Weights & Biases, online or offline."""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from evorun.fields import OneOf
from evorun.runs.manifest import Status
from evorun.tracking.base import Row, TrackedRun, TrackerSettings

_HEADER_BYTES = 7
_BLOCK_BYTES = 32_768
_FULL, _LAST = 1, 4
"""Types of a record's part in the log format of LevelDB (its doc/log_format.md)."""


@dataclass
class WandbSettings(TrackerSettings):
    """Schema of `conf/tracker/wandb.yaml`."""

    section = "tracker.wandb"

    project: str = "evorun"
    entity: str | None = None
    """Team or user; null: that of the key."""
    group: str | None = None
    """Runs of one group are shown together."""
    mode: Annotated[str, OneOf(("online", "offline"))] = "online"
    """`offline` writes files for `wandb sync`."""
    folder: str = "outputs"
    """Folder of the package's own files, below `wandb`: outside run directories, since the package makes links."""


class WandbTracker:
    """History rows whose `_step` is the row's number; the axis of the charts is `step`.

    A history's steps must increase: the service tells a resumed run where to go on, and earlier rows are skipped here.
    Offline, that number is read back from the files that earlier processes left.
    """

    Config = WandbSettings
    packages = ("wandb",)
    variables = ("WANDB_*",)

    def __init__(self, config: WandbSettings) -> None:
        self._config = config
        self._run: Any = None

    def open(self, run: TrackedRun, sent: int) -> int:
        """Open the run under its id; nothing of the machine is sent."""
        import wandb

        config = self._config
        offline = config.mode == "offline"
        held = 1 + max(stored_rows(Path(config.folder), run.id), default=-1) if offline else 0
        Path(config.folder).mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=config.project,
            entity=config.entity,
            group=config.group,
            id=run.id,
            name=run.name,
            tags=list(run.tags),
            config=dict(run.config),
            resume=None if offline else "allow",  # offline, a resume is the same id in another file
            mode=config.mode,
            dir=config.folder,
            settings=wandb.Settings(
                console="off",
                disable_git=True,
                save_code=False,
                silent=True,
                symlink=False,  # to the latest run, which others' resumes would move
                x_disable_meta=True,
                x_disable_machine_info=True,
                x_disable_stats=True,
                x_save_requirements=False,
                x_transaction_log_flush_interval=0,
            ),
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")
        return held if offline else int(self._run.starting_step)

    def log(self, row: Row) -> None:
        """Append a row to the history."""
        self._run.log({**row.values, "step": row.step}, step=row.row)

    def flush(self) -> None:
        """Do nothing: the package's own process has the rows, and `open` asks what arrived."""

    def close(self, status: Status, summary: Mapping[str, float]) -> None:
        """Set the summary, which a repetition overwrites, and finish."""
        self._run.summary.update({f"final/{name}": value for name, value in summary.items()})
        self._run.finish(exit_code=0 if status == "completed" else 1)


def stored_rows(folder: Path, run: str) -> Iterator[int]:
    """Yield the numbers of the history rows in the offline files of a run."""
    from wandb.proto.wandb_internal_pb2 import Record

    for file in sorted(folder.glob(f"wandb/offline-run-*-{run}/run-{run}.wandb")):
        for content in read_log(file.read_bytes()):
            record = Record.FromString(content)
            if record.WhichOneof("record_type") == "history":
                yield record.history.step.num


def read_log(content: bytes) -> Iterator[bytes]:
    """Yield the records of a .wandb file, up to the first one that a kill cut short.

    Blocks of 32 KiB hold parts with a checksum, a length and a type; the file's own header takes the first 7 bytes.
    """
    offset, record = _HEADER_BYTES, b""
    while offset + _HEADER_BYTES <= len(content):
        left = _BLOCK_BYTES - offset % _BLOCK_BYTES
        if left < _HEADER_BYTES:  # too short for a part: zeros
            offset += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, offset)
        start = offset + _HEADER_BYTES
        if kind == 0 or start + length > len(content):
            return
        record += content[start : start + length]
        if kind in (_FULL, _LAST):
            yield record
            record = b""
        offset = start + length
