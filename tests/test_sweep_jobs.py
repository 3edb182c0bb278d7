"""The jobs of a sweep: known from the start, looked at without a trace, resumed without doing anything twice."""

import contextlib
import io
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from evorun.cli import invocation
from evorun.cli import status as status_verb
from evorun.cli.invocation import BegunSweep
from evorun.cli.local_launcher import LocalLauncher, _Running, share_machine
from evorun.cli.running import Foreseen
from evorun.cli.status_table import group_by_arm, list_notes, status_table, title_of
from evorun.cli.sweep_end import describe_end
from evorun.errors import RunDirectoryError
from evorun.runs.files import is_locked, take_lock
from evorun.runs.job_search import find_jobs
from evorun.runs.job_states import JobStatus, look_at
from evorun.runs.live import ProgressRecord, write_progress
from evorun.runs.sweeps import JobInSweep, is_own_sweep, new_sweep, read_sweep, write_sweep
from evorun_process import evorun_here, records, reopen, start
from journals import effects_in
from warm_process import forked_jobs

TINY = ("method=zero_shot", "task=arithmetic", "task.limit=2", "engine=simulated", "model.tool_role=native")
"""The model's file does not list its last key."""
SEEDS = "seed=0,1,2"
Tree = dict[Path, tuple[int, bytes]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep of three jobs."""
    folder = tmp_path_factory.mktemp("finished")
    done = evorun_here("-m", *TINY, SEEDS, "hydra.sweep.dir=sweep", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "sweep"


@pytest.fixture
def sweep(finished: Path, tmp_path: Path) -> Path:
    """A copy of it, whose recorded working folder is the test's own."""
    shutil.copytree(finished, tmp_path / "sweep")
    manifest = read_sweep(tmp_path / "sweep")
    write_sweep(tmp_path / "sweep", msgspec.structs.replace(manifest, working_folder=str(tmp_path)))
    return tmp_path / "sweep"


def jobs_of(sweep: Path) -> list[Path]:
    return [sweep / job["folder"] for job in json.loads((sweep / "sweep.json").read_text())["jobs"]]


def tree(folder: Path) -> Tree:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("sweep.json", "multirun.yaml")]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def set_status(run: Path, status: str, error: str | None = None) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "status": status, "error": error}))


