"""Models that one process of this machine serves to several runs: both ends of the connection.

Requests and replies cross it as the engines' own protocol has them, so that a run asks a shared model exactly what it
would ask its own engine. An OpenAI-compatible API would lose token ids, some log-probabilities and vLLM's arguments.
"""

import asyncio
import contextlib
import hashlib
import itertools
import logging
import socket
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from evorun.errors import EngineError, EvorunError
from evorun.models.base import LanguageModel, Reply, Request
from evorun.models.config import ServedModel

if TYPE_CHECKING:
    import aiohttp
    from aiohttp import web

log = logging.getLogger(__name__)


class SharedModels(msgspec.Struct, frozen=True):
    """The models that a process serves to the jobs of a sweep."""

    path: str
    """Of its Unix-domain socket, in a folder that only this user may enter."""
    keys: tuple[str, ...]
    """Of the models (`key_of`)."""
    jobs: int
    """Jobs that it serves at once."""
    log: str
    """Path of the file with its messages."""
    held: int
    """Descriptor that the job keeps open, for the process ends when no job has it any more."""


class _Call(msgspec.Struct, array_like=True):
    """A request, or the cancellation of an earlier one."""

    number: int
    request: Request | None


class _Answer(msgspec.Struct, array_like=True):
    number: int
    reply: Reply | None
    error: str


_used: SharedModels | None = None


def use(shared: SharedModels | None) -> None:
    """Have this process ask shared models, where it would load the same ones."""
    global _used
    _used = shared


def find_shared(served: ServedModel) -> SharedModels | None:
    """Return where a model on an engine with the same settings is served to this process; None if nowhere."""
    return _used if _used is not None and key_of(served) in _used.keys else None


def key_of(served: ServedModel) -> str:
    """Return a digest of all settings of a model and its engine, 16 hexadecimal digits."""
    return hashlib.sha256(msgspec.json.encode(served, order="sorted")).hexdigest()[:16]


class SharedModel:
    """A model in another process; implements `LanguageModel`. Belongs to the event loop that opens it."""

    def __init__(self, served: ServedModel, shared: SharedModels) -> None:
        self.name = served.engine.journal_name(served.model)
        self._key = key_of(served)
        self._shared = shared
        self._numbers = itertools.count()
        self._unanswered: dict[int, asyncio.Future[Reply]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._reader: asyncio.Task[None] | None = None

    async def open(self) -> "SharedModel":
        """Connect. Raises EngineError when the process has ended."""
        import aiohttp

        self._session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(self._shared.path))
        try:
            self._socket = await self._session.ws_connect(f"http://evorun/{self._key}", max_msg_size=0)
        except (aiohttp.ClientError, OSError) as error:
            await self.close()
            raise self._ended() from error
        self._reader = asyncio.create_task(self._read(self._socket))
        return self

    async def complete(self, request: Request) -> Reply:
        number = next(self._numbers)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._unanswered[number] = answer
        try:
            await self._send(_Call(number, msgspec.structs.replace(request, hints={})))
            return await answer
        except asyncio.CancelledError:
            with contextlib.suppress(EngineError):
                await self._send(_Call(number, None))
            raise
        finally:
            self._unanswered.pop(number, None)

    async def close(self) -> None:
        """Disconnect; the process goes on, and drops what this one has not received."""
        if self._socket is not None:
            await self._socket.close()
        if self._session is not None:
            await self._session.close()
        if self._reader is not None:
            await self._reader

    async def _send(self, call: _Call) -> None:
        if self._socket is None or self._reader is None or self._reader.done():
            raise self._ended()
        try:
            await self._socket.send_bytes(msgspec.msgpack.encode(call))
        except (ConnectionError, RuntimeError) as error:  # aiohttp's errors on a connection that closes
            raise self._ended() from error

    async def _read(self, connection: "aiohttp.ClientWebSocketResponse") -> None:
        decoder = msgspec.msgpack.Decoder(_Answer)
        async for message in connection:
            answered = decoder.decode(message.data)
            waiting = self._unanswered.get(answered.number)
            if waiting is None or waiting.done():  # cancelled meanwhile
                continue
            if answered.reply is None:
                waiting.set_exception(EngineError(answered.error))
            else:
                waiting.set_result(answered.reply)
        for waiting in self._unanswered.values():
            if not waiting.done():
                waiting.set_exception(self._ended())

    def _ended(self) -> EngineError:
        return EngineError(
            f"model '{self.name}': the process that serves it to the jobs of this sweep has ended; see "
            f"{self._shared.log}"
        )


async def serve(models: Mapping[str, LanguageModel], listener: socket.socket, until: Awaitable[object]) -> None:
    """Serve models by key to all that connect, until the awaitable is done; then close the models."""
    from aiohttp import web

    connections: set[web.WebSocketResponse] = set()

    async def connect(asked: web.Request) -> web.WebSocketResponse:
        model = models.get(asked.match_info["key"])
        if model is None:
            raise web.HTTPNotFound
        connection = web.WebSocketResponse(max_msg_size=0)
        await connection.prepare(asked)
        connections.add(connection)
        try:
            await _answer_all(model, connection)
        finally:
            connections.remove(connection)
        return connection

    async def disconnect(_: web.Application) -> None:
        await asyncio.gather(*(connection.close() for connection in connections))

    application = web.Application()
    application.router.add_get("/{key}", connect)
    application.on_shutdown.append(disconnect)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        await until
    finally:
        await runner.cleanup()
        await asyncio.gather(*(model.close() for model in models.values()))


async def _answer_all(model: LanguageModel, connection: "web.WebSocketResponse") -> None:
    """Answer the requests of one connection, many at a time, until it is closed."""
    tasks: dict[int, asyncio.Task[None]] = {}

    async def answer(number: int, request: Request) -> None:
        try:
            answered = _Answer(number, await _ask(model, request), "")
        except EngineError as error:
            answered = _Answer(number, None, str(error))
        with contextlib.suppress(ConnectionError):  # nobody waits for it any more
            await connection.send_bytes(msgspec.msgpack.encode(answered))

    decoder = msgspec.msgpack.Decoder(_Call)
    try:
        async for message in connection:
            call = decoder.decode(message.data)
            if call.request is not None:
                task = tasks[call.number] = asyncio.create_task(answer(call.number, call.request))
                task.add_done_callback(partial(tasks.pop, call.number))
            elif call.number in tasks:
                tasks[call.number].cancel()
    finally:
        for task in list(tasks.values()):
            task.cancel()


async def _ask(model: LanguageModel, request: Request) -> Reply:
    """Return the model's reply. Raises EngineError for any failure, as the run cannot see the process's traceback."""
    try:
        return await model.complete(request)
    except EvorunError as error:
        raise EngineError(str(error)) from error
    except Exception as error:
        log.exception("model '%s' failed", model.name)
        raise EngineError(f"model '{model.name}': {type(error).__name__}: {error}") from error
