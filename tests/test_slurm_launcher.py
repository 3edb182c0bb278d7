"""The SLURM launcher with stand-ins for SLURM's programs; tests/test_slurm.py has the real ones."""

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from evorun.cli import slurm_job, slurm_launcher
from evorun.cli.given_job import GivenJob
from evorun.runs.files import take_lock
from evorun.runs.slurm import RecentStates, find_cluster, query_states
from evorun.runs.sweeps import job_statuses, read_sweep
from evorun_process import DRY_RUN, SMALL, evorun_here

SWEEP = ("-m", *DRY_RUN, *SMALL, "seed=0,1,2", "hydra/launcher=slurm", "hydra.sweep.dir=sweep")
SUBMIT = (*SWEEP, "hydra.launcher.detach=true")

Programs = Callable[..., None]


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Make the only programs of SLURM on PATH those that are given: by name, the lines of a shell script."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    for name in ("sbatch", "squeue", "sacct", "scontrol"):
        (folder / name).write_text("#!/bin/sh\necho 'no SLURM here' >&2; exit 1\n")

    def write(**scripts: str) -> None:
        find_cluster.cache_clear()
        for name, lines in scripts.items():
            (folder / name).write_text(f"#!/bin/sh\n{lines}\n")
            (folder / name).chmod(0o755)

    return write


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def submitted(programs: Programs, work: Path) -> Path:
    """A sweep of three jobs with the ids 12_0, 12_1 and 12_2, of which none has begun."""
    programs(sbatch="echo 12")
    done = evorun_here(*SUBMIT, cwd=work)
    assert done.returncode == 0, done.stderr
    return work / "sweep"


def states_of(sweep: Path) -> list[tuple[str, str | None, str | None]]:
    done = evorun_here("status", sweep, "--json", cwd=sweep.parent)
    jobs = json.loads(done.stdout)["sweeps"][0]["jobs"]
    return [(job["state"], job["scheduler_state"], job["note"]) for job in jobs]


def begin(sweep: Path, job: int, status: str = "running") -> Path:
    folder = sweep / json.loads((sweep / "sweep.json").read_text())["jobs"][job]["folder"]
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps({"status": status}))
    return folder


def test_what_sbatch_is_given(programs: Programs, work: Path) -> None:
    programs(sbatch=f'printf "%s\\n" "$@" >{work}/given; cp "$(eval echo \\${{$#}})" {work}/script; echo "12;cluster"')
    settings = (
        *("partition=gpu", "account=lab", "qos=high", "timeout_min=90", "cpus_per_task=4", "gpus_per_node=null"),
        "nodes=2",
        *("gres='gpu:a100:2'", "mem_gb=null", "array_parallelism=2", "signal_delay_s=60", "name=mine"),
        *("additional_parameters={constraint: a100, exclusive: true}", "setup=[module load cuda]"),
    )
    done = evorun_here(*SUBMIT, *(f"hydra.launcher.{one}" for one in settings), cwd=work)
    assert done.returncode == 0, done.stderr
    assert "submitted 3 jobs to SLURM: array 12\n" in done.stderr
    *options, script = (work / "given").read_text().splitlines()
    files = work / "sweep" / ".slurm"
    assert script == str(files / "1" / "batch.sh")
    assert sorted(options) == sorted(
        [
            *("--parsable", "--job-name=mine", "--array=0-2%2", "--nodes=2", "--ntasks-per-node=1", "--partition=gpu"),
            *("--account=lab", "--qos=high", "--time=90", "--cpus-per-task=4", "--gres=gpu:a100:2", "--requeue"),
            *("--signal=B:USR1@60", "--open-mode=append", "--constraint=a100", "--exclusive"),
            f"--output={files}/%A_%a.log",
        ]
    )
    words = [*SUBMIT, *(f"hydra.launcher.{one}" for one in settings)]
    plan = evorun_here("plan", *(word for word in words if not word.startswith("hydra.sweep")), cwd=work).stdout
    [planned] = [
        line.partition(": sbatch ")[2] for line in plan.splitlines() if line.startswith("SLURM: 3 jobs as one ")
    ]
    assert shlex.split(planned.replace("SWEEP_DIR", str(work / "sweep"))) == [*options, script]
    shebang, setup, command = (work / "script").read_text().splitlines()
    assert (shebang, setup) == ("#!/bin/bash", "module load cuda")
    file = f'{files}/1/"$SLURM_ARRAY_TASK_ID".json'
    assert command == f"exec {shlex.quote(sys.executable)} -m evorun.cli.slurm_job {file} 20"
    given = [json.loads((files / "1" / f"{index}.json").read_text()) for index in range(3)]
    assert [one["config"]["seed"] for one in given] == [0, 1, 2]
    manifest = json.loads((work / "sweep" / "sweep.json").read_text())
    assert [Path(one["folder"]) for one in given] == [work / "sweep" / job["folder"] for job in manifest["jobs"]]
    assert [job["scheduler_id"] for job in manifest["jobs"]] == ["12_0", "12_1", "12_2"]


