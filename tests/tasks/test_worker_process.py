"""A file that runs in a process of its own: its greeting, its replies, and its end."""

from pathlib import Path

import pytest

from evorun.errors import DataError
from evorun.tasks.worker_process import WorkerProcess

ECHO = """
import os, sys
print('{"ready": true}', flush=True)
for line in sys.stdin:
    if line == "die\\n":
        os._exit(3)
    print(line.strip() * 2 if line != "key\\n" else os.environ.get("OWN_API_KEY"), flush=True)
"""


def start(folder: Path, source: str) -> WorkerProcess:
    (folder / "worker.py").write_text(source)
    return WorkerProcess(folder / "worker.py", purpose="this task", package="some-package")


def test_it_answers_a_line_with_a_line_until_it_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_API_KEY", "secret")
    (tmp_path / "json.py").write_text("raise ImportError")  # what stands beside it hides no module
    worker = start(tmp_path, "import json\n" + ECHO)
    assert worker.ask("1") == "11\n"
    assert worker.ask("key") == "None\n"
    assert worker.ask("die") == ""
    assert worker.ask("2") == ""
    assert worker.end() == 3


def test_it_ends_with_its_input(tmp_path: Path) -> None:
    worker = start(tmp_path, ECHO)
    worker._requests.close()  # as the kernel does for a parent that is killed
    assert worker._process.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("source", "reason"),
    [('print(\'{"error": "no such module"}\')', "no such module"), ("raise SystemExit(4)", "it ended with status 4")],
)
def test_one_that_does_not_start_says_what_it_needs(tmp_path: Path, source: str, reason: str) -> None:
    expected = rf"this task needs some-package \(pip install some-package\), which does not start: {reason}"
    with pytest.raises(DataError, match=expected):
        start(tmp_path, source)
