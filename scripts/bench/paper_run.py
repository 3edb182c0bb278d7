"""A run of the size of Duel-Evolve's MathBench evaluation: its time, its pace from end to end, its memory and its disk.

150 problems for 150 generations of 12 children and 24 duels (section 4.3 and conf/method/duel_evolve.yaml), with the
simulated model: some 1.4 million calls, minutes on one core, gigabytes of disk in the folder for temporary files.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import harmonic_mean
from unittest.mock import patch

from dry_run import problems as written
from dry_run import run
from evorun.simulation.engine import SimulatedModel
from evorun_bench import Row, peak_mib
from pace import PARTS, Clock

TINY = {"problems": 2, "generations": 2}


def measure(problems: int = 150, generations: int = 150) -> list[Row]:
    """Run all problems at once; then resume the finished run, and draw its report."""
    clock = Clock(every=problems)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        size = {**written(Path(folder) / "data", problems), "method.generations": generations}
        with patch.object(SimulatedModel, "complete", clock.counting(SimulatedModel.complete)):
            measured = run(path, size)
        peak = peak_mib()
        disk = {file.name: file.stat().st_size for file in sorted(path.iterdir()) if file.is_file()}
        resumed = run(path, size).seconds
        started = time.perf_counter()
        # not in this folder: there `python -m evorun` would be this checkout's, whatever PYTHONPATH says
        subprocess.run(
            [sys.executable, "-m", "evorun", "report", path], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        reported = time.perf_counter() - started
        report = (path / "report.html").stat().st_size
    tenths = clock.tenths()
    wall, cpu = [part.calls / part.wall for part in tenths], [part.calls / part.cpu for part in tenths]
    # CPU time, and of halves: so it says something on a busy machine too
    flat, falls = min(wall) / max(wall), harmonic_mean(cpu[PARTS // 2 :]) / harmonic_mean(cpu[: PARTS // 2])
    return [
        Row(f"{problems} problems x {generations} generations", measured.seconds, "s", "", None),
        Row("model calls", measured.calls, "", "", None),
        Row("pace of the whole run", measured.calls / measured.seconds, "calls/s", "", None),
        *(Row(f"... of tenth {part}", rate, "calls/s", "", None) for part, rate in enumerate(wall, 1)),
        Row("... slowest tenth over fastest", flat, "x", ">= 0.8", flat >= 0.8),
        Row("... second half over first, by CPU time", falls, "x", ">= 0.8", falls >= 0.8),
        Row("peak memory", peak, "MiB", "< 1,024", peak < 1_024),
        *(Row(name, size / 1e6, "MB", "", None) for name, size in disk.items() if size >= 1e6),
        Row("all files", sum(disk.values()) / 1e6, "MB", "", None),
        Row("... a call", sum(disk.values()) / measured.calls, "bytes", "", None),
        Row("resume of the finished run", resumed, "s", "", None),
        Row("report.html drawn", reported, "s", "", None),
        Row("report.html", report / 1e6, "MB", "", None),
    ]
