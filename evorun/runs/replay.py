"""The replay of a recorded run without its model, sandbox and trainer: their answers come from its journal."""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from evorun.errors import ConfigError, JournalError
from evorun.models.base import LanguageModel, Reply, Request
from evorun.models.config import EngineConfig, ModelConfig
from evorun.models.encoding import encode_question, encode_request
from evorun.runs.call_keys import parse_step
from evorun.runs.directory import load_manifest
from evorun.runs.journal_file import JOURNAL, digest_request
from evorun.runs.journal_reader import decode_result
from evorun.runs.program_tests import Results, TestRequests, encode_work
from evorun.runs.recording import find_first_own_step, open_effects
from evorun.sandbox.base import Program, Suite

T = TypeVar("T")


@dataclass
class ReplayConfig(EngineConfig):
    """Schema of `conf/engine/replay.yaml`."""

    replays = True

    run: str | None = None
    """Directory of the run to replay."""

    @property
    def recorded(self) -> Path | None:
        return None if self.run is None else Path(self.run)

    def journal_name(self, model: ModelConfig) -> str:
        """Return the model's name in the recording; an adapter's files need not be on this machine."""
        if self.run is None or model.adapter is None:
            return model.id
        recorded = {m.id for m in load_manifest(Path(self.run)).models.values()}
        # if the recording has one adapter of the model, it is meant, whatever the files here hold
        adapters = [name for name in recorded if name.startswith(f"{model.id}+adapter:")]
        return adapters[0] if len(adapters) == 1 else model.identity

    def require(self, model: ModelConfig) -> None:
        if self.run is None:
            raise ConfigError("engine.run: expected the directory of the run to replay, got null")

    async def open(self, model: ModelConfig) -> LanguageModel:
        """Index the recorded replies. Raises ConfigError or RunDirectoryError when there is no recording."""
        self.require(model)
        assert self.run is not None  # noqa: S101 - `require` has checked it
        return await asyncio.to_thread(RecordedRun, Path(self.run), self.journal_name(model))


class RecordedRun:
    """The recorded answers of a run's model, sandbox and trainer. Raises JournalError for an unrecorded request."""

    def __init__(self, run: Path, model: str = "") -> None:
        """Index the run's journal, for requests to the model of this name. Raises RunDirectoryError."""
        self.name = model
        self._path = run / JOURNAL
        self._journal = open_effects(run)
        # by the request alone: an engine does not know the key of a call
        self._numbers = {digest: number for number, (_, digest) in enumerate(self._journal.index())}
        self._requests = TestRequests()
        self._first_own_step = find_first_own_step(run)

    async def complete(self, request: Request) -> Reply:
        """Return the recorded reply with its recorded seconds."""
        return self.reply(request)

    def reply(self, request: Request) -> Reply:
        """Return the recorded reply without awaiting. Raises JournalError where there is none."""
        about = encode_request(self.name, request)
        number = self._numbers.get(digest_request(about))
        if number is None and self._first_own_step is not None:
            number = self._shared.get(encode_question(about))
        unknown = (
            "no reply to this request: replay needs the recorded run's method, task, model, seed, settings and code"
        )
        return self._decode(number, Reply, unknown)

    @cached_property
    def _shared(self) -> dict[bytes | None, int]:
        """Numbers of the effects that a fork shares, by their questions: it asked them with other settings."""
        shared = {}
        for number, (key, _) in enumerate(self._journal.index()):
            place = parse_step(key)
            if place is not None and place[1] < (self._first_own_step or 0):
                shared[encode_question(self._journal.effect(number).request)] = number
        shared.pop(None, None)
        return shared

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> Results:
        """Return the recorded results of a program."""
        _, about = self._requests.encode(program, suite, stop_at_failure)
        unknown = (
            "no test of a program that this run tests: the recording has another configuration, other problems or "
            "other limits"
        )
        return self._decode(self._numbers.get(digest_request(about)), Results, unknown)

    async def remember(self, about: object, compute: Callable[[], Awaitable[T]], kind: type[T]) -> T:
        """Return the recorded result of a grader's work, which is not done again."""
        _, request = encode_work(about)
        unknown = "no result of a grader's work that this run asks for: the recording has other problems or settings"
        return self._decode(self._numbers.get(digest_request(request)), kind, unknown)

    def result(self, key: str, about: bytes, kind: type[T]) -> T:
        """Return the trainer's answer to a step or an evaluation."""
        # by the key too: the same command can recur under other weights
        digest, number = self._by_key.get(key, (b"", None))
        if digest != digest_request(about):
            number = None
        return self._decode(number, kind, f"no {key}: the recorded run ended before it, or learned from other data")

    @cached_property
    def _by_key(self) -> dict[str, tuple[bytes, int]]:
        return {key: (digest, number) for number, (key, digest) in enumerate(self._journal.index())}

    def _decode(self, number: int | None, kind: type[T], unknown: str) -> T:
        if number is None:
            raise JournalError(f"{self._path} holds {unknown}")
        return decode_result(self._journal.result(number), kind, f"effect {number}", self._path)

    async def with_adapter(self, folder: Path, name: str) -> LanguageModel:
        """Return a view of the recording for the model of that name; the adapter itself is not needed."""
        # it shares the connection: `close` closes it once for all names
        view = copy.copy(self)
        view.name = name
        return view

    async def close(self) -> None:
        """Close the recording; idempotent."""
        self._journal.close()
