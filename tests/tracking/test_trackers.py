"""Each tracker with its real package, where that is installed: each point once, after kills too."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tracker_readers import TRACKERS as WRITTEN
from tracker_readers import environment

from evorun.models.requirements import find_missing_packages
from evorun.runs.reading import read_metrics
from evorun.runs.selection import SEARCH_PREFIX
from evorun.testing import check_tracker
from evorun.tracking.choices import TRACKERS, tracker_class
from evorun_process import DRY_RUN, SMALL, evorun, evorun_here, start

installed = pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                bool(find_missing_packages(tracker_class(name).packages)), reason=f"{name} is not installed"
            ),
        )
        for name in TRACKERS
    ],
)


@installed
def test_a_tracker_conforms(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in environment(tmp_path).items():
        monkeypatch.setenv(variable, value)
    if name == "tensorboard":  # its forks need not import it again; other packages start threads
        from tensorboard.backend.event_processing import event_accumulator  # noqa: F401
        from tensorboard.summary.writer import event_file_writer  # noqa: F401
    kind, written = tracker_class(name), WRITTEN[name]
    settings = kind.Config(**written.settings(tmp_path))
    check_tracker(lambda: kind(settings), lambda run: written.read(tmp_path, run.id), tmp_path)


def wait_for_lines(file: Path, lines: int, process: Any) -> None:
    while process.poll() is None and (not file.exists() or file.read_bytes().count(b"\n") < lines):
        time.sleep(0.005)
    assert process.poll() is None, "the run ended before it could be killed"


KILLS = (3, 6)
"""Lines of steps.jsonl after which a run is killed, and again the one that was resumed."""


@pytest.mark.nightly  # the test above kills writers, test_followed.py sends a run's points
@installed
def test_a_killed_run_doubles_no_point_and_misses_none(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in environment(tmp_path).items():
        monkeypatch.setenv(variable, value)
    written = WRITTEN[name]
    settings = {**written.settings(tmp_path), "wait_s": 600}
    overrides = [f"tracker={name}", *(f"tracker.{name}.{key}={value}" for key, value in settings.items())]
    slow = [
        *DRY_RUN,
        *SMALL,
        "engine.seconds_per_token=0.0005",
        "evorun.progress=off",
        f"method.generations={len(KILLS) + 1}",
    ]
    run = tmp_path / "run"
    for lines in KILLS:
        arguments = [*slow, *overrides, "hydra.run.dir=run"] if lines == KILLS[0] else ["resume", "run"]
        process = start(*arguments, cwd=tmp_path)
        wait_for_lines(run / "steps.jsonl", lines, process)
        process.kill()
        process.wait()
    done = evorun_here("resume", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    state = json.loads((run / "trackers" / "state.json").read_text())
    rows = (run / "trackers" / "points.jsonl").read_bytes().count(b"\n")
    assert state["sent"][name] == {"rows": rows, "closed": "completed"}
    found = in_process_of_its_own(name, tmp_path, state["run"])
    expected: dict[str, list[list[float]]] = {}
    for point in read_metrics(run):
        if point.value is not None and not point.name.startswith(SEARCH_PREFIX):  # known at the end alone
            expected.setdefault(point.name, []).append([point.step, pytest.approx(point.value, rel=1e-6)])
    assert {series: found.get(series) for series in expected} == expected


def in_process_of_its_own(name: str, folder: Path, run: str) -> Any:
    """Return what the package's reader finds; the packages keep state that other tests should not meet."""
    code = (
        f"import json, tracker_readers as r; from pathlib import Path; "
        f"print('points', json.dumps(r.TRACKERS[{name!r}].read(Path({str(folder)!r}), {run!r})))"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code], env={**environment(folder), "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.rpartition("points ")[2])


def test_a_tracker_may_compute_where_its_tester_has_computed_with_threads(tmp_path: Path) -> None:
    """OpenMP's threads are not in a fork, and a computation that waits for them would never end."""
    pytest.importorskip("torch")
    script = tmp_path / "computing.py"
    script.write_text(
        "import faulthandler\n"
        "import torch\n"
        "from evorun.testing import trackers\n"
        "def compute():\n"
        "    torch.softmax(torch.ones(1000, 1000), -1).sum()\n"
        "faulthandler.dump_traceback_later(60, exit=True)\n"
        "torch.set_num_threads(2)\n"
        "compute()\n"
        "trackers._in_fork(compute, 'completed')\n"
    )
    done = evorun(cwd=tmp_path, program=str(script))
    assert done.returncode == 0, done.stderr
