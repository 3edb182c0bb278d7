"""ROUGE (Lin, 2004) by the rouge_score package in worker processes, and the grader that uses it."""

import asyncio
import atexit
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from pathlib import Path
from queue import Empty, SimpleQueue

from evorun.errors import ToolError
from evorun.runs.candidates import Response
from evorun.tasks.base import Grade, Problem, Tools
from evorun.tasks.loading import GoldGrader
from evorun.tasks.text_task import TextTask
from evorun.tasks.worker_process import WorkerProcess

MEASURES = ("rouge1", "rouge2", "rougeL", "rougeLsum", "rougeLsum_sentences")
MAX_PROCESSES = min(4, os.cpu_count() or 1)
"""Maximum number of workers (ours): each measures about 30 pairs of 2,500 characters per second, and a test set has
thousands."""

_WORKER = Path(__file__).with_name("worker.py")


class Rouge:
    """Measures summaries in worker processes and caches the results.

    A worker starts when all others are busy, up to `processes` of them. Workers end with the process that started them.
    """

    def __init__(self, processes: int = MAX_PROCESSES) -> None:
        """processes: maximum number of workers."""
        # A thread per worker waits for it off the event loop.
        self._threads = ThreadPoolExecutor(max_workers=processes, thread_name_prefix="rouge")
        self._idle: SimpleQueue[WorkerProcess] = SimpleQueue()
        self._cached_measure = lru_cache(maxsize=10_000)(self._measure)

    async def measure(self, reference: str, summary: str, *, stemmer: bool) -> dict[str, float]:
        """Return the F-measures, in [0, 1], by the names of `evorun.tasks.billsum.worker.measure`.

        Raises ToolError where a worker dies, which no text should cause, and DataError where rouge_score is missing.
        """
        return await asyncio.wrap_future(self._threads.submit(self._cached_measure, reference, summary, stemmer))

    def close(self) -> None:
        """End the workers."""
        self._threads.shutdown(cancel_futures=True)
        while not self._idle.empty():
            self._idle.get().end()

    def _measure(self, reference: str, summary: str, stemmer: bool) -> dict[str, float]:
        try:
            worker = self._idle.get_nowait()
        except Empty:
            worker = WorkerProcess(_WORKER, purpose="measuring ROUGE", package="rouge-score")
        reply = worker.ask(json.dumps([reference, summary, stemmer]))
        if not reply:
            raise ToolError(f"the process that measures ROUGE ended with status {worker.end()}; resume")
        self._idle.put(worker)
        measured: dict[str, float] = json.loads(reply)
        return measured


@cache
def shared() -> Rouge:
    """Return the instance that all tasks of this process share, since starting a worker takes seconds."""
    rouge = Rouge()
    atexit.register(rouge.close)
    return rouge


class RougeGrader(GoldGrader):
    """Measures summaries by ROUGE, off the event loop."""

    def __init__(
        self, task: TextTask, references: Mapping[str, Sequence[str]], *, stemmer: bool, rouge: Rouge | None = None
    ) -> None:
        """stemmer: compare words without their suffixes. rouge: None: the shared instance."""
        super().__init__(task, references)
        self._stemmer = stemmer
        self._rouge = rouge

    async def grade(self, problem: Problem, response: Response, tools: Tools) -> Grade:
        """Grade one response; an unparsed one gets 0. Raises DataError for an unknown problem."""
        references = self.references(problem)
        if not references or response.answer is None:
            return await super().grade(problem, response, tools)
        rouge = self._rouge or shared()
        return Grade(scores=await rouge.measure(references[0], response.answer, stemmer=self._stemmer))
