"""SLURM's view of its jobs: the states that its programs report."""

import functools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Sequence

from evorun.models.keys import child_environment

LIMIT_S = 60
"""Seconds after which a program of SLURM is not waited for (ours): a busy controller answers within seconds."""

ASK_INTERVAL_S = 10.0
"""Seconds between two questions to the controller, which serves a whole cluster (ours)."""

_ENDED = (
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("REVOKED", "TIMEOUT"),
)
"""States in which SLURM is done with a job (squeue's manual, JOB STATE CODES)."""


def query_states(ids: Collection[str]) -> dict[str, str] | None:
    """Return the states of jobs such as `12_3` by id, with reasons: `PENDING (Priority)`, `RUNNING`.

    A job that SLURM has forgotten has none: it forgets minutes after a job's end, unless it keeps accounts. Returns
    None where no SLURM answers.
    """
    wanted = {number for number in ids if re.fullmatch(r"\d+(_\d+)?", number)}
    if not wanted:
        return {}
    jobs = f"--jobs={','.join(sorted({number.partition('_')[0] for number in wanted}))}"
    queued = run_program(["squeue", "--noheader", "--array", "--states=all", "--format=%i|%T|%r", jobs])
    if queued is None or (queued.returncode != 0 and "Invalid job id" not in queued.stderr):  # it knows none of them
        return None
    states = {}
    for number, state, reason in (line.split("|", 2) for line in queued.stdout.splitlines() if line.count("|") >= 2):
        states[number] = state if reason in ("", "None") else f"{state} ({reason})"
    if wanted - states.keys():
        kept = run_program(["sacct", "--noheader", "--allocations", "--parsable2", "--format=JobID,State", jobs])
        for line in [] if kept is None else kept.stdout.splitlines():
            number, _, state = line.partition("|")
            states.setdefault(number, state)
    return {number: states[number] for number in wanted & states.keys()}


class RecentStates:
    """SLURM's last answers about jobs, for whoever looks at them more often than its controller should be asked."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answers: list[tuple[float, frozenset[str], dict[str, str] | None]] = []
        """Times of the last answers, the jobs that they are about, and their states."""

    def query(self, ids: Collection[str]) -> dict[str, str] | None:
        """Return states as `query_states` does, at most `ASK_INTERVAL_S` seconds old."""
        wanted, now = frozenset(ids), self._clock()
        self._answers = [answer for answer in self._answers if now - answer[0] < ASK_INTERVAL_S]
        for _, asked, states in self._answers:
            if wanted <= asked:
                return None if states is None else {number: states[number] for number in wanted & states.keys()}
        states = query_states(wanted)
        self._answers.append((self._clock(), wanted, states))
        return states


@functools.cache
def find_cluster() -> str | None:
    """Return the name of the cluster that this machine belongs to; None where no SLURM says it."""
    if name := os.environ.get("SLURM_CLUSTER_NAME"):  # in a job
        return name
    config = run_program(["scontrol", "show", "config"])
    named = (line.partition("=") for line in ([] if config is None else config.stdout.splitlines()))
    return next((value.strip() for key, _, value in named if key.strip() == "ClusterName"), None) or None


def allocated_nodes() -> list[str]:
    """Return the names of the nodes of the SLURM job that this process is in, its own first; [] outside a job.

    A process that srun started is in a step of the job: the names are those of the step's nodes.
    """
    nodes = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST")
    names = _expand_nodes(nodes) if nodes else []
    return sorted(names, key=lambda name: name != os.environ.get("SLURMD_NODENAME"))


@functools.cache
def _expand_nodes(nodes: str) -> list[str]:
    """Return the names in a list such as `gpu[1-3,7]`, which only SLURM reads in all its forms."""
    if "[" not in nodes and "," not in nodes:
        return [nodes]
    done = run_program(["scontrol", "show", "hostnames", nodes])
    return [] if done is None or done.returncode != 0 else done.stdout.split()


def has_ended(state: str | None) -> bool:
    """Return whether SLURM will neither start nor go on with a job in this state; None: of a job that it forgot."""
    return state is None or state.split()[0].rstrip("+") in _ENDED


def is_waiting(state: str) -> bool:
    """Return whether a job in this state waits in the queue."""
    return state.startswith("PENDING")


def run_program(command: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
    """Run a program of SLURM that needs none of the user's keys; return None where it is missing or does not end."""
    if shutil.which(command[0]) is None:
        return None
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=child_environment()
        )
    except (OSError, subprocess.SubprocessError):
        return None
