"""Fixtures, hooks and profiles that all tests share."""

import gc
import logging
import os
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest
from _pytest.logging import catching_logs

from evorun.errors import SandboxError
from means import user_namespaces_work
from warm_process import forked_children, forked_trainers, is_there, run_once, warm_process
from workers import SHARING, Workers

# A machine that is busy takes any time for an example. Everybody sees the same examples, so that no change is blamed
# for what another one did; `make test PYTEST_ARGS=--hypothesis-profile=explore` looks for new ones. `make test-all`
# gives properties ten times as many examples. A test names a number of its own only where each example takes long.
hypothesis.settings.register_profile("evorun", deadline=None, derandomize=True, max_examples=25)
hypothesis.settings.register_profile("thorough", deadline=None, derandomize=True, max_examples=250)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile("evorun")

# A decorator of bitsandbytes, which peft imports, would load torch's compiler, for a second in each process.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

# Configurations and figures are cycles of many small objects, which Python would look through 70 times as often.
gc.set_threshold(50_000, 10, 10)


_enter = catching_logs.__enter__


def _catch_at_the_root(self: Any) -> Any:
    """Catch the logs of a phase of a test, without a look at each logger for those that pass nothing on.

    pytest looks through them six times a test, and with torch there are thousands.
    """
    manager = logging.root.manager
    loggers, manager.loggerDict = manager.loggerDict, {}
    try:
        return _enter(self)
    finally:
        manager.loggerDict = loggers


catching_logs.__enter__ = _catch_at_the_root  # type: ignore[method-assign]


@pytest.fixture
def below() -> Callable[[], list[psutil.Process]]:
    """Say which processes below this one were started since the test began: earlier tests may have left some, such as
    multiprocessing's resource tracker, which ends with the interpreter."""
    earlier = frozenset(psutil.Process().children(recursive=True))
    return lambda: [process for process in psutil.Process().children(recursive=True) if process not in earlier]


@pytest.fixture(autouse=True, scope="session")
def _key_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Sign the tests' runs with a key of their own, and write nothing to the user's folders."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(autouse=True, scope="session")
def _any_window() -> None:
    """Print as into a file of no stated width: shells and pytest-xdist's workers set one."""
    os.environ.pop("COLUMNS", None)


@pytest.fixture(autouse=True, scope="session")
def _forked_trainers() -> Iterator[None]:
    with forked_trainers() if is_there() else nullcontext():
        yield


@pytest.fixture
def _forked_children() -> Iterator[None]:
    """Have the processes of runs from Python forked, for what does not depend on their start."""
    with forked_children() if is_there() else nullcontext():
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="test files at once, in forks of one process (workers.py)")


IN_MEMORY = Path("/dev/shm")
"""A file system in main memory: runs write to the disk, and wait for it, all the time."""
ROOM = 8 << 30
"""Bytes that it must have, several times as many as all tests leave."""


def _has_room() -> bool:
    if not os.access(IN_MEMORY, os.W_OK):
        return False
    system = os.statvfs(IN_MEMORY)  # tests run programs of their folders
    return system.f_bavail * system.f_frsize >= ROOM and not system.f_flag & os.ST_NOEXEC


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Have pytest give the memory back where all tests have passed."""
    factory = session.config._tmp_path_factory
    if factory._basetemp is not None and factory._basetemp.is_relative_to(IN_MEMORY):
        factory._retention_policy = "failed"


def pytest_configure(config: pytest.Config) -> None:
    """Make the tests' folders in main memory, unless PYTEST_DEBUG_TEMPROOT or `--basetemp` says where.

    Keep a process for all workers to fork: where torch is, which it imports, and no GPU, which a fork cannot use.
    """
    if _has_room():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))
    if count := config.getoption("workers"):
        config.pluginmanager.register(Workers(config, count))
    usable = not shutil.which("nvidia-smi") and find_spec("torch") is not None
    if usable and not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="evorun-")
        config.add_cleanup(folder.cleanup)
        warm = ExitStack()
        # With workers, it imports on another core than the one that collects.
        warm.enter_context(warm_process(Path(folder.name), at_once=bool(count)))
        config.add_cleanup(warm.close)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, Any, Any]:
    """Do what a process does only the first time before workers are forked, rather than in each of them."""
    if session.config.getoption("workers") and not session.config.option.collectonly and not session.testsfailed:
        run_once()
    return (yield)


@pytest.fixture(autouse=True, scope="module")
def _survivors_set_aside() -> None:
    """Let Python look no more through what outlives a file's tests: torch alone has a million objects."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _registered_tasks() -> Iterator[None]:
    """Take out the toy tasks that a module has registered: other modules in this process ask for all tasks."""
    yield
    registry = sys.modules.get("evorun.runner.registry")
    for name in [name for name, home in registry.TASKS.items() if not home.startswith("evorun.")] if registry else []:
        del registry.TASKS[name]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Skip what needs to run programs where the kernel gives no isolation: the sandbox fails closed, so they cannot."""
    report = yield
    error = call.excinfo and call.excinfo.value
    if report.failed and isinstance(error, SandboxError) and not user_namespaces_work():
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {error}")
    return report


@pytest.hookimpl(tryfirst=True)  # before the tests that -m does not want are taken out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the cases that no sample has to the night, and begin with the files that hold slow or many tests.

    Begun last, these would leave one worker alone with them. First are those that one worker runs (`SHARING`).
    """
    cases = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sample") and not item.get_closest_marker("nightly"):
            cases[item.nodeid.partition("[")[0]].append(item)
    for of_one_test in cases.values():
        count = of_one_test[0].get_closest_marker("sample").args[0]
        chosen = {round(place * (len(of_one_test) - 1) / max(count - 1, 1)) for place in range(count)}
        for place, item in enumerate(of_one_test):
            if place not in chosen:
                item.add_marker(pytest.mark.nightly)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    count = Counter(item.path for item in items)
    items.sort(
        key=lambda item: (not any(map(item.get_closest_marker, SHARING)), item.path not in slow, -count[item.path])
    )


@pytest.fixture(name="chromium", scope="session")
def _chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start one browser for all tests of pages: starting it takes longer than most of them."""
    import browsing  # skips the tests that ask for it where selenium is not installed

    driver = browsing.start(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture
def drawn_figures() -> None:
    """Draw figures, for tests of pages in a browser, and those in reports/ that read what is drawn."""
