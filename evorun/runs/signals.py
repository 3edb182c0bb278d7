"""The signals that stop the program in an orderly way."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Sent by Ctrl-C, a scheduler, an operator or a closing terminal: the run ends as interrupted."""

WARNING_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2)
"""Sent by schedulers some time before a limit. They stop a run too, unless its job's launcher handles them."""


_raised: KeyboardInterrupt | None = None
"""The exception that `interrupt` has raised in the present block of `interrupt_on_signals`."""


def interrupt(number: int, _: FrameType | None) -> NoReturn:
    """Raise KeyboardInterrupt, as Ctrl-C does; a signal handler."""
    global _raised
    _raised = KeyboardInterrupt(f"stopped by {signal.Signals(number).name}")
    raise _raised


def as_interrupt(error: BaseException) -> KeyboardInterrupt | None:
    """Return the interrupt that an error is or comes from, None for any other error.

    A signal's exception appears at an arbitrary line. Where a library's compiled code calls Python, it may turn
    KeyboardInterrupt into an error of its own, such as SystemError.
    """
    return error if isinstance(error, KeyboardInterrupt) else _raised


@contextlib.contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt for each signal without a handler while the block runs, as Ctrl-C does.

    Signals that are ignored, as by nohup, stay ignored. Outside the main thread nothing changes.
    """
    global _raised
    unhandled = [number for number in (*STOP_SIGNALS, *WARNING_SIGNALS) if signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        unhandled = []
    for number in unhandled:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        _raised = None
        for number in unhandled:
            signal.signal(number, signal.SIG_DFL)


@contextlib.contextmanager
def restore_signal_handlers() -> Iterator[None]:
    """Restore the signals' handlers after the block, since an event loop removes them."""
    before = {number: signal.getsignal(number) for number in (*STOP_SIGNALS, *WARNING_SIGNALS)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is interrupt:
                signal.signal(number, handler)
