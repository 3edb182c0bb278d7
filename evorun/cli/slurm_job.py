"""A job of `hydra/launcher=slurm`: the process that carries out one composed run, and is queued again when warned."""

import os
import sys
from pathlib import Path

import msgspec

from evorun.cli import exit_after
from evorun.cli.given_job import GivenJob
from evorun.cli.local_job import carry_out_job
from evorun.cli.usage import EXIT_INTERRUPTED


def main() -> None:
    """Carry out the job and exit, as a job of `hydra/launcher=local` does.

    The arguments are the file with the job's input, and the restarts after which it is not queued again.
    """
    file, max_restarts = sys.argv[1:]
    given = msgspec.json.decode(Path(file).read_bytes(), type=GivenJob)
    exit_after(lambda: _carry_out(given, int(max_restarts)), debug=given.debug)


def _carry_out(given: GivenJob, max_restarts: int) -> int:
    try:
        code = carry_out_job(given)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    if code == EXIT_INTERRUPTED:
        print(_requeue(max_restarts), file=sys.stderr, flush=True)
    return code


def _requeue(max_restarts: int) -> str:
    """Queue this process's job again where SLURM warned it or ends its time; return a line on what was done."""
    from evorun.runs import slurm

    job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    state = (slurm.query_states([job]) or {}).get(job)
    # any other one that is ending is cancelled, or preempted and then queued again by SLURM itself
    if state not in ("RUNNING", "COMPLETING (TimeLimit)"):
        return f"stopped by SLURM, which has the job as {state or 'unknown'}"
    if int(os.environ.get("SLURM_RESTART_COUNT", "0")) >= max_restarts:
        return (
            f"error: not queued again: SLURM has restarted the job {max_restarts} times, "
            f"hydra.launcher.max_requeues={max_restarts}"
        )
    done = slurm.run_program(["scontrol", "requeue", job])
    if done is None or done.returncode != 0:
        reason = "scontrol cannot be run" if done is None else " ".join(done.stderr.split())
        return f"error: not queued again: {reason}"
    return "queued again, to go on from here"


if __name__ == "__main__":
    main()
