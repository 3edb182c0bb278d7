"""The process beside a run: what it sends and when, and that no tracker stops or delays a run beyond its time."""

import json
import logging
import time
from pathlib import Path

import pytest

from evorun.errors import ConfigError
from evorun.runner.settings import _trackers
from evorun.runs.directory import config_digest
from evorun.runs.reading import read_metrics
from evorun.tracking import choices
from evorun.tracking.base import TrackerSettings
from evorun.tracking.points import Outbox
from evorun.tracking.process import followed
from run_fixture import RunSpec, write_run

PLUGIN = """
import time
from evorun.tracking.base import TrackerSettings

class Kept:
    Config, packages, variables = TrackerSettings, (), ("KEPT_*",)

    def __init__(self, config):
        pass

    def open(self, run, sent):
        self.file = (run.folder / "kept.txt").open("a")
        return sent

    def log(self, row):
        print(row.source, row.step, *row.values, file=self.file)

    def flush(self):
        self.file.flush()

    def close(self, status, summary):
        print(status, sorted(summary), file=self.file)
        self.file.close()

class Hanging(Kept):
    def log(self, row):
        while True:  # holds the interpreter as a package may
            pass

class Dead(Kept):
    def open(self, run, sent):
        raise ConnectionError("no route")
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with the trackers above, for the follower and for this process."""
    info = tmp_path / "site" / "kept-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kept\nVersion: 1.0\n")
    points = "".join(f"{name.lower()} = kept_trackers:{name}\n" for name in ("Kept", "Hanging", "Dead"))
    (info / "entry_points.txt").write_text(f"[evorun.trackers]\n{points}")
    (tmp_path / "site" / "kept_trackers.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=":")
    choices.plugin_trackers.cache_clear()
    yield
    choices.plugin_trackers.cache_clear()


def unfinished(folder: Path) -> tuple[Path, dict[str, list[str]]]:
    """Return a run of two problems without steps yet, and the lines that it will write."""
    run = write_run(folder / "run", RunSpec(problems=2, candidates=6, generations=2, duels=4))
    lines = {}
    for name in ("steps", "predictions"):
        lines[name] = (run / f"{name}.jsonl").read_text().splitlines(keepends=True)
        (run / f"{name}.jsonl").write_text("")
    set_status(run, "running")
    return run, lines


def set_status(run: Path, status: str) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "status": status}))


def append(run: Path, name: str, *lines: str) -> None:
    with (run / f"{name}.jsonl").open("a") as file:
        file.writelines(lines)


def test_a_step_is_sent_once_all_problems_have_reached_it(tmp_path: Path) -> None:
    run, lines = unfinished(tmp_path)
    first, second = lines["steps"][:3], lines["steps"][3:]  # generations 0, 1 and 2 of each problem
    outbox = Outbox(run)
    append(run, "steps", *first)
    outbox.collect()
    assert outbox.rows(0) == []  # the other problem has not begun
    append(run, "steps", second[0])
    outbox.collect()
    assert [(row.source, row.step) for row in outbox.rows(0)] == [("steps", 0)]
    append(run, "predictions", *lines["predictions"])  # the second problem ends early
    outbox.collect()
    assert [row.step for row in outbox.rows(0)] == [0, 1, 2]


def test_rows_are_those_of_metrics_and_training(tmp_path: Path) -> None:
    run, lines = unfinished(tmp_path)
    append(run, "steps", *lines["steps"][:1], *lines["steps"][3:4])
    training = [{"step": step, "calls": 8 * step, "tokens": 9, "figures": {"loss": 1 / step}} for step in (1, 2)]
    append(run, "training", *(json.dumps(record) + "\n" for record in training))
    Outbox(run).collect()
    append(run, "steps", *lines["steps"][1:3], *lines["steps"][4:])
    append(run, "predictions", *lines["predictions"])
    outbox = Outbox(run)  # of another process, which continues the rows of the first
    outbox.collect()
    rows = outbox.rows(0)
    assert [row.row for row in rows] == list(range(len(rows)))
    sent = {(name, row.step): value for row in rows for name, value in row.values.items()}
    assert len(sent) == sum(len(row.values) for row in rows)
    expected = {(point.name, point.step): point.value for point in read_metrics(run) if point.value is not None}
    assert {key: sent[key] for key in expected} == pytest.approx(expected)
    assert [sent["training/loss", step] for step in (1, 2)] == [1, 1 / 2]
    assert sent["training/calls", 2] == 16
    assert {"calls_per_problem", "tokens_per_problem"} <= {name for name, _ in sent}


@pytest.mark.usefixtures("plugins")
def test_a_killed_line_is_written_again(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=2, candidates=4, generations=2, duels=2))
    Outbox(run).collect()
    points = run / "trackers" / "points.jsonl"
    whole = points.read_bytes()
    points.write_bytes(whole[:-10])
    outbox = Outbox(run)
    outbox.collect()
    assert [(row.row, row.step) for row in outbox.rows(0)] == [(0, 0), (1, 1), (2, 2)]
    assert points.read_bytes().count(b"\n") == whole.count(b"\n")


@pytest.mark.nightly
@pytest.mark.usefixtures("plugins")
def test_dead_and_hanging_trackers_delay_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=2, candidates=4, generations=2, duels=2))
    monkeypatch.setattr("evorun.tracking.process._SPARE_S", 30.0)
    settings = TrackerSettings(wait_s=0.5)
    started = time.monotonic()
    trackers = {"kept": TrackerSettings(wait_s=30), "dead": settings, "hanging": settings}
    with caplog.at_level(logging.WARNING, "evorun"), followed(run, trackers):
        pass
    assert time.monotonic() - started < 120  # a hung one would hang forever
    warned = [record.getMessage() for record in caplog.records]
    assert sum("ConnectionError: no route" in line and "the run goes on" in line for line in warned) == 1
    assert sum("tracker=hanging" in line for line in warned) == 1
    assert (run / "trackers" / "kept.txt").read_text().splitlines()[-1].startswith("completed ['accuracy'")
    state = json.loads((run / "trackers" / "state.json").read_text())
    assert state["sent"].keys() == {"kept"}
    assert state["sent"]["kept"] == {"rows": 3, "closed": "completed"}


@pytest.mark.nightly
@pytest.mark.usefixtures("plugins")
def test_a_tracker_that_has_everything_is_not_opened_again(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", RunSpec(problems=2, candidates=4, generations=2, duels=2))
    for _ in range(2):
        with followed(run, {"kept": TrackerSettings(wait_s=30)}):
            pass
    lines = (run / "trackers" / "kept.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["steps", "steps", "steps", "completed"]


def test_settings_are_checked_and_belong_to_the_execution() -> None:
    with pytest.raises(ConfigError, match=r"^tracker\.wandb\.mode: expected one of offline, online"):
        _trackers({"wandb": {"mode": "shared"}})
    with pytest.raises(
        ConfigError, match=r"^tracker\.wandb\.projct: unknown key; did you mean tracker\.wandb\.project"
    ):
        _trackers({"wandb": {"projct": "x"}})
    with pytest.raises(ConfigError, match=r"^tracker=wand: unknown tracker"):
        _trackers({"wand": {}})
    with pytest.raises(ConfigError, match="expected a URI without user and password") as caught:
        _trackers({"mlflow": {"uri": "https://me:secret@example.org"}})
    assert "secret" not in str(caught.value)
    assert config_digest({"seed": 0}) == config_digest({"seed": 0, "tracker": {"wandb": {"project": "x"}}})
