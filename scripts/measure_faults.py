"""Runs against servers that fail beside the same run against one that does not: time, what is lost, what came twice.

    python scripts/measure_faults.py [SCENARIO ...] [--calls 3000] [--latency 0.5] [--evorun FOLDER] [KEY=VALUE ...]
    python scripts/measure_faults.py mixture "two, one slow" --calls 2000
    python scripts/measure_faults.py --list

Each run is `evorun method=self_consistency` on evorun's sample problems against scripts/fault_server.py, each server a
process of its own. KEY=VALUE are further settings of all runs; FOLDER is another checkout of evorun to measure. The
clean run, against one server, comes first. Requests that never get an answer are refused at once there. A server that
dies is stopped with its requests in flight, and is back on the same port.

lost: answers that a run lacks and the clean one has. asked twice: answers that a server has given in full, beyond one
to each call of the run and to each control. late: attempts that were ended though the server had not let them hang; an
answer that is on its way then is paid for twice, as nobody can tell it from one that never comes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

SERVER = Path(__file__).with_name("fault_server.py")
PROBLEMS = 20
CONTROL = "control"
"""The kind under which results count controls."""


class Server(NamedTuple):
    """One server of a scenario."""

    options: Sequence[str] = ("--clean",)
    dies: float | None = None
    """Seconds after its first request."""
    back: float | None = None
    """Seconds after it has died; None: never."""


ALONE = ("--always", "0")
MIXED = Server(())
SCENARIOS = {
    "mixture": [MIXED],
    "one request always fails": [Server(("--fault", "500=0"))],
    "bucket of 0.5 s": [Server((*ALONE, "--rate", "40", "--burst", "0.5"))],
    "out for 15 s": [Server(dies=10.0, back=15.0)],
    "out for 5 min": [Server(dies=10.0, back=300.0)],
    "two": [Server(), Server()],
    "two, mixture": [MIXED, Server(("--salt", "second"))],
    "two, one dying": [Server(), Server(dies=10.0)],
    "two, one slow": [Server(), Server(("--clean", "--slower", "10"))],
    "two, one back after 15 s": [Server(), Server(dies=5.0, back=15.0)],
    "two, one back after 5 min": [Server(), Server(dies=5.0, back=300.0)],
    "two, both out for 5 min": [Server(dies=10.0, back=300.0), Server(dies=10.0, back=300.0)],
}


class Running:
    """A server in a process of its own, which may die and come back."""

    def __init__(self, server: Server, latency: float) -> None:
        slower = float(server.options[server.options.index("--slower") + 1]) if "--slower" in server.options else 1.0
        options = [option for option in server.options if option not in ("--slower", f"{slower:g}")]
        self._command = [sys.executable, str(SERVER), "--latency", str(slower * latency), *options]
        self.done: Counter[str] = Counter()
        self._server = server
        self._process = self._start(0)
        self._timers: list[threading.Timer] = []
        if server.dies is not None:
            threading.Thread(target=self._wait_for_run, daemon=True).start()

    def _wait_for_run(self) -> None:
        """Let the server die, and come back, so long after its first request."""
        if self._process.stdout is None or self._process.stdout.readline().strip() != "asked":
            return
        dies, back = self._server.dies or 0.0, self._server.back
        self._timers.append(threading.Timer(dies, self._stop))
        if back is not None:
            self._timers.append(threading.Timer(dies + back, self._restart))
        for timer in self._timers:
            timer.daemon = True
            timer.start()

    def _start(self, port: int) -> "subprocess.Popen[str]":
        command = [*self._command, "--port", str(port)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None  # noqa: S101 - for the type checker
        self.url = process.stdout.readline().strip()
        return process

    def _restart(self) -> None:
        self._process = self._start(int(self.url.rpartition(":")[2].partition("/")[0]))

    def _stop(self) -> None:
        if self._process.poll() is None:
            self.done.update(json.loads(self._process.communicate("")[0].splitlines()[-1]))

    def close(self) -> None:
        """Stop it for good."""
        for timer in self._timers:
            timer.cancel()
        self._stop()


class Ran(NamedTuple):
    """The end of a run."""

    status: str
    seconds: float
    calls: int
    rejected: int
    predictions: str
    wasted: dict[str, Any]
    answered: int
    """Answers that servers gave in full."""
    hung: int
    """Requests that servers let hang."""
    error: str


def run(folder: Path, servers: Sequence[Server], options: argparse.Namespace) -> Ran:
    """Carry out a run against servers."""
    with ExitStack() as stack:
        running = [Running(server, options.latency) for server in servers]
        for server in running:
            stack.callback(server.close)
        words = [
            *("method=self_consistency", f"method.samples={options.calls // PROBLEMS}", "method.retries=0"),
            *("task=mathbench", "task.source=sample", f"task.limit={PROBLEMS}", "evorun.progress=off"),
            *("model=api", "model.id=faulty", "engine=server", f"hydra.run.dir={folder}"),
            f"engine.base_urls=[{','.join(server.url for server in running)}]",
        ]
        command = [sys.executable, "-m", "evorun", *words, *options.settings]
        environment = {**os.environ, "PYTHONPATH": str(options.evorun.resolve())}
        # Not in a checkout: there `-m evorun` would be that checkout's.
        nowhere = subprocess.DEVNULL
        subprocess.run(command, env=environment, cwd=folder.parent, check=False, stdout=nowhere, stderr=nowhere)
    manifest = json.loads((folder / "manifest.json").read_text())
    file = folder / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    return Ran(
        status=manifest["status"],
        seconds=manifest["seconds"],  # without the program's start
        calls=results["cost"]["total"]["calls"] if results else 0,
        rejected=results["counts"]["rejected_requests"] if results else 0,
        predictions=(folder / "predictions.jsonl").read_text() if results else "",
        wasted=results.get("wasted", {}),
        answered=sum(server.done["answered"] for server in running),
        hung=sum(server.done["hang"] for server in running),
        error=manifest.get("error") or "",
    )


def main(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as made:
        clean = run(Path(made) / "clean", [Server()], options)
        # Where a scenario has no request that is always refused, neither may the run beside it.
        without = run(Path(made) / "without", [Server(("--clean", *ALONE))], options)
        print(f"{options.calls} calls of {options.latency:g} s; clean: {clean.seconds:.1f} s; {options.evorun}")
        head = f"{'scenario':28}{'seconds':>9}{'over clean':>12}{'lost':>6}{'asked twice':>13}{'late':>6}"
        print(f"{head}  attempts in vain")
        for number, name in enumerate(options.scenarios or SCENARIOS):
            ran = run(Path(made) / str(number), SCENARIOS[name], options)
            beside = without if all("--always" in server.options for server in SCENARIOS[name]) else clean
            if ran.status != "completed":
                print(f"{name:28}{ran.seconds:9.1f}{'ended':>12}  {ran.error[:160]}", flush=True)
                continue
            controls = ran.wasted.get(CONTROL, {}).get("attempts", 0)
            twice = ran.answered - (ran.calls - ran.rejected) - controls
            late = ran.wasted.get("timed_out", {}).get("attempts", 0) - ran.hung
            lost = ran.rejected - beside.rejected
            same = "" if ran.predictions == beside.predictions else "; OTHER PREDICTIONS"
            wasted = ", ".join(f"{kind} {figures['attempts']}" for kind, figures in sorted(ran.wasted.items()))
            ratio = ran.seconds / beside.seconds
            print(f"{name:28}{ran.seconds:9.1f}{ratio:12.2f}{lost:6}{twice:13}{late:6}  {wasted}{same}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="SCENARIO | KEY=VALUE", help="default: all scenarios")
    parser.add_argument("--calls", type=int, default=3_000)
    parser.add_argument("--latency", type=float, default=0.5, help="seconds that an answer takes")
    parser.add_argument("--evorun", type=Path, default=SERVER.parents[1], help="checkout whose evorun is measured")
    parser.add_argument("--list", action="store_true", help="print the scenarios and end")
    arguments = parser.parse_args()
    arguments.settings = [word for word in arguments.words if "=" in word]
    arguments.scenarios = [word for word in arguments.words if "=" not in word]
    if unknown := set(arguments.scenarios) - set(SCENARIOS):
        parser.error(f"unknown scenario {', '.join(sorted(unknown))}; there are: {'; '.join(SCENARIOS)}")
    print("\n".join(SCENARIOS)) if arguments.list else main(arguments)
