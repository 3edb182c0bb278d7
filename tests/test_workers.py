"""Files of tests in forked workers: each test is reported once, whatever becomes of the worker that runs it."""

import itertools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import workers

FILES = {
    "conftest": """
import os
import pytest
from workers import Workers

def pytest_addoption(parser):
    parser.addoption("--workers", type=int)

def pytest_configure(config):
    config.pluginmanager.register(Workers(config, config.getoption("workers")))

@pytest.fixture(scope="session")
def shared(request):
    yield
    with open("ended", "a") as file:
        file.write(f"{os.getpid()}\\n")
""",
    "test_1": """
import os, signal, warnings

def test_passes(tmp_path):
    warnings.warn("a warning")

def test_fails(capfd):
    os.write(1, b"captured")
    assert capfd.readouterr().out == "captured"
    print("printed", "before")
    assert False

def test_kills_its_worker():
    os.kill(os.getpid(), signal.SIGKILL)

def test_ends_its_worker():
    os._exit(0)

def test_is_left(shared):
    pass
""",
    **dict.fromkeys(("test_2", "test_3", "test_4"), "def test_shares_a_fixture(shared): pass"),
}


def outcomes(folder: Path, *options: str) -> tuple[list[str], str]:
    """Return a line for each test that is reported, and all that pytest prints."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "--workers=2", *options]
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    printed = subprocess.run(command, cwd=folder, env=alone, capture_output=True, text=True).stdout
    lines = [line.partition(" - ")[0] for line in printed.splitlines() if line.startswith(("PASSED", "FAILED"))]
    return lines, printed


@pytest.mark.nightly
def test_each_test_is_reported_once(tmp_path: Path) -> None:
    shutil.copy(workers.__file__, tmp_path)
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text)
    reported, printed = outcomes(tmp_path)
    assert sorted(reported) == [
        "FAILED test_1.py::test_ends_its_worker",
        "FAILED test_1.py::test_fails",
        "FAILED test_1.py::test_kills_its_worker",
        "PASSED test_1.py::test_is_left",
        "PASSED test_1.py::test_passes",
        *(f"PASSED test_{number}.py::test_shares_a_fixture" for number in (2, 3, 4)),
    ], printed
    for said in ("printed before", "ended with exit code -9", "ended with exit code 0", ": a warning"):
        assert printed.count(said) == 1, printed
    ended = (tmp_path / "ended").read_text().split()
    assert len(ended) == len(set(ended))  # a worker's files share what lasts for a session
    reported, printed = outcomes(tmp_path, "--exitfirst")
    assert [line for line in reported if line.startswith("FAILED")] == ["FAILED test_1.py::test_fails"], printed


def test_files_that_share_what_takes_long_to_start_are_one_workers(request: pytest.FixtureRequest) -> None:
    groups = [group for group, _ in itertools.groupby(request.session.items, workers.group)]
    assert len(groups) == len(set(groups))
    marked = [item for item in request.session.items if item.get_closest_marker("chromium")]
    assert len(set(map(workers.group, marked))) <= 1
