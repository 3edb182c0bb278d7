"""Comparison of answers by value (math-verify), in a worker process that is killed when slow."""

import asyncio
import atexit
import json
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from evorun.tasks.math_contest.forms import comparable
from evorun.tasks.worker_process import WorkerProcess

CPU_SECONDS = 5.0
"""Most CPU time per comparison (ours; most take 1 to 10 ms). Not wall time: a busy machine must not turn a right answer
into a wrong one."""
MEMORY_MIB = 2048
"""Address space of the worker (ours; it starts at about 300)."""

_WORKER = Path(__file__).with_name("worker.py")


class Comparison(NamedTuple):
    """The worker's verdict."""

    equal: bool
    detail: str
    """The reason if they differ other than in value."""


class Verifier:
    """Compares answers in a worker process, one at a time, and caches the results.

    The first comparison starts the worker, as does the next one after a crash; the worker ends with the process that
    started it.
    """

    def __init__(self, cpu_seconds: float = CPU_SECONDS, memory_mib: int = MEMORY_MIB) -> None:
        """See `CPU_SECONDS` and `MEMORY_MIB`."""
        self._limits = (str(cpu_seconds), str(memory_mib))
        self._worker: WorkerProcess | None = None
        # One thread, so that comparisons wait for the worker off the event loop and never overlap in it.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="math-verify")
        self._cached_compare = lru_cache(maxsize=10_000)(self._compare)

    async def compare(self, gold: str, answer: str, question: str = "") -> Comparison:
        """Compare an answer, LaTeX without a box around it, with the right one.

        question: the problem's text, which decides what an answer may omit (see `comparable`).
        An answer on which the worker crashes or runs out of time is not equal. Raises DataError when math-verify cannot
        be imported.
        """
        texts = comparable(gold, answer, question)
        if isinstance(texts, str):
            return Comparison(False, texts)
        return await asyncio.wrap_future(self._thread.submit(self._cached_compare, *texts))

    def close(self) -> None:
        """End the worker."""
        self._thread.shutdown(cancel_futures=True)
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def _compare(self, gold: str, answer: str) -> Comparison:
        worker = self._worker = self._worker or WorkerProcess(
            _WORKER, *self._limits, purpose="comparing answers", package="math-verify"
        )
        reply = worker.ask(json.dumps([gold, answer]))
        if reply:
            return Comparison(**json.loads(reply))
        self._worker = None
        # No reply: the worker is gone. SIGPROF is its own limit of CPU time, anything else a crash or the memory limit.
        status = worker.end()
        if status == -signal.SIGPROF:
            return Comparison(False, f"too_slow: comparing the answer took more than {self._limits[0]} s of CPU time")
        return Comparison(False, f"worker_died: comparing the answer ended math-verify (status {status})")


@cache
def shared() -> Verifier:
    """Return the verifier that all tasks of this process share: starting one takes more than a second."""
    verifier = Verifier()
    atexit.register(verifier.close)
    return verifier
