"""A model that is served to others on a socket, as a sweep's process does it."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from evorun.models import LanguageModel
from evorun.models.config import ServedModel
from evorun.models.sharing import SharedModel, SharedModels, key_of, serve


class Running:
    """A model that is served on a socket of its own."""

    def __init__(self, model: LanguageModel, served: ServedModel, folder: Path) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / "models"))
        listener.listen()
        self.served = served
        self.shared = SharedModels(str(folder / "models"), (key_of(served),), 2, "model_server.log", -1)
        self._ends = asyncio.Event()
        self._task = asyncio.create_task(serve({key_of(served): model}, listener, self._ends.wait()))

    async def open(self) -> SharedModel:
        return await SharedModel(self.served, self.shared).open()

    async def end(self) -> None:
        self._ends.set()
        await self._task


class _Kept:
    """A model that its server does not close."""

    def __init__(self, model: LanguageModel) -> None:
        self.name, self.complete = model.name, model.complete

    async def close(self) -> None:
        pass


@contextlib.asynccontextmanager
async def running(
    model: LanguageModel, served: ServedModel, folder: Path, *, closes: bool = True
) -> AsyncIterator[Running]:
    """Serve a model while the block runs. closes: at its end, too, as a sweep's process does."""
    process = Running(model if closes else _Kept(model), served, folder)
    try:
        yield process
    finally:
        await process.end()
