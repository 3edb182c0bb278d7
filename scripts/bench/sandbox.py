"""Programs and tests per second in the sandbox, beside a plain loop of fresh interpreters without any isolation.

The mix is 60 known-correct programs with their tests, from the folder that EVORUN_KNOWN_SOLUTIONS names (see
scripts/measure_known_solutions.py); without it, generated programs.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from pathlib import Path

from evorun.sandbox import Case, CaseResult, Limits, Program, Sandbox, SandboxConfig, Suite, test
from evorun.sandbox.inside.program import STAR_IMPORTS
from evorun_bench import Row

TINY = {"trivial": 4, "mix": 1}
LIMITS = Limits(cpu_seconds=6.0)
TARGET = 3.0

Job = tuple[Program, Suite]

# What a plain interpreter needs to run the same programs: the harness's names, and somebody to call the entry.
PRELUDE = "".join(f"from {module} import *\n" for module in STAR_IMPORTS) + "import sys, json, math, string\n"
CALL = (
    "\nprint(json.dumps({call}(*[json.loads(line) for line in sys.stdin.read().split('\\n') if line.strip()]),"
    " default=list))\n"
)


def measure(trivial: int = 1000, mix: int = 60) -> list[Row]:
    """Run so many programs of both loads both ways: the trivial ones with 1, 100 and all in flight.

    Of those in flight as many run at a time as there are slots, which is one for each core.
    """
    small = [(Program("print(int(input()) + 1)"), Suite((Case("1", "2"),), "lines", LIMITS))] * trivial
    known = os.environ.get("EVORUN_KNOWN_SOLUTIONS")
    mixed = list(islice(known_correct(Path(known)) if known else generated(), mix))
    loads = [
        *((f"a trivial test, {flight} in flight", small, "", flight) for flight in (1, 100, trivial)),
        ("a mix of programs", mixed, PRELUDE, mix),
    ]
    rows: list[Row] = []
    for name, jobs, prelude, in_flight in loads:
        n_tests = sum(len(suite.cases) for _, suite in jobs)
        ours, isolation, accepted = asyncio.run(in_sandbox(jobs, in_flight))
        plain = plainly(jobs, prelude, in_flight)
        if accepted != n_tests:
            raise RuntimeError(f"{n_tests - accepted} of {n_tests} tests of known-correct programs failed")
        rows += [
            Row(f"{name}: {isolation}", n_tests / ours, "tests/s", "", None),
            Row(f"... {name}: subprocess.run([python, file])", n_tests / plain, "tests/s", "", None),
            Row(f"... {name}: ratio", plain / ours, "x", f">= {TARGET:g}", plain >= TARGET * ours),
        ]
    return rows


async def in_sandbox(jobs: list[Job], in_flight: int) -> tuple[float, str, int]:
    """Return the seconds that it took, the isolation, and how many tests were accepted."""
    sandbox = await Sandbox.open(SandboxConfig())
    await asyncio.gather(*(sandbox.run(Program(""), "", LIMITS) for _ in range(sandbox.slots)))
    free = asyncio.Semaphore(in_flight)

    async def one(program: Program, suite: Suite) -> tuple[CaseResult, ...]:
        async with free:
            return await test(sandbox, program, suite, stop_at_failure=True)

    started = time.perf_counter()
    results = await asyncio.gather(*(one(program, suite) for program, suite in jobs))
    seconds = time.perf_counter() - started
    await sandbox.close()
    return seconds, sandbox.isolation, sum(result.verdict == "accepted" for found in results for result in found)


def plainly(jobs: list[Job], prelude: str, in_flight: int) -> float:
    """Return the seconds of the plain loop: a fresh interpreter for each test, no limits, no isolation."""
    at_a_time = min(in_flight, len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(at_a_time) as pool:
        runs: list[tuple[Path, str]] = []
        for number, (program, suite) in enumerate(jobs):
            path = Path(folder) / f"{number}.py"
            path.write_text(prelude + program.source + call_of(program), encoding="utf-8")
            runs += [(path, case.stdin) for case in suite.cases]
        started = time.perf_counter()
        list(pool.map(lambda run: run_plainly(*run), runs))
        return time.perf_counter() - started


def run_plainly(path: Path, stdin: str) -> None:
    subprocess.run([sys._base_executable, path], input=stdin, capture_output=True, text=True, check=True)  # type: ignore[attr-defined]


def call_of(program: Program) -> str:
    if program.entry is None:
        return ""
    owner, _, name = program.entry.rpartition(".")
    return CALL.format(call=f"{owner}().{name}" if owner else name)


def known_correct(folder: Path) -> Iterator[Job]:
    """Yield the first correct solution of each problem, with all tests."""
    for line in (folder / "lcb_with_tests.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        source = next((s["code"] for s in record["solutions"] if s["verdict"] == "correct"), None)
        if source is not None:
            functional = record["kind"] == "functional"
            cases = tuple(Case(t["input"], t["output"]) for t in record["public_tests"] + record["hidden_tests"])
            program = Program(source, f"Solution.{record['func_name']}" if functional else None)
            yield program, Suite(cases, "json" if functional else "lines", LIMITS)


def generated() -> Iterator[Job]:
    """Yield sums, sorting and a small dynamic programme over lists of some hundred numbers."""
    bodies: dict[str, Callable[[list[int]], object]] = {
        "return sum(x)": sum,
        "return sorted(x)": sorted,
        "best = [1] * len(x)\n        for i in range(len(x)):\n            for j in range(i):\n"
        "                if x[j] < x[i]: best[i] = max(best[i], best[j] + 1)\n        return max(best)": longest_rise,
    }
    for number in count():
        body, oracle = list(bodies.items())[number % len(bodies)]
        program = Program(f"class Solution:\n    def f(self, x: List[int]):\n        {body}\n", "Solution.f")
        inputs = [[(i * k + number) % 997 for i in range(200)] for k in range(3, 18)]
        cases = tuple(Case(json.dumps(x), json.dumps(oracle(x))) for x in inputs)
        yield program, Suite(cases, "json", LIMITS)


def longest_rise(x: list[int]) -> int:
    best: list[int] = []
    for i, value in enumerate(x):
        best.append(1 + max((best[j] for j in range(i) if x[j] < value), default=0))
    return max(best)
