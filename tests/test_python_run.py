"""Runs started from Python: composed as on the command line, in a process of their own, the caller left as it was."""

import asyncio
import gc
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import evorun
from building import simulated_run
from evorun.api import display, process
from evorun.api.overrides import make_overrides
from evorun.errors import ConfigError, EvorunError, JournalError
from evorun_process import environment
from journals import effects_in

pytestmark = pytest.mark.usefixtures("_forked_children")

ZERO: Mapping[str, Any] = {"method": "zero_shot", "task": "mathbench", "engine": "simulated"}
SMALL: Mapping[str, Any] = {"task.source": "sample", "task.limit": 3}
WORDS = tuple(f"{key}={value}" for key, value in {**ZERO, **SMALL}.items())
SLOW = ("engine.seconds_per_token=0.01", "run.concurrency=1")
"""A second for each of three problems, one after the other."""


def state() -> dict[str, Any]:
    """Return what a caller would notice of a run in its own process."""
    return {
        "environment": dict(os.environ),
        "folder": Path.cwd(),
        "arguments": list(sys.argv),
        "signals": [signal.getsignal(number) for number in sorted(signal.valid_signals()) if number != signal.SIGCHLD],
        "loggers": [(name, list(logging.getLogger(name).handlers)) for name in (None, "evorun", "hydra")],
        "levels": [logging.getLogger(name).level for name in (None, "evorun", "hydra")],
        "streams": (sys.stdout, sys.stderr, sys.stdin),
        "collector": gc.get_threshold(),
        "hydra": (GlobalHydra.instance(), GlobalHydra.instance().hydra),
        "choices": sorted(ConfigStore.instance().repo),
        "path": list(sys.path),
        "threads": {thread.name for thread in threading.enumerate()},
    }


def test_a_run_beside_a_loop_leaves_the_caller_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run_in_a_cell() -> evorun.Run:
        before = state()
        run = evorun.run(*WORDS, seed=3)
        assert state() == before
        assert asyncio.get_running_loop().is_running()
        return run

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["notebook", "--method=nonsense", "seed=7"])
    run = asyncio.run(run_in_a_cell())
    assert run.path.parts[:3] == ("outputs", "zero_shot", "mathbench")
    alone = simulated_run(tmp_path / "alone", *WORDS, "seed=3")
    for name in ("predictions.jsonl", "candidates.jsonl", "metrics.jsonl"):
        assert (run.path / name).read_bytes() == (alone.path / name).read_bytes()
    assert run.manifest.config_digest == json.loads((alone.path / "manifest.json").read_text())["config_digest"]
    assert run.manifest.command == ["evorun", *WORDS, "seed=3"]
    assert (run.path / "report.html").exists()
    printed = capsys.readouterr()
    assert printed.out.startswith("evorun zero_shot on mathbench; model simulated")
    assert "3/3 done" in printed.out
    assert printed.err == ""


def test_a_wrong_setting_is_an_exception_and_begins_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"^method\.tempersture: [^\n]*temperature[^\n]*$"):
        evorun.run(ZERO, SMALL, {"method.tempersture": 1}, quiet=True)
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr() == ("", "")
    for wrong in ("--multirun", "method", 5):
        with pytest.raises(ConfigError, match="expected KEY=VALUE"):
            evorun.run(wrong)  # type: ignore[arg-type]


def test_a_failed_run_raises_its_own_error_and_keeps_its_records(tmp_path: Path) -> None:
    recorded = simulated_run(tmp_path / "recorded", *WORDS)
    replay = {**ZERO, **SMALL, "engine": "replay", "engine.run": recorded.path, "seed": 1}
    with pytest.raises(JournalError, match=r"^[^\n]+$"):
        evorun.run(replay, path=tmp_path / "failed", quiet=True)
    failed = evorun.load(tmp_path / "failed")
    assert isinstance(failed, evorun.Run)
    assert failed.status == "failed"
    assert len(failed.problems()) == 3


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


@pytest.mark.nightly
def test_a_run_ends_with_its_caller_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    code = f"import evorun; evorun.run(*{(*WORDS, *SLOW)!r}, path={str(folder)!r})"
    caller = subprocess.Popen([sys.executable, "-c", code], env=environment(), stdout=subprocess.DEVNULL)
    wait_for(lambda: effects_in(folder / "journal.sqlite") > 0)
    caller.kill()
    caller.wait()
    wait_for(lambda: json.loads((folder / "manifest.json").read_text())["status"] == "interrupted")
    run = evorun.resume(folder, quiet=True)
    assert isinstance(run, evorun.Run)
    assert (run.status, run.manifest.resumes, len(run.calls())) == ("completed", 1, 3)
    alone = simulated_run(tmp_path / "alone", *WORDS)
    assert (folder / "predictions.jsonl").read_bytes() == (alone.path / "predictions.jsonl").read_bytes()


@pytest.mark.nightly
def test_an_interrupted_run_says_how_it_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def interrupt() -> None:
        wait_for(lambda: effects_in(folder / "journal.sqlite") > 0)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt, match=r"evorun\.resume\('.*run'\)"):
        evorun.run(*WORDS, *SLOW, path=folder, quiet=True)
    thread.join()
    assert json.loads((folder / "manifest.json").read_text())["status"] == "interrupted"
    run = evorun.resume(folder, quiet=True)
    assert isinstance(run, evorun.Run)
    assert (run.status, run.manifest.resumes, len(run.calls())) == ("completed", 1, 3)
    alone = simulated_run(tmp_path / "alone", *WORDS)
    assert (folder / "predictions.jsonl").read_bytes() == (alone.path / "predictions.jsonl").read_bytes()


