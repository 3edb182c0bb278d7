"""Sweeps on a real SLURM of one machine: whatever ends a job, its records are those of an undisturbed run.

By day, test_slurm_launcher.py has programs in the place of SLURM's.
"""

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from evorun.models.embedded import is_ready
from evorun_process import SMALL, evorun_here, records
from journals import effects_in
from tiny_llama import write_tiny_llama
from two_nodes import second_node

SCRIPT = Path(__file__).parents[1] / "scripts" / "slurm" / "one_node.sh"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
LIMIT_S = 500.0
"""Of a wait; half a minute where nothing else is at work, since SLURM looks at time limits that often."""

RUN = ("method=duel_evolve", "task=mathbench", "task.source=sample", "engine=simulated", *SMALL, "run.concurrency=1")
SLOW, SLOWER = "engine.seconds_per_token=0.01", "engine.seconds_per_token=0.03"
"""A run takes twenty seconds, or a minute: SLURM looks at time limits only every half a minute."""
ON_SLURM = (
    *("hydra/launcher=slurm", "hydra.launcher.gpus_per_node=null", "hydra.launcher.cpus_per_task=1"),
    *("hydra.launcher.mem_gb=null", "hydra.launcher.detach=true", "hydra.launcher.signal_delay_s=0"),
)

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.nightly]


