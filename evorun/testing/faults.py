"""Faults of asynchronous plug-ins that their results do not show: calls that block, and keys that leak."""

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from unittest import mock

from evorun.testing.expectations import expect

CANARY = "canary-5d1f0c7e"
"""The value of each key during a check."""

_WAITS = ("socket.connect", "socket.getaddrinfo", "subprocess.Popen")
"""Audit events (PEP 578) of calls that wait, beside `time.sleep`, which has none before Python 3.13."""


class _Watch:
    """Notes the waiting calls of one thread, as an audit hook, which no one can remove."""

    def __init__(self) -> None:
        self.thread: int | None = None
        self.seen: list[str] = []

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.thread is None or event not in _WAITS or threading.get_ident() != self.thread:
            return
        if event == "socket.connect" and isinstance(arguments[0], socket.socket) and arguments[0].gettimeout() == 0:
            return  # asyncio's own: it does not wait
        if event == "subprocess.Popen" and _is_started_by_asyncio():
            return
        self.seen.append(event)


_watch = _Watch()
_installed = False


def _is_started_by_asyncio() -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") != "asyncio.unix_events":
        frame = frame.f_back
    # the loop itself is there in any case; its transports start processes
    return frame is not None and frame.f_code.co_name == "_start"


@contextmanager
def refusing_blocked_loops() -> Iterator[None]:
    """Raise AssertionError where code inside waits in this thread, whose event loop then serves no other call."""
    global _installed
    if not _installed:
        sys.addaudithook(_watch)
        _installed = True
    this, sleep = threading.get_ident(), time.sleep

    def note_sleep(seconds: float) -> None:
        if threading.get_ident() == this:
            _watch.seen.append("time.sleep")
        sleep(seconds)

    _watch.seen, _watch.thread = [], this
    try:
        with mock.patch("time.sleep", note_sleep):
            yield
    finally:
        _watch.thread = None
    expect(
        not _watch.seen,
        f"expected no call that blocks the event loop, found {', '.join(dict.fromkeys(_watch.seen))}; await instead "
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
