"""The process of a run: the signals that stop it cleanly, and its log."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evorun.runs.signals import STOP_SIGNALS, WARNING_SIGNALS, interrupt
from evorun.runs.terminal import LogFormatter


def stop_on_signals() -> None:
    """Cancel the calling task when a signal stops the run; a second one then has its usual effect, unless it warns."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - a coroutine always runs in a task
    # Cancel, rather than raise at an arbitrary line: journal and records then close in order.
    unhandled = [number for number in WARNING_SIGNALS if signal.getsignal(number) in (signal.SIG_DFL, interrupt)]
    # nohup ignores SIGHUP, so that the run outlives its terminal.
    outlives = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    stopping = [number for number in STOP_SIGNALS if not (outlives and number is signal.SIGHUP)]
    for number in (*stopping, *unhandled):
        asyncio.get_running_loop().add_signal_handler(number, _cancel, task, number)


def _cancel(task: asyncio.Task[Any], received: signal.Signals) -> None:
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.remove_signal_handler(number)
    for number in WARNING_SIGNALS:  # at a limit SLURM sends SIGUSR1 together with SIGTERM
        if loop.remove_signal_handler(number):
            loop.add_signal_handler(number, lambda: None)
    task.cancel(f"stopped by {received.name}")


class _LogFile(logging.FileHandler):
    """A log that ends silently when its disk is full, for the run's own error says so."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore a record that could not be written."""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


@contextlib.contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Write the program's log to a file while the block runs."""
    handler = _LogFile(path, delay=True)
    handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:  # tests and sweeps carry out several runs in one process
        root.removeHandler(handler)
        root.setLevel(level)
        handler.close()
