"""Pages of runs and comparisons, drawn by processes of their own: a folder that takes forever holds up nothing else."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import msgspec

from evorun.errors import EvorunError
from evorun.runs.directory import MANIFEST, TOURNAMENT
from evorun.runs.files import reject_symlinks

LIMIT_S = 120.0
"""Seconds that a page may take (ours): one of a paper-size run takes some ten."""
AT_ONCE = 2
"""Pages that are drawn at once (ours)."""
_PRELOADED = ["evorun.reports.html", "evorun.reports.comparison", "evorun.viewer.live", "matplotlib.figure"]


class PageError(EvorunError):
    """A page that cannot be drawn."""


def draw_run(folder: Path) -> bytes:
    """Return a run's own page, as `evorun report` draws it. Raises EvorunError."""
    from evorun.reports.html import render_report

    reject_symlinks(folder)
    return render_report(folder).encode("utf-8", "replace")


def draw_tournament(folder: Path) -> bytes:
    """Return a tournament's page, as `evorun report` draws it. Raises EvorunError."""
    from evorun.reports.tournament import render_tournament

    reject_symlinks(folder)
    return render_tournament(folder).encode("utf-8", "replace")


def draw_comparison(links: Mapping[Path, str]) -> bytes:
    """Return the page that compares runs. links: from the page to each run's own, by its folder. Raises EvorunError."""
    from evorun.reports.comparison import compare, render_comparison

    for folder in links:
        reject_symlinks(folder)
    compared = compare(list(links))
    by_name = {run.name: links[run.outcome.run_dir] for run in compared.runs}
    return render_comparison(compared, by_name).encode("utf-8", "replace")


def read_live(folder: Path) -> bytes:
    """Return a run's curves and last texts, or a tournament's ratings, as JSON. Raises EvorunError."""
    from evorun.viewer.live import load_live, load_ratings

    reject_symlinks(folder)
    is_tournament = (folder / TOURNAMENT).exists() and not (folder / MANIFEST).exists()
    return msgspec.json.encode(load_ratings(folder) if is_tournament else load_live(folder))


class Workers:
    """Carries out functions in processes forked from one that has loaded what they need."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)
        self._free = asyncio.Semaphore(AT_ONCE)
        self._running: set[BaseProcess] = set()

    def warm_up(self) -> None:
        """Start the process that the others are forked from, which then loads its modules."""
        resource_tracker.ensure_running()  # before, since it unblocks the signal
        # inherited: Ctrl-C in a terminal reaches the whole group of processes, and is for the first of them alone
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
        forkserver.ensure_running()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    async def run(self, function: Callable[..., bytes], *arguments: object) -> bytes:
        """Return what a function returns. Raises PageError for its EvorunError, and where no answer comes in time."""
        async with self._free:
            receiver, sender = self._context.Pipe(duplex=False)
            process = self._context.Process(target=_carry_out, args=(sender, function, arguments), daemon=True)
            try:
                # it waits until the first process has loaded its modules
                await asyncio.to_thread(process.start)
                self._running.add(process)
                sender.close()
                async with asyncio.timeout(LIMIT_S):
                    failed, answer = await _receive(receiver)
            except TimeoutError as error:
                raise PageError(f"drawing it took more than {LIMIT_S:g} s; evorun report has no limit") from error
            except (EOFError, OSError) as error:
                raise PageError("the process that draws it ended without a page: see the terminal") from error
            finally:
                receiver.close()
                sender.close()
                self._end(process)
        if failed:
            raise PageError(answer.decode())
        return answer

    def close(self) -> None:
        """End all processes at once, even the one that may still load its modules."""
        for process in list(self._running):
            self._end(process)
        server = getattr(forkserver.ensure_running, "__self__", None)
        number = getattr(server, "_forkserver_pid", None)  # Python has no public name for it
        if number is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def _end(self, process: BaseProcess) -> None:
        if process in self._running:
            self._running.discard(process)
            process.kill()
            process.join()


def _carry_out(sender: Connection, function: Callable[..., bytes], arguments: tuple[object, ...]) -> None:
    """Send what a function returns, or the text of its error, in a process of its own."""
    try:
        answer = b"0" + function(*arguments)
    except EvorunError as error:
        answer = b"1" + str(error).encode("utf-8", "replace")
    with contextlib.suppress(BrokenPipeError):
        sender.send_bytes(answer)


async def _receive(receiver: Connection) -> tuple[bool, bytes]:
    """Return whether a function failed, and its answer. Raises EOFError where its process has ended without one."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(receiver.fileno(), readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(receiver.fileno())
    answer = await asyncio.to_thread(receiver.recv_bytes)
    return answer[:1] == b"1", answer[1:]
