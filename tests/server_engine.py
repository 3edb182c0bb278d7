"""Helpers of the server engine's tests: an engine opened on servers, and waits."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from building import make_config
from evorun.errors import EngineError
from evorun.models.config import ModelConfig
from evorun.testing.engines import ask
from hostile_server import ChatServer

KEY = "sk-not/a-real+key-0123456789abcdef"
REQUEST = ask("Name a colour.", max_tokens=8)


@asynccontextmanager
async def opened(*servers: ChatServer | str, model: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[Any]:
    """Open the engine on servers, with waits that do not take long."""
    urls = [server if isinstance(server, str) else server.url for server in servers]
    quick = {"timeout": 5.0, "connect_timeout": 2.0, "max_outage": "0.3", "backoff_base": 0.01, "backoff_cap": 0.05}
    config = make_config("engine", "server", **{"base_urls": urls, **quick, **options})
    engine = await config.open(ModelConfig(**{"name": "fake", "id": "fake", **(model or {})}))
    try:
        yield engine
    finally:
        await engine.close()


async def until(condition: Any) -> None:
    """Wait for something that must happen soon."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the conditions are counters of a server, not events
            await asyncio.sleep(0.005)


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def one_line_of(error: pytest.ExceptionInfo[EngineError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message
