"""Measures memory and CPU time of jobs side by side that load a model each, and of the same that share one process.

    python scripts/measure_shared_models.py FOLDER [JOBS] [KEY=VALUE ...]

FOLDER gets the two sweeps; a sweep that is there already is not measured again. Memory is the peak, twice a second, of
what all processes of a sweep have together (PSS: pages that several have count once).
"""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

GIB = 2**20
"""KiB."""
MARK = "EVORUN_MEASURED"


def memory_of(mark: str) -> int:
    """Return the KiB of memory of all processes with a mark in their environment."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                lines = (process / "smaps_rollup").read_text().splitlines()
                total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except (OSError, StopIteration):  # it has just ended, or is another user's
            continue
    return total


def measure(words: list[str], mark: str) -> tuple[int, float]:
    """Return the peak of a sweep's memory in KiB, and its CPU seconds. Raises CalledProcessError where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(
        [sys.executable, "-m", "evorun", "-m", *words], env={**os.environ, MARK: mark}, stdout=subprocess.DEVNULL
    ) as process:
        peak = 0
        while process.poll() is None:
            peak = max(peak, memory_of(mark))
            time.sleep(0.5)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return peak, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print a line for each of the two sweeps."""
    folder, *rest = sys.argv[1:]
    jobs = int(rest.pop(0)) if rest and rest[0].isdigit() else 4
    common = ["method=zero_shot", "task=arithmetic", "task.limit=4", "engine=transformers", "hydra/launcher=local"]
    common += [f"hydra.launcher.jobs={jobs}", f"seed={','.join(map(str, range(jobs)))}", *rest]
    for name, shared in (("own", "false"), ("shared", "true")):
        sweep = Path(folder) / name
        if sweep.exists():
            continue
        words = [*common, f"hydra.launcher.share_models={shared}", f"hydra.sweep.dir={sweep}"]
        peak, seconds = measure(words, f"{os.getpid()}_{name}")
        print(f"{name}: {jobs} jobs, peak {peak / GIB:.2f} GiB, {seconds:.0f} s of CPU time", flush=True)


if __name__ == "__main__":
    main()
