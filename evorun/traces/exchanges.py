"""What a model was asked and what it said, to the byte, as a run's journal has it."""

import sqlite3
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import msgspec

from evorun.errors import JournalError
from evorun.models.base import Completion, Message, Reply
from evorun.models.encoding import RecordedRequest
from evorun.runs.directory import JOURNAL
from evorun.runs.journal import open_read_only

_REQUEST = msgspec.json.Decoder(RecordedRequest)
_REPLY = msgspec.json.Decoder(Reply)


class Exchange(NamedTuple):
    """A model call that wrote one response."""

    messages: tuple[Message, ...]
    completion: Completion

    @property
    def chat(self) -> tuple[Message, ...]:
        """The whole chat; the model has the last turn."""
        asked = (Message(role=message["role"], content=message["content"]) for message in self.messages)
        return (*asked, Message(role="assistant", content=self.completion.text))


class Exchanges:
    """The model calls of a finished run, by key."""

    def __init__(self, run_dir: Path) -> None:
        """Open the run's journal. Raises RunDirectoryError when there is none."""
        self._path = run_dir / JOURNAL
        self._connection = open_read_only(self._path)

    def __enter__(self) -> "Exchanges":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def of(self, call: str) -> Exchange:
        """Return the exchange under a key. Raises JournalError when the journal has none that can be read."""
        try:
            row = self._connection.execute("SELECT request, result FROM effects WHERE key = ?", (call,)).fetchone()
            if row is None:
                raise JournalError(f"{self._path} does not hold the call '{call}' that candidates.jsonl names")
            return Exchange(_REQUEST.decode(row[0]).messages, _REPLY.decode(row[1]).completions[0])
        except (sqlite3.Error, msgspec.DecodeError, UnicodeDecodeError, IndexError) as error:
            raise JournalError(f"{self._path}: cannot read the call '{call}': {error}") from error
