"""Calls in an event loop's thread that wait for something else."""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from evorun.testing.faults import refusing_blocked_loops


@pytest.fixture(name="port", scope="module")
def _port() -> Iterator[int]:
    """Listen at a port of this machine, and answer nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def _connect_ex(port: int) -> None:
    with socket.socket() as link:
        assert link.connect_ex(("127.0.0.1", port)) == 0


WAITING: dict[str, tuple[str, Callable[[int], Any]]] = {
    "sleep": ("time.sleep", lambda port: time.sleep(0)),
    "address": ("socket.getaddrinfo", lambda port: socket.getaddrinfo("127.0.0.1", port)),
    "connection": ("socket.connect", lambda port: socket.create_connection(("127.0.0.1", port)).close()),
    "connection without errors": ("socket.connect", _connect_ex),
    "program": ("subprocess.Popen", lambda port: subprocess.run([sys.executable, "-S", "-c", ""], check=True)),
}


async def _connect(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()


async def _run_program(port: int) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", "")
    assert await process.wait() == 0


AWAITING: dict[str, Callable[[int], Awaitable[Any]]] = {
    "sleep": lambda port: asyncio.sleep(0),
    "connection": _connect,
    "program": _run_program,
    "thread": lambda port: asyncio.to_thread(lambda: [call(port) for _, call in WAITING.values()]),
}


def test_nothing_is_left_that_sees_what_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit hook would, and slows a composition by two fifths."""
    hooks: list[object] = []
    monkeypatch.setattr(sys, "addaudithook", hooks.append)
    own = time.sleep, socket.socket.connect, socket.socket.connect_ex, subprocess.Popen.__init__
    with refusing_blocked_loops():
        threading.Thread(target=time.sleep, args=(0,)).start()
    assert (time.sleep, socket.socket.connect, socket.socket.connect_ex, subprocess.Popen.__init__) == own
    assert not hooks


@pytest.mark.parametrize("what", WAITING)
async def test_a_call_that_waits_is_named(port: int, what: str) -> None:
    name, call = WAITING[what]
    named = rf"blocks the event loop, found ({name}|socket.getaddrinfo, {name});"
    with pytest.raises(AssertionError, match=named), refusing_blocked_loops():
        call(port)


@pytest.mark.parametrize("what", AWAITING)
async def test_what_is_awaited_or_waits_in_another_thread_is_none(port: int, what: str) -> None:
    with refusing_blocked_loops():
        await AWAITING[what](port)