@pytest.mark.nightly
def test_faults_of_the_settings_are_said_at_the_submission(programs: Programs, work: Path) -> None:
    programs(sbatch="echo 12")
    done = evorun_here(*SUBMIT, "budget.calls_per_problem=12,99", "method.recent_share=1,2", cwd=work)
    assert done.returncode == 0, done.stderr  # this machine only submits: its faults stop no job
    refused, ends, submitted = done.stderr.splitlines()
    arms = "; ".join(f"budget.calls_per_problem={calls} method.recent_share=2" for calls in (12, 99))
    assert refused.startswith(f"warning: a job of this sweep may not run ({arms}): method.recent_share: expected ")
    never = "method=duel_evolve may never leave generation 0, which takes up to 12 calls"
    assert ends.startswith(f"warning: budget.calls_per_problem=12 method.recent_share=1: {never}")
    assert submitted == "submitted 12 jobs to SLURM: array 12"


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("timeout_min=soon", "hydra.launcher.timeout_min: expected int, got 'soon'"),
        ("timeout_min=0", "hydra.launcher.timeout_min: expected a number >= 1, got 0"),
        ("gpus_per_node=a100", "hydra.launcher.gpus_per_node: expected int | None, got 'a100'"),
        ("+max_num_timeout=3", "hydra.launcher.max_num_timeout: unknown key; "),
        ("detach=maybe", "hydra.launcher.detach: expected bool, got 'maybe'"),
    ],
)
def test_a_wrong_setting_is_named(programs: Programs, work: Path, setting: str, expected: str) -> None:
    programs(sbatch="echo 12")
    plus = "+" if setting.startswith("+") else ""
    done = evorun_here(*SWEEP, f"{plus}hydra.launcher.{setting.lstrip('+')}", cwd=work)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(f"error: {expected}")
    assert not list(work.iterdir())


def test_a_machine_without_slurm_is_told_so(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(work))
    [line] = evorun_here(*SWEEP, cwd=work).stderr.splitlines()
    assert "expected a machine that submits SLURM jobs, found no sbatch on PATH" in line
    assert not list(work.iterdir())


def test_a_refusal_of_sbatch_is_one_line_and_leaves_nothing(programs: Programs, work: Path) -> None:
    said = ("sbatch: error: invalid partition specified: none", "sbatch: error: Batch job submission failed")
    programs(sbatch="\n".join([*(f"echo '{line}' >&2" for line in said), "exit 1"]))
    done = evorun_here(*SWEEP, cwd=work)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.endswith("sbatch said: invalid partition specified: none; Batch job submission failed")
    assert not list(work.iterdir())


# --- status ---


def test_the_states_of_a_queue_and_of_accounts(programs: Programs) -> None:
    programs(
        squeue="echo '12_0|PENDING|Priority'; echo '12_1|RUNNING|None'; echo '99_0|RUNNING|None'",
        sacct="echo '12_2|CANCELLED by 0'",
    )
    expected = {"12_0": "PENDING (Priority)", "12_1": "RUNNING", "12_2": "CANCELLED by 0"}
    assert query_states(["12_0", "12_1", "12_2", "12_3", "--all"]) == expected
    programs(squeue="echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", sacct="exit 1")
    assert query_states(["12_0"]) == {}
    programs(squeue="echo 'squeue: error: Unable to contact slurm controller' >&2; exit 1")
    assert query_states(["12_0"]) is None


