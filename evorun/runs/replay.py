"""The repetition of a recorded run without its model, sandbox and trainer: their answers come from its journal."""

import asyncio
import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from evorun.errors import ConfigError, JournalError
from evorun.models.base import LanguageModel, Reply, Request
from evorun.models.config import EngineConfig, ModelConfig
from evorun.models.encoding import encode_request
from evorun.runs.directory import JOURNAL, load_manifest
from evorun.runs.journal import digest_of, open_read_only
from evorun.runs.program_tests import Results, TestRequests
from evorun.sandbox.base import Program, Suite

T = TypeVar("T")


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
        # one adapter of the model in the recording: that is the one, whatever the files say here
        found = [name for name in recorded if name.startswith(f"{model.id}+adapter:")]
        return found[0] if len(found) == 1 else model.identity

    async def open(self, model: ModelConfig) -> LanguageModel:
        """Index the recorded replies. Raises ConfigError or RunDirectoryError when there is no recording."""
        if self.run is None:
            raise ConfigError("engine.run: expected the directory of the run to replay, got null")
        return await asyncio.to_thread(RecordedRun, Path(self.run), self.name_of(model))


class RecordedRun:
    """The recorded answers of a run's model, sandbox and trainer; JournalError for a request that they never had."""

    def __init__(self, run: Path, model: str = "") -> None:
        """Index the run's journal, for requests to the model of this name. Raises RunDirectoryError."""
        self.name = model
        self._journal = run / JOURNAL
        self._connection = open_read_only(self._journal)
        self._key_of = {
            bytes(digest): str(key) for key, digest in self._connection.execute("SELECT key, digest FROM effects")
        }
        self._requests = TestRequests()

    async def complete(self, request: Request) -> Reply:
        """Return the recorded reply, its recorded seconds included."""
        # by the request alone: an engine is not told the key of a call
        about = encode_request(self.name, request)
        key = self._key_of.get(digest_of(about), "")
        unknown = "no reply to this request: replay needs the recorded run's method, task, model, seed and settings"
        return self._recorded(key, about, Reply, unknown)

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> Results:
        """Return the recorded results of a program."""
        key, about = self._requests.encode(program, suite, stop_at_failure)
        unknown = (
            "no run of a program that this run wants to test: it was recorded with another configuration, other "
            "problems or other limits"
        )
        return self._recorded(key, about, Results, unknown)

    def figures(self, key: str, about: bytes) -> dict[str, float]:
        """Return the trainer's figures of a step or an evaluation."""
        return self._recorded(
            key, about, dict[str, float], f"no {key}: it had not come so far, or learned from something else"
        )

    def _recorded(self, key: str, about: bytes, kind: type[T], unknown: str) -> T:
        row = self._connection.execute(
            "SELECT result FROM effects WHERE key = ? AND digest = ?", (key, digest_of(about))
        ).fetchone()
        if row is None:
            raise JournalError(f"{self._journal} holds {unknown}")
        return msgspec.json.decode(row[0], type=kind)

    async def under(self, folder: Path, name: str) -> LanguageModel:
        """Return the recording of the model under that name; the adapter itself is not needed."""
        # a view of the same connection: `close` closes it once for all names
        view = copy.copy(self)
        view.name = name
        return view

    async def close(self) -> None:
        """Close the recording; idempotent."""
        self._connection.close()
