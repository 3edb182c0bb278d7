"""Run the known right and wrong programs of a data folder, and print recorded verdicts beside the sandbox's.

`python scripts/measure_known_solutions.py FOLDER`, where FOLDER holds lcb_with_tests.jsonl, lcb_stdin_samples.jsonl
and quixbugs.jsonl: problems with tests, and solutions with a recorded `verdict` (correct, wrong, timeout_or_skipped)
and, for some, the status of each test. Every program runs on all tests of its problem.
"""

import argparse
import asyncio
import collections
import itertools
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from evorun.sandbox import Case, CaseResult, Check, Limits, Program, Sandbox, SandboxConfig, Suite, test

LIMITS = Limits(cpu_seconds=6.0)
TOLERANT = {"quixbugs/sqrt"}
"""Problems whose tests name a tolerance as an argument: outputs are compared with it."""


class Known(NamedTuple):
    """A program with what its source says of it."""

    name: str
    file: str
    program: Program
    suite: Suite
    recorded: str
    case_status: list[str] | None
    note: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--isolation", default="strict")
    parser.add_argument("--limit", type=int, help="programs of each file")
    options = parser.parse_args()
    asyncio.run(measure(options.folder, options.isolation, options.limit))


async def measure(folder: Path, isolation: str, limit: int | None) -> None:
    """Run everything and print the tables."""
    known = [
        one for read in (lcb_with_tests, lcb_stdin_samples, quixbugs) for one in itertools.islice(read(folder), limit)
    ]
    sandbox = await Sandbox.open(SandboxConfig(isolation=isolation))
    started = time.perf_counter()
    try:
        results = await asyncio.gather(*(test(sandbox, one.program, one.suite, stop_at_failure=False) for one in known))
    finally:
        await sandbox.close()
    seconds = time.perf_counter() - started
    n_tests = sum(map(len, results))
    print(
        f"{len(known)} programs, {n_tests} tests, {seconds:.1f} s on {sandbox.slots} slots ({sandbox.isolation}): "
        f"{n_tests / seconds:.0f} tests/s"
    )
    judged = [(one, tolerated(one, found)) for one, found in zip(known, results, strict=True)]
    for file in dict.fromkeys(one.file for one in known):
        print_table(file, [(one.recorded, overall(found)) for one, found in judged if one.file == file])
    print_table(
        "single tests with a recorded status",
        [
            (status, r.verdict)
            for one, found in judged
            if one.case_status
            for status, r in zip(one.case_status, found, strict=True)
        ],
    )
    for one, found in judged:
        print_disagreement(one, found)


def lcb_with_tests(folder: Path) -> Iterator[Known]:
    for record in records(folder / "lcb_with_tests.jsonl"):
        functional = record["kind"] == "functional"
        entry = f"Solution.{record['func_name']}" if functional else None
        yield from solutions("lcb_with_tests", record, entry, "json" if functional else "lines")


def lcb_stdin_samples(folder: Path) -> Iterator[Known]:
    for record in records(folder / "lcb_stdin_samples.jsonl"):
        yield from solutions("lcb_stdin_samples", record, None, "lines")


def solutions(file: str, record: dict[str, Any], entry: str | None, check: Check) -> Iterator[Known]:
    tests = record["public_tests"] + (record["hidden_tests"] or [])
    suite = Suite(tuple(Case(t["input"], t["output"]) for t in tests), check, LIMITS)
    for number, solution in enumerate(record["solutions"]):
        note = " ".join(str(solution[key]) for key in ("origin", "note", "fails_on") if solution.get(key))
        program = Program(solution["code"], entry)
        status = solution.get("case_status")
        yield Known(f"{record['id']}[{number}]", file, program, suite, solution["verdict"], status, note)


def quixbugs(folder: Path) -> Iterator[Known]:
    for record in records(folder / "quixbugs.jsonl"):
        cases = tuple(
            Case("\n".join(map(json.dumps, test_["args"])), json.dumps(test_["expected"])) for test_ in record["tests"]
        )
        for number, solution in enumerate(record["solutions"]):
            program = Program(solution["code"], record["func_name"])
            suite = Suite(cases, "json", Limits(cpu_seconds=2.0))
            yield Known(f"{record['id']}[{number}]", "quixbugs", program, suite, solution["verdict"], None, "")


def records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def tolerated(one: Known, found: tuple[CaseResult, ...]) -> list[CaseResult]:
    """Return the results, with a wrong number accepted where the problem's last argument is a tolerance."""
    if one.name.partition("[")[0] not in TOLERANT:
        return list(found)
    return [
        CaseResult("accepted", *(getattr(r, name) for name in r.__struct_fields__[1:]))
        if r.verdict == "wrong_answer" and within_tolerance(case, r)
        else r
        for case, r in zip(one.suite.cases, found, strict=True)
    ]


def within_tolerance(case: Case, result: CaseResult) -> bool:
    tolerance = float(case.stdin.split("\n")[-1])
    return math.isclose(float(result.value or "nan"), float(case.expected), abs_tol=tolerance)


def overall(found: list[CaseResult]) -> str:
    """The first verdict that is not `accepted`."""
    return next((r.verdict for r in found if r.verdict != "accepted"), "accepted")


def print_table(title: str, pairs: list[tuple[str, str]]) -> None:
    """Print how often each recorded verdict met each of ours."""
    if not pairs:
        return
    counts = collections.Counter(pairs)
    columns = sorted({ours for _, ours in pairs})
    print(f"\n{title}\n{'recorded':20}" + "".join(f"{name:>15}" for name in columns))
    for recorded in sorted({recorded for recorded, _ in pairs}):
        print(f"{recorded:20}" + "".join(f"{counts[recorded, name]:15}" for name in columns))


AGREES = {
    "correct": {"accepted"},
    "pass": {"accepted"},
    "wrong": {"wrong_answer", "runtime_error", "memory_limit", "output_limit"},
    "wrong_answer": {"wrong_answer"},
    "runtime_error": {"runtime_error", "memory_limit"},
    "compile_error": {"runtime_error"},
    "timeout": {"time_limit"},
    "timeout_or_skipped": {"time_limit"},
}


def print_disagreement(one: Known, found: list[CaseResult]) -> None:
    """Print one line for a program, or one a test, where the record says something else."""
    if overall(found) not in AGREES[one.recorded]:
        print(f"\n{one.file} {one.name}: recorded {one.recorded}, here {overall(found)}. {one.note[:300]}")
        show_first_failure(one, found)
    for number, (status, result) in enumerate(zip(one.case_status or [], found, strict=False)):
        if status in AGREES and result.verdict not in AGREES[status]:
            print(f"{one.name} test {number}: recorded {status}, here {result.verdict}, {result.cpu_seconds:.2f} s")


def show_first_failure(one: Known, found: list[CaseResult]) -> None:
    for case, result in zip(one.suite.cases, found, strict=True):
        if result.verdict != "accepted":
            shown = {
                "stdin": case.stdin,
                "expected": case.expected,
                "stdout": result.stdout,
                "value": result.value,
                "stderr": result.stderr[-300:],
            }
            print("  " + json.dumps({k: v[:200] if v else v for k, v in shown.items()}), f"{result.cpu_seconds:.2f} s")
            return


if __name__ == "__main__":
    main()