def test_a_sweep_has_all_jobs_and_raises_for_one_that_fails_at_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    with pytest.raises(ConfigError, match=r"1 of its jobs failed, .*task\.limit: expected .*evorun\.load\("):
        evorun.sweep(ZERO, SMALL, {"task.limit": [0, 2]}, seed=2, path=folder, quiet=True)
    runs = evorun.load(folder)
    assert isinstance(runs, evorun.Runs)
    assert [(run.seed, run.status, len(run.problems())) for run in runs] == [(2, "completed", 2)]


def test_a_sweep_returns_the_runs_of_its_own_jobs(tmp_path: Path) -> None:
    for seeds in ([1], [2, 3], [1]):
        runs = evorun.sweep(ZERO, SMALL, {"task.limit": 1}, seed=seeds, path=tmp_path / "sweep", quiet=True)
        assert [run.seed for run in runs] == seeds
        assert list(runs.runs()["run"]) == [run.path.name for run in runs]
    assert len(evorun.load(tmp_path / "sweep")) == 3


@pytest.mark.nightly
@pytest.mark.parametrize("launcher", ["local", "basic"])
def test_a_sweep_over_other_data_is_refused_by_the_reason_alone(launcher: str, tmp_path: Path) -> None:
    rows, folder = tmp_path / "rows.jsonl", tmp_path / "sweep"
    given = {**ZERO, "task": "rows", "task.data": rows, "hydra/launcher": launcher}
    rows.write_text('{"question": "2 + 2", "answer": "4"}\n')
    evorun.sweep(given, seed=[1], path=folder, quiet=True)
    rows.write_text('{"question": "2 + 3", "answer": "5"}\n')
    with pytest.raises(ConfigError, match=r"1 of its jobs failed") as caught:
        evorun.sweep(given, seed=[1], path=folder, quiet=True)
    assert "belongs to another configuration (data.digest" in str(caught.value)
    assert "continue" not in str(caught.value)


def test_a_process_that_says_nothing_of_its_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(EvorunError, match="ended with exit code 1"):
        process.carry_out(["method=zero_shot"], quiet=True)


# --- settings ---

TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.from_regex(r"[a-z_]{1,6}", fullmatch=True), inner),
    max_leaves=6,
)


@settings(max_examples=30)
@given(VALUES)
def test_values_are_read_back_as_they_are(value: Any) -> None:
    assume("${" not in repr(value))
    (word,) = make_overrides([{"method.value": value}], {})
    (override,) = OverridesParser.create().parse_overrides([word])
    assert not override.is_sweep_override()
    read = as_plain(override.value())
    assert read == value
    assert type(read) is type(value)


def as_plain(value: Any) -> Any:
    if isinstance(value, list):
        return [as_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(as_plain(key)): as_plain(one) for key, one in value.items()}
    return value.text if hasattr(value, "text") else value


def test_lists_are_swept_over_in_a_sweep_only() -> None:
    given: list[Any] = [{"seed": range(3), "method": ["a", "b, c"]}]
    assert make_overrides(given, {}, swept=True) == ["seed=0,1,2", "method=a,'b, c'"]
    assert make_overrides(given, {}) == ["seed=[0,1,2]", "method=[a,'b, c']"]
    with pytest.raises(ConfigError, match="seed: expected at least one value"):
        make_overrides([], {"seed": []}, swept=True)
    with pytest.raises(ConfigError, match="seed: expected a text, a number"):
        make_overrides([], {"seed": object()})


def test_code_of_ones_own_is_asked_for_as_a_package() -> None:
    class Mine:
        pass

    expected = "expected the name of an installed one"
    advice = r"; make a package of your own {0}, and give its name: evorun new {0} NAME, then pip install -e \./NAME$"
    given = {"method": Mine, "task": Mine(), "method.reward_source": print}
    for (key, value), kind in zip(given.items(), ("method", "task", "reward"), strict=True):
        with pytest.raises(ConfigError, match=f"^{key}: {expected}, got [^;]*{advice.format(kind)}"):
            make_overrides([{key: value}], {})
        with pytest.raises(ConfigError, match="got "):
            make_overrides([{key: [value]}], {}, swept=True)
    for kind in ("method", "task"):
        with pytest.raises(ConfigError, match=f"^{kind}=mine:Mine: {expected}{advice.format(kind)}"):
            evorun.run({**ZERO, kind: "mine:Mine"}, quiet=True)


# --- display ---


def test_a_notebook_shows_progress_in_one_place_and_escapes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, str]] = []
    handle = types.SimpleNamespace(update=lambda table: shown.append(("update", table)))
    module: Any = types.ModuleType("IPython.display")
    module.HTML = str

    def show(table: str, display_id: bool) -> Any:
        assert display_id
        shown.append(("display", table))
        return handle

    module.display = show
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr("evorun.api.display.Terminal", lambda: types.SimpleNamespace(is_jupyter=True))
    with display.open_display(quiet=False) as update:
        update({"evorun": "<b>title</b>", "done": "1 %"})
        update({"evorun": "<b>title</b>", "done": "2 %"})
    assert [kind for kind, _ in shown] == ["display", "update"]
    assert all("&lt;b&gt;title" in table and "<b>" not in table for _, table in shown)