def test_a_page_that_looks_every_second_asks_slurm_every_ten(programs: Programs, submitted: Path) -> None:
    asked = submitted.parent / "asked"
    programs(squeue=f"echo x >>{asked}; echo '12_0|RUNNING|None'; echo '12_1|PENDING|Priority'", sacct="exit 1")
    now = [0.0]
    states = RecentStates(lambda: now[0])
    sweep = read_sweep(submitted)
    seen = []
    for second in range(31):
        now[0] = float(second)
        seen.append([job.scheduler_state for job in job_statuses(submitted, sweep, ask=states.query)])
        if second == 4:
            programs(squeue=f"echo x >>{asked}; echo '12_0|RUNNING|None'; echo '12_1|RUNNING|None'")
    assert asked.read_text().count("x") == 4  # at 0, 10, 20 and 30 seconds
    assert seen[:10] == [["RUNNING", "PENDING (Priority)", None]] * 10
    assert seen[10:] == [["RUNNING", "RUNNING", None]] * 21
    assert states.query(["12_1"]) == {"12_1": "RUNNING"}
    assert asked.read_text().count("x") == 4  # known from the answer about all
    states.query(["12_1", "13"])
    assert asked.read_text().count("x") == 5
    programs(squeue=f"echo x >>{asked}; exit 1")
    now[0] = 45.0
    assert [states.query(["12_1"]) for _ in range(3)] == [None] * 3  # nor is a controller that is down asked in a row
    assert asked.read_text().count("x") == 6


def test_a_job_is_what_slurm_makes_of_it(programs: Programs, submitted: Path) -> None:
    programs(squeue="echo '12_0|PENDING|Resources'; echo '12_1|RUNNING|None'; echo '12_2|CANCELLED|None'")
    begin(submitted, 0, "interrupted")
    assert states_of(submitted) == [
        ("waiting", "PENDING (Resources)", None),
        ("starting", "RUNNING", None),
        ("lost", "CANCELLED", "SLURM's job 12_2 is CANCELLED"),
    ]
    begin(submitted, 1)  # by a process on another machine, whose lock is not seen here
    assert states_of(submitted)[1] == ("running", "RUNNING", None)


def test_a_job_killed_without_a_word_is_lost(programs: Programs, submitted: Path) -> None:
    programs(squeue="echo '12_1|OUT_OF_MEMORY|OutOfMemory'; echo '12_2|NODE_FAIL|None'")
    (submitted / ".slurm" / "12_1.log").write_text("begun\nerror: no such model\n\n")
    begin(submitted, 0)
    begin(submitted, 1)
    locked = take_lock(begin(submitted, 2) / ".lock")
    try:
        found = states_of(submitted)
    finally:
        os.close(locked)
    log = "the last line of .slurm/12_1.log: error: no such model"
    assert found == [
        ("lost", None, "SLURM's job 12_0 is no longer known"),
        ("lost", "OUT_OF_MEMORY (OutOfMemory)", f"SLURM's job 12_1 is OUT_OF_MEMORY (OutOfMemory); {log}"),
        ("starting", "NODE_FAIL", None),
    ]


def test_where_no_slurm_answers_a_job_may_run(programs: Programs, submitted: Path) -> None:
    programs(squeue="exit 1")
    begin(submitted, 0)
    assert states_of(submitted)[:2] == [
        ("running", None, "a job of SLURM, which may run elsewhere: squeue -j 12_0"),
        ("waiting", None, None),
    ]


@pytest.mark.nightly
def test_the_jobs_of_another_cluster_are_not_asked_for_here(programs: Programs, work: Path) -> None:
    """Its SLURM has other jobs of the same ids."""
    programs(sbatch="echo 12", scontrol="echo 'Configuration data'; echo 'ClusterName             = alpha'")
    assert evorun_here(*SUBMIT, cwd=work).returncode == 0
    sweep, asked = work / "sweep", work / "asked"
    assert {job["cluster"] for job in json.loads((sweep / "sweep.json").read_text())["jobs"]} == {"alpha"}
    begun = begin(sweep, 0)
    squeue = f"touch {asked}; echo '12_0|CANCELLED|None'; echo '12_1|RUNNING|None'; echo '12_2|RUNNING|None'"
    said = "a job of the cluster alpha, which alone can say more: squeue -j 12_"
    for here in ("echo 'ClusterName = beta'", "exit 1"):
        programs(squeue=squeue, scontrol=here)
        expected = [("running", None, f"{said}0"), ("waiting", None, f"{said}1"), ("waiting", None, f"{said}2")]
        assert states_of(sweep) == expected
        assert not asked.exists()
    programs(squeue=squeue, scontrol="echo 'ClusterName = alpha'")
    assert [state for state, *_ in states_of(sweep)] == ["lost", "starting", "starting"]
    shutil.rmtree(begun)
    programs(squeue="exit 1", scontrol="echo 'ClusterName = beta'", sbatch="echo '7;gamma'")
    done = evorun_here("resume", sweep, cwd=work)
    assert f"seed=2: {said}2; if it does" in done.stderr
    jobs = json.loads((sweep / "sweep.json").read_text())["jobs"]
    assert [(job["scheduler_id"], job["cluster"]) for job in jobs] == [(f"7_{number}", "gamma") for number in range(3)]


