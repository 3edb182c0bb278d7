"""Race evorun against inspect_ai, GEPA and OpenEvolve: the same number of calls to the same endpoint, logs on.

    make race                                                      in .venv-race, which it makes
    python scripts/race/race.py --peers .venv-race/bin/python [--calls 2000] [--only NAME ...]

The endpoint is a process of its own that answers after 50 ms. Each racer runs twice, alone. Undisturbed: calls per
second of CPU (its children's too), peak memory (proportional set size of all its processes), and disk. Then killed by
SIGKILL at half its calls and continued by its own means: what the endpoint answered beyond the undisturbed run was
lost, and paid for again. `inspect_ai (mockllm)` answers itself inside the process, so it cannot count lost calls.

What this does not show: the racers do different things with an answer. evorun grades and journals it, inspect_ai
scores and logs it with its events, GEPA keeps scores, OpenEvolve runs each answer as a program in a worker process.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple, cast

import psutil
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
PROBLEMS = 50
SECONDS_ALLOWED = 1800
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Racer(NamedTuple):
    """The command of a run, and the command that continues it after a kill."""

    start: Sequence[str]
    again: Sequence[str]
    uses_endpoint: bool = True


class Undisturbed(NamedTuple):
    """The time, memory and disk of a whole run."""

    calls: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    disk_bytes: int


def main() -> int:
    """Run the race and print its table."""
    parser = argparse.ArgumentParser(description="Race evorun against its peers.")
    parser.add_argument("--peers", type=Path, required=True, help="the Python of the peers' environment")
    parser.add_argument("--calls", type=int, default=2000, help=f"of each racer; a multiple of {PROBLEMS}")
    parser.add_argument("--only", nargs="*", help="these racers only")
    options = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=140)
    table = Table(title=f"{options.calls} calls, 50 ms each")
    for heading in ("", "calls", "seconds", "calls per CPU second", "peak MB", "disk MB", "lost to a SIGKILL"):
        table.add_column(heading, justify="right" if heading else "left")
    for name in options.only or racers("", 0, Path(), Path()):
        with tempfile.TemporaryDirectory() as folder:
            whole = run_undisturbed(name, options.calls, options.peers, Path(folder))
            lost = count_lost(name, options.calls, options.peers, Path(folder), whole.calls)
        table.add_row(
            name,
            f"{whole.calls}",
            f"{whole.seconds:.1f}",
            f"{whole.calls / whole.cpu_seconds:.0f}",
            f"{whole.peak_bytes / 1e6:.0f}",
            f"{whole.disk_bytes / 1e6:.1f}",
            "" if lost is None else f"{lost}",
        )
        console.print(f"{name}: done", style="dim")
    console.print(table)
    return 0


def racers(url: str, calls: int, folder: Path, peers: Path) -> dict[str, Racer]:
    """Return each racer's commands for so many calls, with its records in `folder`."""
    samples = str(calls // PROBLEMS)
    evorun = [sys.executable, "-m", "evorun"]
    settings = ["method=self_consistency", f"method.samples={samples}", "method.retries=0", "task=arithmetic"]
    settings += [f"task.test_problems={PROBLEMS}", "model=api", "model.id=race", "engine=server"]
    settings += [f"engine.base_urls=[{url}/v1]", f"hydra.run.dir={folder}"]

    def peer(program: str, *arguments: str) -> list[str]:
        return [str(peers), str(HERE / program), *arguments]

    inspect = peer("inspect_racer.py", url, f"{PROBLEMS}", samples, f"{folder}")
    mocked = peer("inspect_racer.py", "mockllm", f"{PROBLEMS}", samples, f"{folder}")
    gepa = peer("gepa_racer.py", url, f"{PROBLEMS}", f"{calls}", f"{folder}")
    openevolve = peer("openevolve_racer.py", url, f"{calls}", f"{folder}")
    return {
        "evorun": Racer([*evorun, *settings], [*evorun, "resume", f"{folder}"]),
        "inspect_ai": Racer(inspect, [*inspect, "--again"]),
        "inspect_ai (mockllm)": Racer(mocked, [], uses_endpoint=False),
        "gepa": Racer(gepa, gepa),
        "openevolve": Racer(openevolve, openevolve),
    }


def run_undisturbed(name: str, calls: int, peers: Path, folder: Path) -> Undisturbed:
    """Carry out a whole run and measure it."""
    records = folder / "whole"
    with endpoint() as url:
        racer = racers(url, calls, records, peers)[name]
        before = os.times()
        began = time.perf_counter()
        process = start(racer.start, folder)
        peak = 0
        while process.poll() is None:
            peak = max(peak, measure_memory(process.pid))
            require_time(process, began)
            time.sleep(0.5)
        seconds = time.perf_counter() - began
        after = os.times()
        require_success(process, folder)
        made = count_answered(url) if racer.uses_endpoint else calls
    # The endpoint's own CPU is counted once it has been waited for, which comes later.
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return Undisturbed(made, seconds, cpu, peak, measure_disk(records))


def count_lost(name: str, calls: int, peers: Path, folder: Path, whole: int) -> int | None:
    """Return how many calls a run pays for again after a SIGKILL at its half; None where nobody can count them."""
    records = folder / "killed"
    with endpoint() as url:
        racer = racers(url, calls, records, peers)[name]
        if not racer.uses_endpoint:
            return None
        began = time.perf_counter()
        process = start(racer.start, folder)
        while count_answered(url) < whole // 2:
            if process.poll() is not None:
                sys.exit(f"{name} ended before half its calls: {read_end(folder)}")
            require_time(process, began)
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process = start(racer.again, folder)
        while process.poll() is None:
            require_time(process, began)
            time.sleep(0.1)
        require_success(process, folder)
        return count_answered(url) - whole


@contextlib.contextmanager
def endpoint() -> Iterator[str]:
    """Serve in a process of its own; give the address."""
    command = [sys.executable, str(HERE / "endpoint.py")]
    # it prints errors about requests that a killed racer leaves half sent
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        yield cast(IO[str], process.stdout).readline().strip()


def count_answered(url: str) -> int:
    """Return how many completions the endpoint has sent."""
    with urllib.request.urlopen(f"{url}/count") as reply:  # noqa: S310 - the endpoint's own
        return int(reply.read())


def start(command: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    """Start a racer as the leader of a process group, its output in a log."""
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=os.environ | ONE_THREAD,
        )


def measure_memory(pid: int) -> int:
    """Return the proportional set size of a process and its descendants, in bytes: shared pages count once."""
    total = 0
    with contextlib.suppress(psutil.Error):
        leader = psutil.Process(pid)
        for process in [leader, *leader.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += process.memory_full_info().pss
    return total


def measure_disk(folder: Path) -> int:
    """Return the bytes of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def require_time(process: subprocess.Popen[bytes], began: float) -> None:
    """End the race where a racer takes too long."""
    if time.perf_counter() - began > SECONDS_ALLOWED:
        os.killpg(process.pid, signal.SIGKILL)
        sys.exit(f"a racer took more than {SECONDS_ALLOWED} s: {process.args!r}")


def require_success(process: subprocess.Popen[bytes], folder: Path) -> None:
    """End the race where a racer failed, with the end of its log."""
    if process.returncode:
        sys.exit(f"{process.args!r} failed ({process.returncode}): {read_end(folder)}")


def read_end(folder: Path) -> str:
    """Return the last lines of the log."""
    return (folder / "log").read_text(errors="replace")[-2000:]


if __name__ == "__main__":
    sys.exit(main())
