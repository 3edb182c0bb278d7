"""Runs test files at once, in forks of one process that has collected them: `pytest --workers 3`.

Each worker of pytest-xdist would import all test files, and what these import, for 20 seconds of CPU time.
"""

import gc
import itertools
import os
import signal
import traceback
import warnings
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait

import pytest

Place = tuple[str, int | None, str]
"""A test's file, line and name."""

SHARING = ("chromium",)
"""Marks whose files run in one worker, as if they were one: what they share takes seconds to start."""


def group(item: pytest.Item) -> object:
    """Return what the tests that run in one worker have in common: their file, or a mark of several files."""
    return next((mark for mark in SHARING if item.get_closest_marker(mark)), item.path)


class Reporting:
    """In a worker: sends what becomes of its tests."""

    def __init__(self, config: pytest.Config, link: Connection) -> None:
        self._config = config
        self._link = link
        self._test = ""

    def pytest_runtest_logstart(self, nodeid: str, location: Place) -> None:
        self._test = nodeid
        self._link.send(("logstart", nodeid, location))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._link.send(("logreport", data))

    def pytest_runtest_logfinish(self, nodeid: str, location: Place) -> None:
        self._link.send(("logfinish", nodeid, location))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, nodeid: str) -> None:
        if nodeid == self._test:  # pytest repeats all earlier ones to a new plugin
            text = f"{warning_message.category.__name__}: {warning_message.message}"
            self._link.send(("warning", text, warning_message.filename, warning_message.lineno, nodeid))


@dataclass
class Worker:
    """A worker as the process that collected sees it."""

    pid: int
    given: list[int] = field(default_factory=list)
    """The file whose tests it runs, and the next one."""
    test: tuple[str, Place] | None = None
    """Its latest test."""


class Workers:
    """Gives workers one file after another, and reports their tests as if they had run in this process.

    Files with a mark of `SHARING` stand beside each other among the session's tests, and count as one.
    """

    def __init__(self, config: pytest.Config, count: int) -> None:
        self._config = config
        self._count = count
        self._files: list[list[pytest.Item]] = []
        self._left = iter(range(0))
        self._begun = itertools.count()
        self._running: dict[Connection, Worker] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if self._config.option.collectonly or session.testsfailed:
            return None  # pytest's own loop says so
        if terminal := self._config.pluginmanager.getplugin("terminalreporter"):
            terminal.showfspath = False  # tests of several files report by turns
        self._files = [list(items) for _, items in itertools.groupby(session.items, key=group)]
        self._left = iter(range(len(self._files)))
        gc.collect()
        gc.freeze()  # forks that looked through these objects would copy them
        try:
            for _ in range(min(self._count, len(self._files))):
                self._start(session)
            while self._running:
                for link in wait(list(self._running)):
                    self._hear(session, link)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
        finally:
            for worker in self._running.values():
                os.kill(worker.pid, signal.SIGTERM)
                os.waitpid(worker.pid, 0)
        return True

    def _start(self, session: pytest.Session, first: int | None = None) -> None:
        """Fork a worker. first: the file to begin with, instead of the next one."""
        folder = self._config._tmp_path_factory.getbasetemp() / f"worker-{next(self._begun)}"
        ours, theirs = Pipe()
        if (pid := os.fork()) == 0:
            code = 1
            try:
                for link in (ours, *self._running):
                    link.close()
                folder.mkdir(0o700)
                self._config._tmp_path_factory._basetemp = folder
                self._work(session, theirs, first)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)  # what ends with pytest itself is not a fork's
        theirs.close()
        self._running[ours] = Worker(pid, [] if first is None else [first])

    def _work(self, session: pytest.Session, link: Connection, first: int | None) -> None:
        """Run files until there are no more. The next one is known before one ends: its tests may share fixtures."""
        plugins = self._config.pluginmanager
        if terminal := plugins.getplugin("terminalreporter"):
            plugins.unregister(terminal)
        plugins.register(Reporting(self._config, link))
        capturing = plugins.getplugin("capturemanager")
        capturing.stop_global_capturing()  # into files that all forks would share
        capturing.start_global_capturing()
        capturing.suspend_global_capture()

        def ask() -> int | None:
            link.send(("next",))
            return link.recv()

        number = ask() if first is None else first
        while number is not None:
            following = ask()
            after = [None] if following is None else self._files[following][:1]
            for item, nextitem in itertools.pairwise([*self._files[number], *after]):
                self._config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            number = following
        link.send(("end",))

    def _hear(self, session: pytest.Session, link: Connection) -> None:
        """Do what a worker's next message asks for."""
        worker, hook = self._running[link], self._config.hook
        try:
            kind, *told = link.recv()
        except (EOFError, ConnectionResetError):
            kind, told = "lost", []
        if kind in ("end", "lost"):
            del self._running[link]
            code = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
            if kind == "lost":
                self._replace(session, worker, code)
        elif kind == "next":
            number = next(self._left, None)
            worker.given = [*worker.given[-1:], *([] if number is None else [number])]
            link.send(number)
        elif kind == "logstart":
            worker.test = told[0], told[1]
            hook.pytest_runtest_logstart(nodeid=told[0], location=told[1])
        elif kind == "logreport":
            report = hook.pytest_report_from_serializable(config=self._config, data=told[0])
            hook.pytest_runtest_logreport(report=report)
        elif kind == "logfinish":
            hook.pytest_runtest_logfinish(nodeid=told[0], location=told[1])
        else:
            text, filename, line, nodeid = told
            message = warnings.WarningMessage(Warning(text), Warning, filename, line)
            recorded = {"warning_message": message, "when": "runtest", "nodeid": nodeid, "location": None}
            hook.pytest_warning_recorded.call_historic(kwargs=recorded)

    def _replace(self, session: pytest.Session, worker: Worker, code: int) -> None:
        """Report the test that a worker ended with, and have another worker run what it has left."""
        given = [item for number in worker.given for item in self._files[number]]
        nodeid, place = worker.test or (given[0].nodeid, given[0].location)
        told = f"the process that ran this test ended with exit code {code}"
        self._config.hook.pytest_runtest_logreport(report=pytest.TestReport(nodeid, place, {}, "failed", told, "call"))
        left = list(itertools.dropwhile(lambda item: item.nodeid != nodeid, given))[1:]
        if left:
            self._files.append(left)
        self._start(session, len(self._files) - 1 if left else None)
