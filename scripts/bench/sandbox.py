"""How fast the sandbox runs programs, beside a plain loop that starts an interpreter for each of them."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evorun.sandbox import Limits, Program, Sandbox, SandboxConfig
from evorun_bench import Row

TRIVIAL = "print(sum(map(int, input().split())))"
SOLUTIONS = (
    # a sieve, a sort with a heap, a dynamic programme, a breadth-first search: what contest solutions look like
    "import sys\nn = int(sys.stdin.read())\ns = bytearray([1]) * (n + 1)\nfor i in range(2, int(n ** 0.5) + 1):\n"
    "    if s[i]: s[i * i :: i] = bytes(len(range(i * i, n + 1, i)))\nprint(sum(s) - 2)",
    "import heapq, sys\nn = int(sys.stdin.read())\nh = [(i * 7919) % n for i in range(n)]\nheapq.heapify(h)\n"
    "print(sum(heapq.heappop(h) for _ in range(n // 2)))",
    "from functools import lru_cache\nn = int(input()) // 20\n@lru_cache(None)\ndef f(i, j):\n"
    "    return 1 if i == 0 or j == 0 else (f(i - 1, j) + f(i, j - 1)) % 998244353\n"
    "print(sum(f(i, 40) for i in range(min(n, 60))))",
    "from collections import deque, Counter\nn = int(input()) // 10\nd = {0: 0}\nq = deque([0])\n"
    "while q:\n    v = q.popleft()\n    for w in ((v * 3 + 1) % n, (v * 2) % n):\n        if w not in d:\n"
    "            d[w] = d[v] + 1\n            q.append(w)\n"
    "print(max(d.values()), Counter(d.values()).most_common(1))",
)
RUNS = 400


def measure() -> list[Row]:
    """Run a trivial program, and a mix of small solutions, on as many slots as there are cores."""
    slots = len(os.sched_getaffinity(0))
    trivial = [(TRIVIAL, "40 2")] * RUNS
    mix = [(SOLUTIONS[i % len(SOLUTIONS)], str(2000 + 10 * i)) for i in range(RUNS)]
    rows = []
    for name, work in (("one trivial test", trivial), ("a mix of small solutions", mix)):
        sandboxed, isolation = asyncio.run(_sandboxed(work, slots))
        plain = _plain(work, slots)
        ratio = sandboxed / plain
        rows += [
            Row(f"sandbox ({isolation}), {name}", sandboxed, "programs/s", "", None),
            Row(f"plain subprocess.run, {name}", plain, "programs/s", "", None),
            Row(f"sandbox over plain, {name}", ratio, "x", ">= 3", ratio >= 3),
        ]
    return rows


async def _sandboxed(work: Sequence[tuple[str, str]], slots: int) -> tuple[float, str]:
    sandbox = await Sandbox.open(SandboxConfig(slots=slots))
    try:
        await asyncio.gather(*(sandbox.run(Program(TRIVIAL), "1 2", Limits()) for _ in range(2 * slots)))  # all awake
        started = time.perf_counter()
        done = await asyncio.gather(*(sandbox.run(Program(source), stdin, Limits()) for source, stdin in work))
        seconds = time.perf_counter() - started
    finally:
        await sandbox.close()
    if any(execution.end != "completed" for execution in done):
        raise RuntimeError("a program of the benchmark failed in the sandbox")
    return len(work) / seconds, sandbox.isolation


def _plain(work: Sequence[tuple[str, str]], threads: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        files = {source: Path(folder) / f"{i}.py" for i, source in enumerate(dict.fromkeys(s for s, _ in work))}
        for source, file in files.items():
            file.write_text(source)

        def run(one: tuple[str, str]) -> None:
            subprocess.run([sys.executable, files[one[0]]], input=one[1], text=True, capture_output=True, check=True)

        started = time.perf_counter()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, work))
        return len(work) / (time.perf_counter() - started)
