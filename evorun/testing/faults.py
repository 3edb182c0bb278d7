"""Faults of asynchronous plug-ins that their results do not show: calls that block, and keys that leak."""

import _socket
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any
from unittest import mock

from evorun.testing.expectations import expect

CANARY = "canary-5d1f0c7e"
"""The value of each key during a check."""


def _is_started_by_asyncio() -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") != "asyncio.unix_events":
        frame = frame.f_back
    # the loop itself is there in any case; its transports start processes
    return frame is not None and frame.f_code.co_name == "_start"


def _connects_slowly(own: socket.socket, *_: object) -> bool:
    return own.gettimeout() != 0  # asyncio's own do not wait


_WAITING: tuple[tuple[object, str, str, Callable[..., bool]], ...] = (
    (time, "sleep", "time.sleep", lambda *_: True),
    (_socket, "getaddrinfo", "socket.getaddrinfo", lambda *_: True),
    (socket.socket, "connect", "socket.connect", _connects_slowly),
    (socket.socket, "connect_ex", "socket.connect", _connects_slowly),
    (subprocess.Popen, "__init__", "subprocess.Popen", lambda *_: not _is_started_by_asyncio()),
)
"""Calls that wait: where they are, how they are named, and whether one with these arguments waits.

An audit hook would see them all, but nothing removes one, and it slows whatever the process does afterwards.
"""


@contextmanager
def refusing_blocked_loops() -> Iterator[None]:
    """Raise AssertionError where code inside waits in this thread, whose event loop then serves no other call."""
    this, seen = threading.get_ident(), list[str]()

    def noting(call: Callable[..., Any], name: str, waits: Callable[..., bool]) -> Callable[..., Any]:
        def noted(*given: Any, **named: Any) -> Any:
            if threading.get_ident() == this and waits(*given):
                seen.append(name)
            return call(*given, **named)

        return noted

    with ExitStack() as patches:
        for home, attribute, name, waits in _WAITING:
            noted = noting(getattr(home, attribute), name, waits)
            patches.enter_context(mock.patch.object(home, attribute, noted))
        yield
    expect(
        not seen,
        f"expected no call that blocks the event loop, found {', '.join(dict.fromkeys(seen))}; await instead "
        "(asyncio.sleep, an asynchronous client), or use asyncio.to_thread",
    )


@contextmanager
def planted_keys(variables: Sequence[str]) -> Iterator[None]:
    """Give the environment variables of keys a value that must appear nowhere."""
    values: Mapping[str, str] = dict.fromkeys(variables, CANARY)
    with mock.patch.dict(os.environ, values):
        yield


def refuse_leak(where: str, text: str) -> None:
    """Raise AssertionError where a text holds a planted key."""
    expect(CANARY not in text, f"{where}: expected no key in it, found one; keys belong into requests alone")