def test_a_sweep_of_which_slurm_has_a_job_is_not_resumed(programs: Programs, submitted: Path) -> None:
    programs(squeue="echo '12_2|PENDING|Priority'")
    done = evorun_here("resume", submitted, cwd=submitted.parent)
    assert "job 12_2 is in SLURM's queue (seed=2); wait for it, or cancel it: scancel 12_2" in done.stderr
    programs(squeue="echo '12_2|CANCELLED|None'", sbatch="echo 13")
    done = evorun_here("resume", submitted, cwd=submitted.parent)
    assert "submitted 3 jobs to SLURM: array 13" in done.stderr


# --- waiting ---


def test_the_wait_ends_with_the_jobs(programs: Programs, work: Path) -> None:
    programs(sbatch="echo 12", squeue="echo '12_0|FAILED|NonZeroExitCode'", sacct="exit 1")
    done = evorun_here(*SWEEP, cwd=work)
    assert done.returncode == 1
    assert "lost: seed=0: SLURM's job 12_0 is FAILED (NonZeroExitCode)" in done.stdout
    assert "3 of 3 jobs are not done; continue with: evorun resume sweep" in done.stdout


def test_an_interrupt_of_the_wait_leaves_the_jobs(
    programs: Programs, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(sbatch="echo 12", squeue="echo '12_0|RUNNING|None'; echo '12_1|RUNNING|None'; echo '12_2|RUNNING|None'")
    monkeypatch.setattr(
        slurm_launcher, "time", mock.Mock(monotonic=time.monotonic, sleep=mock.Mock(side_effect=KeyboardInterrupt))
    )
    done = evorun_here(*SWEEP, cwd=work)
    assert done.returncode == 130
    assert "the jobs go on by themselves; how far they are: evorun status sweep" in done.stdout


# --- the job ---


@pytest.mark.parametrize(
    ("said", "restarts", "requeued", "line"),
    [
        ("12_3|RUNNING|None", 0, True, "queued again, to go on from here"),
        ("12_3|COMPLETING|TimeLimit", 4, True, "queued again, to go on from here"),
        ("12_3|COMPLETING|None", 0, False, "stopped by SLURM, which has the job as COMPLETING"),
        ("", 0, False, "stopped by SLURM, which has the job as unknown"),
        ("12_3|RUNNING|None", 5, False, "error: not queued again: SLURM has restarted the job 5 times"),
    ],
)
def test_a_job_that_is_warned_is_queued_again(
    said: str,
    restarts: int,
    requeued: bool,
    line: str,
    programs: Programs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(_: Any) -> int:
        raise KeyboardInterrupt

    programs(squeue=f"echo '{said}'", sacct="exit 1", scontrol=f'echo "$@" >{tmp_path}/asked')
    monkeypatch.setattr(slurm_job, "carry_out_job", interrupted)
    for name, value in (("ARRAY_JOB_ID", "12"), ("ARRAY_TASK_ID", "3"), ("RESTART_COUNT", str(restarts))):
        monkeypatch.setenv(f"SLURM_{name}", value)
    given = GivenJob(config={}, folder="", command=[], debug=False)
    assert slurm_job._carry_out(given, 5) == 130
    assert capsys.readouterr().err.startswith(line)
    asked = tmp_path / "asked"
    assert (asked.read_text() if asked.exists() else "") == ("requeue 12_3\n" if requeued else "")