def until(reached: Callable[[], Any]) -> Any:
    """Wait for a value that is true and return it."""
    deadline = time.monotonic() + LIMIT_S
    while not (value := reached()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return value


def ask(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def slurm(folder: Path, *second_node: str) -> Iterator[None]:
    """Start a SLURM in a folder, with four processors for each node; skip the tests that want one that cannot start."""
    missing = [name for name in PROGRAMS if shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin") is None]
    if missing:
        pytest.skip(f"no SLURM here ({', '.join(missing)}); scripts/slurm/one_node.sh install")
    command = [SCRIPT, "start", folder, "4", *second_node]
    started = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    try:
        if started.returncode != 0:
            pytest.skip(f"SLURM cannot be started here: {started.stderr.strip()}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
            yield
    finally:
        subprocess.run([SCRIPT, "stop", folder], capture_output=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A SLURM of one machine with four processors, whatever the machine has: simulated models only sleep."""
    with slurm(tmp_path_factory.mktemp("slurm")):
        yield


def jobs_in(sweep: Path) -> list[dict[str, Any]]:
    """Return what `evorun status --json` prints of a sweep's jobs."""
    done = evorun_here("status", sweep, "--json", cwd=sweep.parent)
    assert done.returncode == 0, done.stderr
    jobs: list[dict[str, Any]] = json.loads(done.stdout)["sweeps"][0]["jobs"]
    return jobs


def effects(job: dict[str, Any]) -> int:
    return effects_in(Path(job["folder"]) / "journal.sqlite")


def restarts(number: str) -> int:
    said = ask("scontrol", "show", "job", number)
    return int(next(word for word in said.split() if word.startswith("Restarts=")).partition("=")[2])


class Disturbed(NamedTuple):
    """A sweep whose jobs were ended in different ways, and what was seen of it."""

    jobs: dict[str, dict[str, Any]]
    """By what was done to each."""
    calm: dict[str, Path]
    """The folders of the same runs, undisturbed, by the same."""
    submitted: str
    """Output of the command that has submitted them."""
    while_queued: str
    """Errors of a resume at that time."""
    cancelled: dict[str, Any]
    """Status of the cancelled job after that."""
    waiting: dict[str, Any]
    """Status of a job that is in the queue again."""
    resumed: str
    """Output of the resume that has finished the sweep."""
    restarts: dict[str, int]
    """Restarts of each job by SLURM."""


@pytest.fixture(
    scope="module",
    params=[("requeued", "cancelled"), ("preempted", "limited", "requeued", "cancelled")],
    ids="-".join,
)
def disturbed(cluster: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Disturbed:
    ends = request.param
    folder = tmp_path_factory.mktemp("sweeps")
    sweep = folder / "sweep"
    seeds = f"seed={','.join(map(str, range(len(ends))))}"
    pace = SLOWER if "limited" in ends else SLOW
    submitted = evorun_here("-m", *RUN, pace, seeds, "hydra.sweep.dir=sweep", *ON_SLURM, cwd=folder)
    assert submitted.returncode == 0, submitted.stderr
    while_queued = evorun_here("resume", sweep, cwd=folder)
    until(lambda: all(effects(job) > 3 for job in jobs_in(sweep)))
    started = jobs_in(sweep)
    if "preempted" in ends:  # all processors are taken: it takes the place of a job that SLURM chooses
        ask("sbatch", "--partition=urgent", "--output=/dev/null", "--wrap=sleep 1")
        [chosen] = until(lambda: [job for job in jobs_in(sweep) if job["state"] == "waiting"])
        started.sort(key=lambda job: job["name"] != chosen["name"])
    given = dict(zip(ends, started, strict=True))
    if "limited" in ends:
        ask("scontrol", "update", f"JobId={given['limited']['scheduler_id']}", "EndTime=now+1")
    ask("scontrol", "requeue", given["requeued"]["scheduler_id"])
    ask("scancel", given["cancelled"]["scheduler_id"])

    def now() -> dict[str, dict[str, Any]]:
        by_name = {job["name"]: job for job in jobs_in(sweep)}
        return {done_to: by_name[job["name"]] for done_to, job in given.items()}

    waiting = until(lambda: [job for job in now().values() if job["state"] == "waiting"])[0]
    until(lambda: now()["cancelled"]["state"] == "interrupted" and now()["cancelled"]["scheduler_state"] == "CANCELLED")
    seen = now()["cancelled"]
    until(lambda: all(job["state"] == "done" for done_to, job in now().items() if done_to != "cancelled"))
    counts = {done_to: restarts(job["scheduler_id"]) for done_to, job in given.items()}
    resumed = evorun_here("resume", sweep, "hydra.launcher.detach=false", cwd=folder)
    assert resumed.returncode == 0, resumed.stderr
    calm = evorun_here("-m", *RUN, seeds, "hydra.sweep.dir=calm", cwd=folder)
    assert calm.returncode == 0, calm.stderr
    undisturbed = {job["name"]: Path(job["folder"]) for job in jobs_in(folder / "calm")}
    return Disturbed(
        jobs=now(),
        calm={done_to: undisturbed[job["name"]] for done_to, job in given.items()},
        submitted=submitted.stderr + submitted.stdout,
        while_queued=while_queued.stderr,
        cancelled=seen,
        waiting=waiting,
        resumed=resumed.stdout,
        restarts=counts,
    )


def test_jobs_are_submitted_and_left(disturbed: Disturbed) -> None:
    array = disturbed.jobs["requeued"]["scheduler_id"].partition("_")[0]
    assert disturbed.submitted.splitlines() == [
        f"submitted {len(disturbed.jobs)} jobs to SLURM: array {array}",
        "the jobs go on by themselves; how far they are: evorun status sweep",
        f"cancel them: scancel {array}",
        "once they have ended, continue what is not done: evorun resume sweep",
    ]


def test_jobs_that_slurm_has_are_not_submitted_again(disturbed: Disturbed) -> None:
    assert "is in SLURM's queue (seed=0); wait for it, or cancel it: scancel " in disturbed.while_queued


def test_the_status_of_a_job_is_slurms_while_it_has_the_job(disturbed: Disturbed) -> None:
    assert (disturbed.waiting["state"], disturbed.waiting["scheduler_state"][:7]) == ("waiting", "PENDING")
    assert disturbed.cancelled["note"] is None


def test_a_job_that_was_ended_leaves_what_an_undisturbed_one_leaves(disturbed: Disturbed) -> None:
    for done_to, status in disturbed.jobs.items():
        job, calm = Path(status["folder"]), disturbed.calm[done_to]
        assert disturbed.restarts[done_to] == (0 if done_to == "cancelled" else 1), done_to
        assert status["state"] == "done", done_to
        assert records(job) == records(calm), done_to
        assert effects_in(job / "journal.sqlite") == effects_in(calm / "journal.sqlite") > 10, done_to
        ours, theirs = (json.loads((run / "results.json").read_text())["cost"]["total"] for run in (job, calm))
        for paid in ("calls", "prompt_tokens", "completion_tokens"):
            assert ours[paid] == theirs[paid], done_to


def test_a_resume_submits_only_what_is_not_done(disturbed: Disturbed) -> None:
    jobs = len(disturbed.jobs)
    assert f"{jobs - 1} of {jobs} jobs are done; 1 to go\n" in disturbed.resumed
    assert disturbed.jobs["cancelled"]["scheduler_id"] != disturbed.cancelled["scheduler_id"]


def test_what_sbatch_says_is_one_line(cluster: None, tmp_path: Path) -> None:
    refused = evorun_here("-m", *RUN, *ON_SLURM, "hydra.launcher.partition=none", "hydra.sweep.dir=sweep", cwd=tmp_path)
    assert refused.returncode == 1
    [line] = refused.stderr.splitlines()
    assert line.startswith("error: hydra/launcher=slurm: expected jobs that the cluster accepts, sbatch said: invalid ")
    assert not list(tmp_path.iterdir())


TRAINING = (
    *("method=sft", "method.data=data.jsonl", "method.batch=1", "method.epochs=30", "method.eval_samples=1"),
    *("method.eval_max_tokens=4", "task=arithmetic", "task.limit=1", "model=local", "model.context_length=2048"),
    *("training.rank=2", "training.learning_rate=0.01", "training.dropout=0.2", "training.save_every=5", "seed=0"),
)


@pytest.mark.embedded
@pytest.mark.skipif(not is_ready(), reason="no embedded model")
def test_a_run_that_is_requeued_while_it_trains_ends_with_the_same_weights(cluster: None, tmp_path: Path) -> None:
    """SIGTERM reaches the run and its trainer alike."""
    model = write_tiny_llama(tmp_path / "model")
    turns = [[{"role": "user", "content": f"{n} + 1?"}, {"role": "assistant", "content": str(n + 1)}] for n in range(6)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in turns))
    words = ("-m", *TRAINING, f"model.id={model}")
    submitted = evorun_here(*words, "hydra.sweep.dir=sweep", *ON_SLURM, cwd=tmp_path)
    assert submitted.returncode == 0, submitted.stderr
    sweep = tmp_path / "sweep"
    until(lambda: effects(jobs_in(sweep)[0]) > 20)
    ask("scontrol", "requeue", jobs_in(sweep)[0]["scheduler_id"])
    until(lambda: jobs_in(sweep)[0]["state"] == "waiting")
    before = effects(jobs_in(sweep)[0])
    until(lambda: jobs_in(sweep)[0]["state"] == "done")
    calm = evorun_here(*words, "hydra.sweep.dir=calm", cwd=tmp_path)
    assert calm.returncode == 0, calm.stderr
    [job], [undisturbed] = jobs_in(sweep), jobs_in(tmp_path / "calm")
    assert before < effects(job) == effects(undisturbed)
    for name in ("training.jsonl", "steps.jsonl", "metrics.jsonl", "artifacts/adapter/adapter_model.safetensors"):
        assert (Path(job["folder"]) / name).read_bytes() == (Path(undisturbed["folder"]) / name).read_bytes(), name


def agents(sweep: Path) -> list[psutil.Process]:
    """Return the agents of a sweep's trainer that are on another node than its run."""
    here = [one for one in psutil.process_iter(["cmdline"]) if str(sweep) in " ".join(one.info["cmdline"] or [])]
    by_module = {
        module: [one for one in here if module in one.info["cmdline"]]
        for module in ("evorun.cli.slurm_job", "evorun.training.node")
    }
    of_run = {network(one) for one in by_module["evorun.cli.slurm_job"]}
    return [one for one in by_module["evorun.training.node"] if network(one) not in of_run]


def network(process: psutil.Process) -> str:
    return os.readlink(f"/proc/{process.pid}/ns/net")


@pytest.mark.embedded
@pytest.mark.skipif(not is_ready(), reason="no embedded model")
def test_a_job_of_two_nodes_trains_and_goes_on_after_the_loss_of_one(tmp_path: Path) -> None:
    """Its records and its weights are those of two processes on one node."""
    model = write_tiny_llama(tmp_path / "model")
    turns = [[{"role": "user", "content": f"{n} + 1?"}, {"role": "assistant", "content": str(n + 1)}] for n in range(6)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in turns))
    words = ("-m", *TRAINING, "method.batch=2", "training.num_processes=2", f"model.id={model}")
    on_two = (*ON_SLURM, "hydra.launcher.nodes=2", "hydra.sweep.dir=sweep")
    sweep = tmp_path / "sweep"
    with second_node() as other, slurm(tmp_path / "slurm", other.name, other.own_address, other.address):
        submitted = evorun_here(*words, *on_two, cwd=tmp_path)
        assert submitted.returncode == 0, submitted.stderr
        until(lambda: effects(jobs_in(sweep)[0]) > 20)
        [agent] = agents(sweep)
        agent.kill()
        [job] = until(lambda: [one for one in jobs_in(sweep) if one["state"] == "failed"])
        said = (sweep / ".slurm" / f"{job['scheduler_id']}.log").read_text()
        assert "error: the trainer lost the node " in said
        resumed = evorun_here("resume", sweep, "hydra.launcher.detach=false", cwd=tmp_path)
        assert resumed.returncode == 0, resumed.stderr
    calm = evorun_here(*words, "hydra.sweep.dir=calm", cwd=tmp_path)
    assert calm.returncode == 0, calm.stderr
    run, undisturbed = (Path(jobs_in(folder)[0]["folder"]) for folder in (sweep, tmp_path / "calm"))
    for name in ("training.jsonl", "steps.jsonl", "metrics.jsonl", "artifacts/adapter/adapter_model.safetensors"):
        assert (run / name).read_bytes() == (undisturbed / name).read_bytes(), name
