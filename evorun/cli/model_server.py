"""A process that loads models once for several jobs of a sweep (`hydra.launcher.share_models=true`)."""

import asyncio
import os
import shutil
import signal
import socket
import sys
from functools import partial
from typing import Any

import msgspec

from evorun.models.base import LanguageModel
from evorun.models.config import ModelConfig, ServedModel
from evorun.models.lazy import LazyModel
from evorun.models.sharing import serve
from evorun.runner.served import read_engine
from evorun.runner.typed import typed


class GivenModel(msgspec.Struct):
    """A model and the engine that is to serve it, as plain data."""

    key: str
    """The one that runs ask for (`key_of`): their settings have no GPUs yet."""
    model: dict[str, Any]
    engine: dict[str, Any]


def main() -> None:
    """Serve the models in standard input's first line, on the socket whose descriptor is the first argument.

    Standard input stays open as long as anybody needs the models: the launcher and the jobs hold its other end.
    """
    # A signal to all processes of a machine or container must not take the models from jobs that are about to stop in
    # order. Handlers that do nothing, since processes of vLLM would inherit that signals are ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    listener = socket.socket(fileno=int(sys.argv[1]))
    folder = os.path.dirname(listener.getsockname())
    try:
        asyncio.run(_serve(msgspec.json.decode(sys.stdin.buffer.readline(), type=list[GivenModel]), listener))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _serve(given: list[GivenModel], listener: socket.socket) -> None:
    asked = {
        shared.key: ServedModel(
            typed(ModelConfig, shared.model, "model"), read_engine({"engine": shared.engine}, "engine")
        )
        for shared in given
    }
    models = {
        key: LazyModel(served.engine.journal_name(served.model), partial(_open, served))
        for key, served in asked.items()
    }
    await serve(models, listener, asyncio.to_thread(sys.stdin.buffer.read))


async def _open(served: ServedModel) -> LanguageModel:
    print(f"loading {served.model.id} with engine={served.engine.name}", file=sys.stderr, flush=True)
    return await served.engine.open(served.model)


if __name__ == "__main__":
    main()
