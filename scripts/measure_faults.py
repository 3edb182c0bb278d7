"""A run against a server that fails beside the same run against one that does not: time, attempts, what is lost.

    python scripts/measure_faults.py [--calls 5000] [--latency 0.5] [--server OPTIONS] [KEY=VALUE ...]
    python scripts/measure_faults.py --calls 2000 --latency 0.02 --server "--always 0 --fault '429, seconds=0.015'"
    python scripts/measure_faults.py --calls 400 --latency 0.02 --server "--always 0 --rate 10"

Each run is `evorun method=self_consistency` on evorun's sample problems against scripts/fault_server.py in a process of
its own. OPTIONS are those of the server that fails, KEY=VALUE further settings of both runs. Requests that never get an
answer are refused at once in the clean run.
"""

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("fault_server.py")
PROBLEMS = 20


def run(folder: Path, calls: int, server: Sequence[str], settings: Sequence[str]) -> tuple[float, dict[str, Any]]:
    """Return a run's seconds and results."""
    command = [sys.executable, str(SERVER), *server]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None or process.stdin is None:
            raise RuntimeError("pipes were asked for")
        url = process.stdout.readline().strip()
        words = [
            *("method=self_consistency", f"method.samples={calls // PROBLEMS}", "method.retries=0"),
            *("task=mathbench", "task.source=sample", f"task.limit={PROBLEMS}", "evorun.progress=off"),
            *("model=api", "model.id=faulty", "engine=server", f"engine.base_urls=[{url}]", f"hydra.run.dir={folder}"),
        ]
        subprocess.run([sys.executable, "-m", "evorun", *words, *settings], check=True, stdout=subprocess.DEVNULL)
        process.stdin.close()
        print(f"  the server: {process.stdout.read().strip()}")
    results = json.loads((folder / "results.json").read_text())
    seconds = json.loads((folder / "manifest.json").read_text())["seconds"]  # without the program's start
    return seconds, results


def main(calls: int, latency: float, failing_server: Sequence[str], settings: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        server = ["--latency", str(latency)]
        print("clean")
        # What is never answered must be the same requests.
        always = failing_server[failing_server.index("--always") :][:2] if "--always" in failing_server else []
        clean_seconds, clean = run(folder / "clean", calls, [*server, "--clean", *always], settings)
        print("failing")
        seconds, failing = run(folder / "failing", calls, [*server, *failing_server], settings)
        answers = [(folder / name / "predictions.jsonl").read_text() for name in ("clean", "failing")]
    rates = f"{calls / clean_seconds:.1f} and {calls / seconds:.1f} calls/s"
    print(f"{calls} calls of {latency:g} s: clean {clean_seconds:.1f} s, failing {seconds:.1f} s ({rates})")
    spent = [results["cost"]["total"]["seconds"] for results in (clean, failing)]
    print(f"model time: clean {spent[0]:.0f} s, failing {spent[1]:.0f} s")
    print(f"predictions: {'the same' if answers[0] == answers[1] else 'OTHERS'}")
    rejected = [results["counts"]["rejected_requests"] for results in (clean, failing)]
    print(f"rejected requests: clean {rejected[0]}, failing {rejected[1]}; wasted: {failing['wasted']}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--latency", type=float, default=0.5, help="seconds that an answer takes")
    parser.add_argument("--server", type=shlex.split, default=[], metavar="OPTIONS", help="of the server that fails")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    arguments = parser.parse_args()
    main(arguments.calls, arguments.latency, arguments.server, arguments.settings)