def statuses(folder: Path, cwd: Path) -> list[dict[str, Any]]:
    done = evorun_here("status", folder, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    return [job for group in document["sweeps"] for job in group["jobs"]] + list(document["runs"])


# --- the manifest ---


def test_the_jobs_are_known_before_the_first_one_starts(tmp_path: Path) -> None:
    seen: list[Any] = []

    def begin(config: Any, folder: Path, *_: object, **__: object) -> str:
        manifest = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
        seen.append((manifest, folder.name, config["seed"], is_locked(tmp_path / "sweep" / ".lock")))
        return "completed"

    words = ("-m", *TINY, "seed=4,5", "hydra.sweep.dir=sweep")
    with (
        mock.patch("evorun.cli.running.carry_out", begin),
        mock.patch("evorun.cli.sweeper.foresee", return_value=Foreseen(None)),
    ):
        done = evorun_here(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    manifest = seen[0][0]
    assert manifest["command"] == ["evorun", *words]
    assert (manifest["launcher"], manifest["working_folder"]) == ("basic", str(tmp_path))
    assert [job["folder"] for job in manifest["jobs"]] == [folder for _, folder, *_ in seen]
    expected = [[*TINY, f"seed={seed}"] for seed in (4, 5)]
    assert [sorted(job["overrides"]) for job in manifest["jobs"]] == list(map(sorted, expected))
    assert [rest for *_, rest in (entry[:3] for entry in seen)] == [4, 5]
    assert [locked for *_, locked in seen] == [True, True]
    assert not is_locked(tmp_path / "sweep" / ".lock")


def test_jobs_are_added_to_ones_own_sweep_alone(sweep: Path) -> None:
    first = read_sweep(sweep)
    with (
        mock.patch("evorun.cli.running.carry_out", return_value="completed"),
        mock.patch("evorun.cli.sweeper.foresee", return_value=Foreseen(None)),
    ):
        done = evorun_here("-m", *TINY, "seed=2,3", "hydra.sweep.dir=sweep", cwd=sweep.parent)
        assert done.returncode == 0, done.stderr
        added = read_sweep(sweep)
        assert [job.overrides[-1] for job in added.jobs] == ["seed=0", "seed=1", "seed=2", "seed=3"]
        assert added.created == first.created
        assert is_own_sweep(added)
        planted = json.loads((sweep / "sweep.json").read_text())
        planted["jobs"][0]["overrides"] = ["engine=server"]
        (sweep / "sweep.json").write_text(json.dumps(planted))
        done = evorun_here("-m", *TINY, "seed=2,3", "hydra.sweep.dir=sweep", cwd=sweep.parent)
    assert [job.overrides[-1] for job in read_sweep(sweep).jobs] == ["seed=2", "seed=3"]
    assert "lists jobs of a sweep that you did not start" in done.stderr


@pytest.mark.parametrize("folder", ["../outside", "/etc", "", "a/../../b", "a\0b"])
def test_a_job_outside_the_sweeps_folder_is_refused(folder: str, tmp_path: Path) -> None:
    manifest = msgspec.to_builtins(new_sweep(["evorun"], "basic", [JobInSweep("job", ())]))
    manifest["jobs"][0]["folder"] = folder
    (tmp_path / "sweep.json").write_text(json.dumps(manifest))
    with pytest.raises(RunDirectoryError, match=r"sweep\.json is malformed: .*expected a folder below the sweep's"):
        read_sweep(tmp_path)


def test_an_error_that_all_jobs_share_is_said_once_and_nothing_starts(tmp_path: Path) -> None:
    words = ("task=mathbench", "task.data=nowhere", "engine=simulated", "method=zero_shot,best_of_n", "seed=0,1")
    done = evorun_here("-m", *words, "hydra.sweep.dir=sweep", cwd=tmp_path)
    [line] = done.stderr.splitlines()
    assert done.returncode == 1
    assert "nowhere" in line
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_shows_what_is_done_before_the_first_job(tmp_path: Path) -> None:
    words = ("task=mathbench", "task.data=nowhere", "engine=simulated", "method=zero_shot", "seed=0,1,2")
    with mock.patch("rich.console.Console.is_terminal", True):
        done = evorun_here("-m", *words, "hydra.sweep.dir=sweep", cwd=tmp_path)
    for step in ("composing the jobs", "checking the jobs and their data", "3/3"):
        assert step in done.stderr


# --- status ---


def test_the_state_of_each_job(sweep: Path) -> None:
    done, failed, stopped = jobs_of(sweep)
    set_status(failed, "failed", "no such\x1b[31m model\nand more")
    set_status(stopped, "interrupted")
    manifest = read_sweep(sweep)
    names = ("runs", "killed", "later", "locked", "loads", "made", "reports")
    more = [JobInSweep(name, (f"seed={name}",)) for name in names]
    write_sweep(sweep, msgspec.structs.replace(manifest, jobs=(*manifest.jobs, *more)))
    for name in ("runs", "killed", "loads", "reports"):
        shutil.copytree(done, sweep / name)
        set_status(sweep / name, "completed" if name == "reports" else "running")
        if name != "reports":
            (sweep / name / "results.json").unlink()
    (sweep / "loads" / "predictions.jsonl").unlink()
    (sweep / "reports" / "report.html").unlink()
    for name in ("locked", "made"):
        (sweep / name).mkdir()
    with contextlib.ExitStack() as stack:
        for name in ("", "runs", "locked", "loads", "reports"):
            stack.callback(os.close, take_lock(sweep / name / ".lock"))
        found = statuses(sweep, sweep.parent)
        shown = evorun_here("status", sweep, cwd=sweep.parent).stdout
    states = ["done", "failed", "interrupted", "running", "lost", "waiting", *["starting"] * 3, "reporting"]
    assert [job["state"] for job in found] == states
    results = json.loads((done / "results.json").read_text())
    metric, total = results["metrics"]["accuracy"], results["cost"]["total"]
    first = found[0]
    assert (first["score"], first["value"], first["ci95"]) == ("accuracy", metric["value"], metric["ci95"])
    assert (first["calls"], first["tokens"]) == (2, total["prompt_tokens"] + total["completion_tokens"])
    assert (first["done"], first["planned"], first["share"]) == (2, 2, 1.0)
    assert found[1]["error"] == "no such\x1b[31m model"
    assert (found[4]["done"], found[4]["planned"], found[4]["value"]) == (2, 2, None)
    assert "10 jobs: 1 done, 1 waiting, 1 interrupted, 1 lost, 1 failed, 1 reporting, 3 starting, 1 running" in shown
    assert "no report yet" not in shown
    assert "\x1b" not in shown


def test_a_table_has_the_seeds_of_a_method_together() -> None:
    names = [f"seed={seed} method={method}" for seed in (0, 1) for method in ("rsa", "gepa")]
    jobs = [JobStatus(folder=name, name=name, state="done") for name in (*names, "alone")]
    assert [job.name for job in group_by_arm(jobs)] == [names[0], names[2], names[1], names[3], "alone"]


def test_figures_have_the_digits_of_the_report() -> None:
    job = JobStatus(
        folder="run", name="run", state="done", score="length", value=1234.5678, ci95=(-0.012345, 99.96), tokens=97_396
    )
    table = status_table([job], "")
    assert [list(column.cells) for column in table.columns[2:]] == [
        ["1,235"],
        ["\u22120.012 to 100.0"],
        ["97.4\u00a0k"],
    ]
    full = msgspec.structs.replace(
        job, name="full", score="wishes_kept", scale_low=0.0, scale_high=1.0, value=1.0, ci95=None
    )
    table = status_table([full, msgspec.structs.replace(full, name="other", value=0.91783, ci95=(0.776, 1.0))], "")
    assert [column.header for column in table.columns[2:4]] == ["wishes kept", "95 % interval"]
    assert [list(column.cells) for column in table.columns[2:4]] == [["1.000", "0.918"], ["", "0.776 to 1.000"]]
    (note,) = list_notes([full])
    assert note == "all problems have the same score, so there is no interval: full"
    assert list_notes([job]) == []


def test_the_end_of_a_sweep_counts_what_is_not_done() -> None:
    done, failed = (JobStatus(folder=f"sweep/{state}", name=state, state=state) for state in ("done", "failed"))
    begun = BegunSweep(Path("sweep"), [], {})
    assert "1 of 2 jobs is not done; continue with: evorun resume sweep" in describe_end(begun, [done, failed])
    assert "2 of 2 jobs are not done; continue with: evorun resume sweep" in describe_end(begun, [failed, failed])
    unreported = JobStatus(folder="sweep/0", name="0", state="done", note="no report yet")
    jobs = [unreported, failed, failed]
    assert title_of("sweep", jobs).endswith("3 jobs: 1 done, 2 failed")
    line = "2 of 3 jobs are not done, 1 lacks only its report; continue with: evorun resume sweep"
    assert line in describe_end(begun, jobs)
    assert "1 lacks only its report; continue with: evorun resume sweep" in describe_end(begun, [done, unreported])


def test_a_job_that_cannot_be_seen_from_here_is_not_called_lost(sweep: Path) -> None:
    set_status(jobs_of(sweep)[0], "running")
    manifest = read_sweep(sweep)
    away = msgspec.structs.replace(manifest, host="another")
    write_sweep(sweep, away)
    first = statuses(sweep, sweep.parent)[0]
    assert (first["state"], first["note"]) == (
        "running",
        "started on another, where alone it can be seen whether it still runs",
    )
    (run := sweep.parent / "alone").mkdir()
    shutil.copy(jobs_of(sweep)[0] / "manifest.json", run)
    for host, state in ((None, "lost"), (platform.node(), "lost"), ("another", "running")):
        live = ProgressRecord(share=0.1, ended=0, problems=2, seconds=3.0, left_seconds=None, host=host)
        write_progress(run / ".progress.json", live)
        [seen] = find_jobs([run]).runs
        told = "its process is gone, as when killed or out of memory" if state == "lost" else first["note"]
        assert (seen.state, seen.note) == (state, told)


def test_what_a_stopped_job_has_cost_and_how_it_goes_on(sweep: Path) -> None:
    _, lost, stopped = jobs_of(sweep)
    price = {"prompt": 2.5, "cached": 1.25, "completion": 10.0, "date": "2026-11-01", "source": "a list"}
    for run, state in ((lost, "running"), (stopped, "interrupted")):
        set_status(run, state)
        manifest = json.loads((run / "manifest.json").read_text())
        (run / "manifest.json").write_text(json.dumps({**manifest, "prices": {"policy": price, "judge": None}}))
        cost = {
            "generate": {"calls": 3, "prompt_tokens": 400_000, "completion_tokens": 7, "cached_tokens": 100_000},
            "judge": {"calls": 5, "prompt_tokens": 50, "completion_tokens": 5},
            "gold": {"calls": 9, "prompt_tokens": 900, "completion_tokens": 9},
        }
        progress = {"share": 0.25, "ended": 0, "problems": 2, "seconds": 3, "left_seconds": None, "cost": cost}
        (run / ".progress.json").write_text(json.dumps(progress))
    dollars = Fraction(300_000 * 250 + 100_000 * 125 + 7 * 1000, 100 * 10**6)
    for job, state in zip(statuses(sweep, sweep.parent)[1:], ("lost", "interrupted"), strict=True):
        assert (job["state"], job["calls"], job["tokens"], job["price_unknown"]) == (state, 8, 400_062, False)
        assert job["price"] == pytest.approx(float(dollars))
    manifest = json.loads((stopped / "manifest.json").read_text())
    manifest["config"]["engine"] = {"name": "replay", "run": "original"}
    (stopped / "manifest.json").write_text(json.dumps(manifest))
    shown = evorun_here("status", sweep, cwd=sweep.parent).stdout
    assert shown.splitlines()[-1] == "continue with: evorun resume sweep"
    gone = "its process is gone, as when killed or out of memory"
    assert f"lost: seed=1: {gone}; calls and tokens are of up to 2 s before its end, and its journal has all" in shown
    assert re.search(r"seed=2 \(replay\) +interrupted", shown)
    alone = evorun_here("status", lost, stopped, cwd=sweep.parent).stdout
    assert alone.splitlines()[-2:] == [
        f"continue with: evorun resume {run.relative_to(sweep.parent)}" for run in (lost, stopped)
    ]


def test_a_run_tells_its_progress_while_it_goes_on(tmp_path: Path) -> None:
    from evorun.runs import progress

    found: list[JobStatus] = []
    written = progress.write_progress

    def look(file: Path, record: Any) -> None:
        written(file, record)
        assert record.host == platform.node()
        found.append(look_at(tmp_path / "run", "run"))

    with mock.patch.object(progress, "WRITE_INTERVAL_S", 0.01), mock.patch.object(progress, "write_progress", look):
        done = evorun_here(*TINY, "run.concurrency=1", "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {job.state for job in found} <= {"starting", "running", "reporting"}
    calls = [job.calls or 0 for job in found]
    assert calls == sorted(calls)
    last = found[-1]
    assert (last.state, last.done, last.planned, last.share, last.calls) == ("reporting", 2, 2, 0.99, 2)
    assert not (tmp_path / "run" / ".progress.json").exists()


def test_a_lost_run_of_all_problems_together_is_as_far_as_its_last_step(tmp_path: Path) -> None:
    (tmp_path / "prompts.json").write_text(json.dumps([{"id": name, "text": name} for name in "abc"]))
    words = ("method=fixed_prompts", "method.prompts=prompts.json", "method.eval_samples=0", *TINY[1:])
    done = evorun_here(*words, "hydra.run.dir=run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"status": "completed"', '"status": "running"'))
    (tmp_path / "run" / "predictions.jsonl").write_text("")  # its problems end together
    job = look_at(tmp_path / "run", "run")
    assert (job.state, job.done, job.planned, job.unit) == ("lost", 2, None, "steps")
    assert "run  lost     step 2\n" in evorun_here("status", "run", cwd=tmp_path).stdout


def test_folders_of_many_are_searched_and_links_are_not_followed(sweep: Path) -> None:
    outputs = sweep.parent / "outputs"
    shutil.copytree(jobs_of(sweep)[0], outputs / "zero_shot" / "arithmetic" / "now")
    (outputs / "again").symlink_to(outputs / "zero_shot")
    sweep.rename(outputs / "sweep")
    document = json.loads(evorun_here("status", "--json", cwd=sweep.parent).stdout)
    assert [job["folder"] for job in document["runs"]] == ["outputs/zero_shot/arithmetic/now"]
    assert [(group["folder"], len(group["jobs"])) for group in document["sweeps"]] == [("outputs/sweep", 3)]


def test_a_planted_folder_gains_nothing(sweep: Path) -> None:
    outside = sweep.parent / "outside"
    jobs = jobs_of(sweep)
    jobs[0].rename(outside)
    jobs[0].symlink_to(outside)
    (jobs[1] / "manifest.json").unlink()
    os.mkfifo(jobs[1] / "manifest.json")
    (jobs[1] / ".lock").unlink()
    os.mkfifo(jobs[1] / ".lock")
    set_status(jobs[2], "interrupted")
    for name in ("predictions.jsonl", "problems.jsonl", ".progress.json"):
        with (jobs[2] / name).open("ab") as file:
            file.truncate(1 << 40)
    named = sweep / "\x1b]0;mine\x07 \udc80"
    shutil.copytree(jobs[2], named, ignore=lambda *_: ["predictions.jsonl", "problems.jsonl", ".progress.json"])
    manifest = json.loads((sweep / "sweep.json").read_text())
    manifest["jobs"].append({"folder": "\x1b]0;mine\x07", "overrides": ["seed=\x1b[2J"]})
    (sweep / "sweep.json").write_text(json.dumps(manifest))
    before = sorted((str(path), path.lstat().st_mtime_ns) for path in sweep.parent.rglob("*"))
    found = statuses(sweep, sweep.parent)
    shown = evorun_here("status", sweep, outside, cwd=sweep.parent).stdout
    assert sorted((str(path), path.lstat().st_mtime_ns) for path in sweep.parent.rglob("*")) == before
    assert [job["state"] for job in found] == ["waiting", "waiting", "interrupted", "waiting"]
    assert found[0]["note"] == "a symbolic link, which is not followed"
    assert (found[2]["done"], found[2]["planned"]) == (None, None)
    assert "\x1b" not in shown
    alone = json.loads(evorun_here("status", named, "--json", cwd=sweep.parent).stdout)["runs"][0]
    assert alone["state"] == "interrupted"


def test_watching_ends_cleanly(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Sequence[Path]] = []
    look = status_verb.find_jobs
    monkeypatch.setattr(status_verb, "find_jobs", lambda folders: looks.append(folders) or look(folders))
    pauses: Iterator[Any] = iter([None, KeyboardInterrupt])

    def pause(_: float) -> None:
        if next(pauses):
            raise KeyboardInterrupt

    monkeypatch.setattr(status_verb.time, "sleep", pause)
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    done = evorun_here("status", sweep, "--watch", cwd=sweep.parent)
    assert (done.returncode, done.stderr, len(looks)) == (0, "", 2)
    monkeypatch.undo()
    refused = evorun_here("status", sweep, "--watch", cwd=sweep.parent)
    assert "--watch: expected a terminal" in refused.stderr


# --- resume ---


def test_a_resume_does_what_is_left_and_touches_nothing_else(sweep: Path, finished: Path) -> None:
    done, stopped, gone = jobs_of(sweep)
    (stopped / "predictions.jsonl").unlink()
    reopen(stopped)
    shutil.rmtree(gone)
    before = tree(done)
    resumed = evorun_here("resume", "sweep", "--trust", cwd=sweep.parent)
    assert resumed.returncode == 0, resumed.stderr
    assert tree(done) == before
    assert "1 of 3 jobs are done; 2 to go\n" in resumed.stdout
    assert resumed.stdout.count(": complete, accuracy") == 2
    (said,) = [line for line in resumed.stdout.splitlines() if "calls came from the journal, 0 are new" in line]
    assert said.startswith(f"sweep/{stopped.name}: ")
    for job, original in zip(jobs_of(sweep), jobs_of(finished), strict=True):
        assert records(job) == records(original)
    again = evorun_here("resume", "sweep", cwd=sweep.parent)
    assert again.stdout == "all 3 jobs are done; compare them: evorun report sweep\n"


def resumed_with(sweep: Path, *words: str) -> tuple[list[str], dict[str, list[str]]]:
    """Return what a resume from another folder would carry out: its words and its jobs' overrides."""
    shutil.rmtree(jobs_of(sweep)[2])
    with mock.patch("evorun.cli.launch.run_hydra", return_value=0) as carried_out:
        (sweep.parent / "elsewhere").mkdir()
        done = evorun_here("resume", "../sweep", *words, cwd=sweep.parent / "elsewhere")
    assert done.returncode == 0, done.stderr
    assert f"going on in {sweep.parent}, where the sweep was started" in done.stdout
    given, resumed = carried_out.call_args.args
    return list(given), dict(resumed)


def test_a_resume_may_take_another_launcher_and_engine_settings(sweep: Path) -> None:
    left = jobs_of(sweep)[2].name
    words, resumed = resumed_with(sweep, "hydra/launcher=local", "hydra.launcher.jobs=2", "engine.skill=0.5")
    kept = ["-m", *TINY, SEEDS]
    assert words == [*kept, "hydra/launcher=local", "hydra.launcher.jobs=2", "hydra.sweep.dir=sweep"]
    assert resumed == {left: [*TINY, "seed=2", "engine.skill=0.5"]}


def test_a_resume_may_change_nothing_that_decides_results(sweep: Path) -> None:
    done = evorun_here("resume", "sweep", "method.samples=3", cwd=sweep.parent)
    assert "method.samples: cannot change on a resume" in done.stderr


@pytest.mark.parametrize("place", ["sweep", pytest.param("job", marks=pytest.mark.nightly)])
def test_a_sweep_that_runs_is_not_resumed(sweep: Path, place: str) -> None:
    job = jobs_of(sweep)[0]
    set_status(job, "running")
    lock = take_lock((sweep if place == "sweep" else job) / ".lock")
    try:
        done = evorun_here("resume", "sweep", cwd=sweep.parent)
        again = evorun_here("-m", *TINY, SEEDS, "hydra.sweep.dir=sweep", cwd=sweep.parent)
    finally:
        os.close(lock)
    assert {"sweep": "is carrying out the sweep", "job": "a job still runs (seed=0)"}[place] in done.stderr
    assert again.returncode == 1
    assert {"sweep": "is carrying out the sweep", "job": "another evorun process is using"}[place] in again.stderr


def test_a_sweep_of_somebody_else_is_resumed_by_consent_alone(sweep: Path) -> None:
    shutil.rmtree(jobs_of(sweep)[2])
    planted = json.loads((sweep / "sweep.json").read_text())
    planted["jobs"][2]["overrides"][-1] = "engine.base_urls=[http://planted]"
    planted["earlier_commands"] = [["evorun", "engine.api_key_env=PLANTED"]]
    (sweep / "sweep.json").write_text(json.dumps(planted))
    with mock.patch("evorun.cli.launch.run_hydra", return_value=0) as carried_out:
        refused = evorun_here("resume", "sweep", cwd=sweep.parent)
        assert "expected a sweep that you started" in refused.stderr
        assert not carried_out.called
        agreed = evorun_here("resume", "sweep", "--trust", cwd=sweep.parent)
    assert "engine.base_urls=[http://planted]" in agreed.stdout
    assert "evorun engine.api_key_env=PLANTED" in agreed.stdout
    assert carried_out.called


def test_a_job_whose_journal_is_another_is_resumed_by_consent_alone(sweep: Path) -> None:
    stopped, other, _ = jobs_of(sweep)
    reopen(stopped)
    (stopped / "journal.sqlite").write_bytes((other / "journal.sqlite").read_bytes())
    with mock.patch("evorun.cli.launch.run_hydra", return_value=0) as carried_out:
        refused = evorun_here("resume", "sweep", cwd=sweep.parent)
    assert not carried_out.called
    assert "--trust" in refused.stderr


# --- side by side ---


def test_jobs_share_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7")
    one_each = share_machine(None)
    assert [share["CUDA_VISIBLE_DEVICES"] for share in one_each] == ["4", "5", "7"]
    assert {share["OMP_NUM_THREADS"] for share in one_each} == {"2"}
    assert [share["CUDA_VISIBLE_DEVICES"] for share in share_machine(2)] == ["4,7", "5"]
    assert [share["CUDA_VISIBLE_DEVICES"] for share in share_machine(4)] == ["4", "5", "7", "4"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert share_machine(None) == [{"OMP_NUM_THREADS": "1"}] * 8
    assert share_machine(3) == [{"OMP_NUM_THREADS": "2"}] * 3
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert share_machine(2) == [{}, {}]


LOCAL = ("hydra/launcher=local", "hydra.launcher.jobs=2")


def test_a_job_that_fails_beside_others_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reopened = evorun_here("-m", *TINY, "seed=0", "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert reopened.returncode == 0
    reopen(jobs_of(tmp_path / "sweep")[0])
    (jobs_of(tmp_path / "sweep")[0] / "journal.sqlite").unlink()
    with forked_jobs():
        done = evorun_here("-m", *TINY, "seed=0,1", *LOCAL, "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert done.returncode == 1
    [error] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert error.startswith("error: seed=0: sweep/")
    assert f"failed: {error.removeprefix('error: ')}" in done.stdout
    assert re.search(r"^seed=1: done, .*; [12] of 2 jobs ended$", done.stderr, re.MULTILINE)
    assert [job["state"] for job in statuses(tmp_path / "sweep", tmp_path)][1] == "done"
    begun = BegunSweep(tmp_path / "sweep", [], {})
    capsys.readouterr()
    this = invocation.Invocation(sweep=begun, said={"known": ["seed=0"]})
    with subprocess.Popen(["sleep", "100"]) as early, mock.patch.object(invocation, "current", this):
        early.terminate()  # before it has a handler
        said = io.BytesIO(b"warning: known\nwarning: new\n")
        LocalLauncher()._end(_Running(early, "seed=2", tmp_path / "sweep" / "2", said), ended := ["failed"])
    assert (ended, begun.errors) == (["failed", "interrupted"], {})
    assert this.said == {"known": ["seed=0", "seed=2"], "new": ["seed=2"]}
    assert capsys.readouterr().err == "warning: seed=2: new\n"


SLOW_ANSWERS = "engine.seconds_per_token=0.0005"


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(("kills", "seeds"), [(3, "0,1,2,3"), (1, "0,1")], ids=["often", "once"])
def test_a_launcher_that_is_killed_does_nothing_twice(kills: int, seeds: str, tmp_path: Path) -> None:
    """Jobs in processes of their own, under a launcher that SIGKILL ends; then those of an undisturbed sweep."""
    words = ("-m", *TINY, f"seed={seeds}", SLOW_ANSWERS)
    sweep, counts = tmp_path / "killed", dict[Path, int]()
    command: tuple[str, ...] = (*words, *LOCAL, "hydra.sweep.dir=killed")
    for kill in range(kills):
        process = start(*command, cwd=tmp_path)
        while process.poll() is None and len(list(sweep.glob("*/results.json"))) < kill + 1:
            time.sleep(0.05)
        process.kill()
        process.wait(timeout=120)
        while any(is_locked(lock) for lock in sweep.glob("*/.lock")):
            time.sleep(0.05)
        assert {journal: effects_in(journal) for journal in counts} == counts
        counts = {
            run.with_name("journal.sqlite"): effects_in(run.with_name("journal.sqlite"))
            for run in sweep.glob("*/results.json")
        }
        command = ("resume", "killed")
    resumed = evorun_here("resume", "killed", "hydra/launcher=basic", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    undisturbed = evorun_here(*words, "hydra.sweep.dir=calm", cwd=tmp_path)
    assert undisturbed.returncode == 0, undisturbed.stderr
    assert len(jobs_of(sweep)) == len(seeds.split(","))
    for job in jobs_of(sweep):
        calm = tmp_path / "calm" / job.name
        assert records(job) == records(calm)
        assert effects_in(job / "journal.sqlite") == effects_in(calm / "journal.sqlite")


@pytest.mark.slow
def test_an_interrupt_of_the_launcher_interrupts_its_jobs(tmp_path: Path) -> None:
    words = ["-m", *TINY, "seed=0,1,2", "engine.seconds_per_token=60", *LOCAL, "hydra.sweep.dir=sweep"]
    with (tmp_path / "said").open("w") as said:
        process = start(*words, cwd=tmp_path, stdout=said)
    while process.poll() is None and len(list(tmp_path.glob("sweep/*/manifest.json"))) < 2:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=400) == 130, (tmp_path / "said").read_text()
    assert [is_locked(lock) for lock in tmp_path.glob("sweep/*/.lock")] == [False, False]
    states = [job["state"] for job in statuses(tmp_path / "sweep", tmp_path)]
    assert states == ["interrupted", "interrupted", "waiting"], (tmp_path / "said").read_text()
