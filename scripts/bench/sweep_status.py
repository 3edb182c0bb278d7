"""CPU time of `evorun status` on a sweep of many finished jobs, copies of one real run.

    python scripts/bench/run.py sweep_status                     200 jobs
    python scripts/bench/run.py sweep_status --size jobs=1000

The whole process is measured: starting Python, imports, reading, and printing the table.
"""

import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from dry_run import run
from evorun.runs.sweeps import JobInSweep, new_sweep, write_sweep
from evorun_bench import Row

TINY = {"jobs": 3}
ALLOWED_S = 2.0


def measure(jobs: int = 200) -> list[Row]:
    """Return the CPU seconds of the table and of the JSON of this many jobs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(folder / "run", {"task.source": "sample", "task.limit": 2, "method.generations": 1})
        (folder / "run" / "report.html").touch()
        sweep = folder / "sweep"
        for job in range(jobs):
            shutil.copytree(folder / "run", sweep / f"job_{job}")
        planned = [JobInSweep(f"job_{job}", (f"seed={job}", "method=duel_evolve")) for job in range(jobs)]
        write_sweep(sweep, new_sweep(["evorun", "-m"], "basic", planned))
        words = {"table": [], "JSON": ["--json"]}
        costs = {kind: status_cpu([str(sweep), *more], folder) for kind, more in words.items()}
    return [
        Row(f"CPU of status, {jobs} jobs, {kind}", cost, "s", f"< {ALLOWED_S:g}", cost < ALLOWED_S)
        for kind, cost in costs.items()
    ]


def status_cpu(words: list[str], cwd: Path) -> float:
    """Return the CPU seconds of a process `evorun status WORDS`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "evorun", "status", *words], cwd=cwd, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
