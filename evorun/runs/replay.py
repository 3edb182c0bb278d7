"""The `replay` engine: answers from a recorded run's journal, so that the run repeats without its model."""

import asyncio
import copy
from dataclasses import dataclass
from pathlib import Path

import msgspec

from evorun.errors import ConfigError, JournalError
from evorun.models.base import LanguageModel, Reply, Request
from evorun.models.config import EngineConfig, ModelConfig
from evorun.models.encoding import encode_request, request_digest
from evorun.runs.directory import JOURNAL, load_manifest
from evorun.runs.journal import open_read_only

_REPLY = msgspec.json.Decoder(Reply)


@dataclass
class ReplayConfig(EngineConfig):
    """Schema of `conf/engine/replay.yaml`."""

    run: str | None = None
    """Directory of the run to replay."""

    def name_of(self, model: ModelConfig) -> str:
        """Return the name that the recording has: an adapter's files need not be on the machine that replays it."""
        if self.run is None or model.adapter is None:
            return model.id
        recorded = {m.id for m in load_manifest(Path(self.run)).models.values()}
        found = [name for name in recorded if name.startswith(f"{model.id}+adapter:")]
        return found[0] if len(found) == 1 else model.identity

    async def open(self, model: ModelConfig) -> LanguageModel:
        """Index the recorded replies. Raises ConfigError or RunDirectoryError when there is no recording."""
        if self.run is None:
            raise ConfigError("engine.run: expected the directory of the run to replay, got null")
        return await asyncio.to_thread(ReplayedModel, self.name_of(model), Path(self.run) / JOURNAL)


class ReplayedModel:
    """Says what the recorded model said, and refuses what it was never asked."""

    def __init__(self, name: str, journal: Path) -> None:
        """Read which requests the journal holds. Raises RunDirectoryError when it cannot be read."""
        self.name = name
        self._journal = journal
        self._connection = open_read_only(journal)
        self._key_of = {
            bytes(digest): key for key, digest in self._connection.execute("SELECT key, digest FROM effects")
        }

    async def complete(self, request: Request) -> Reply:
        """Return the recorded reply, its recorded seconds included. Raises JournalError when there is none."""
        key = self._key_of.get(request_digest(encode_request(self.name, request)))
        if key is None:
            raise JournalError(
                f"{self._journal} holds no reply to this request: replay needs the recorded run's method, task, "
                "model, seed and settings"
            )
        row = self._connection.execute("SELECT result FROM effects WHERE key = ?", (key,)).fetchone()
        return _REPLY.decode(row[0])

    async def under(self, folder: Path, name: str) -> LanguageModel:
        """Return what the model said under that name; the adapter itself is not needed."""
        view = copy.copy(self)
        view.name = name
        return view

    async def close(self) -> None:
        """Close the recording; idempotent."""
        self._connection.close()
