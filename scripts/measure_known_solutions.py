"""Run known right and wrong programs up to their first failure, and print the sandbox's verdicts beside the recorded.

    python scripts/measure_known_solutions.py FOLDER [--isolation auto] [--limit 20]

FOLDER holds lcb_with_tests.jsonl, lcb_stdin_samples.jsonl and quixbugs.jsonl: problems with tests, and solutions with
a recorded `verdict` (correct, wrong, timeout_or_skipped) and, for some, each test's status or the input that they fail
on. For each file: a table of recorded labels against verdicts, then every disagreement, with its reason where one can
be found.
"""

import argparse
import asyncio
import collections
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evorun.cli.compose import yaml_values
from evorun.sandbox import Case, CaseResult, Check, Limits, Program, Sandbox, SandboxConfig, Suite, same_output, test

LIMITS = Limits(cpu_seconds=6.0)
QUIXBUGS_LIMITS = Limits(cpu_seconds=2.0)
ERRATA = yaml_values("task", "livecodebench")["exclude"]

AGREES = {
    "correct": {"accepted"},
    "wrong": {"wrong_answer", "runtime_error", "memory_limit", "output_limit"},
    "wrong or endless": {"wrong_answer", "runtime_error", "memory_limit", "output_limit", "time_limit"},
    "timeout_or_skipped": {"time_limit"},
    "wrong_answer": {"wrong_answer"},
    "runtime_error": {"runtime_error", "memory_limit"},
    "compile_error": {"runtime_error"},
    "timeout": {"time_limit"},
}
"""Verdicts that agree with a recorded label, or with the recorded status of the test that failed first."""


class Known(NamedTuple):
    """A program with its recorded result."""

    id: str
    program: Program
    suite: Suite
    n_public: int
    label: str
    failing: int | None
    """The test that failed first, where the source says so."""
    status: str
    """The recorded status of that test; without one, the label."""
    remarks: tuple[str, ...]
    """Other explanations of a disagreement."""


class Outcome(NamedTuple):
    """A program's results, the last of which is its first failure, if it has one."""

    known: Known
    results: tuple[CaseResult, ...]

    @property
    def verdict(self) -> str:
        """The first verdict that is not `accepted`."""
        return self.results[-1].verdict

    @property
    def failing(self) -> int | None:
        """The test that failed first."""
        return None if self.verdict == "accepted" else len(self.results) - 1

    @property
    def agrees(self) -> bool:
        """The program ended as its source says, and at the test that its source names."""
        return self.verdict in AGREES[self.known.status] and self.known.failing in (None, self.failing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--isolation", default="auto")
    parser.add_argument("--limit", type=int, help="programs of each file")
    options = parser.parse_args()
    asyncio.run(measure(options.folder, options.isolation, options.limit))


async def measure(folder: Path, isolation: str, limit: int | None) -> None:
    """Run all programs, one file at a time, and print the results."""
    sandbox = await Sandbox.open(SandboxConfig(isolation=isolation))
    print(f"{sandbox.slots} slots, {sandbox.isolation}")
    try:
        for file, read in FILES.items():
            await measure_file(sandbox, file, list(itertools.islice(known_in(folder / file, read), limit)))
    finally:
        await sandbox.close()


async def measure_file(sandbox: Sandbox, file: str, known: list[Known]) -> None:
    started = time.perf_counter()
    outcomes = await asyncio.gather(*(first_failure(sandbox, solution) for solution in known))
    seconds = time.perf_counter() - started
    n_tests = sum(len(outcome.results) for outcome in outcomes)
    print(f"\n{file}: {len(known)} programs, {n_tests} tests, {seconds:.1f} s, {n_tests / seconds:.0f} tests/s")
    print_table(outcomes)
    disagreements = [outcome for outcome in outcomes if not outcome.agrees]
    print(f"{len(disagreements)} disagreements")
    for outcome in disagreements:
        await print_disagreement(sandbox, outcome, outcomes)


async def first_failure(sandbox: Sandbox, known: Known) -> Outcome:
    return Outcome(known, await test(sandbox, known.program, known.suite, stop_at_failure=True))


# ---- reading ----


def known_in(path: Path, read: Callable[[dict[str, Any]], Iterator[Known]]) -> Iterator[Known]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield from read(json.loads(line))


def livecodebench(record: dict[str, Any]) -> Iterator[Known]:
    functional = record["kind"] == "functional"
    check: Check = "json" if functional else "lines"
    tests = record["public_tests"] + (record["hidden_tests"] or [])
    suite = Suite(tuple(Case(t["input"], t["output"]) for t in tests), check, LIMITS)
    for number, solution in enumerate(record["solutions"]):
        failing, status = recorded_failure(solution, suite)
        yield Known(
            id=f"{record['id']}[{number}]",
            program=Program(solution["code"], f"Solution.{record['func_name']}" if functional else None),
            suite=suite,
            n_public=len(record["public_tests"]),
            label=solution["verdict"],
            failing=failing,
            status=status,
            remarks=tuple(remarks(record, solution, suite)),
        )


def recorded_failure(solution: dict[str, Any], suite: Suite) -> tuple[int | None, str]:
    for index, status in enumerate(solution.get("case_status") or []):
        if status != "pass":
            return index, status
    inputs = [case.stdin.strip() for case in suite.cases]
    fails_on = (solution.get("fails_on") or "").strip()
    return (inputs.index(fails_on) if fails_on in inputs else None), solution["verdict"]


def remarks(record: dict[str, Any], solution: dict[str, Any], suite: Suite) -> Iterator[str]:
    yield solution["origin"]
    if solution.get("note"):
        yield f"its source says: {solution['note'][:200]}"
    if not {record["id"], record["title"].lower().replace(" ", "-")}.isdisjoint(ERRATA):
        yield "data defect: the benchmark's errata name this problem"
    if record["tests_dropped"] and solution["verdict"] != "correct":
        yield f"{record['tests_dropped']} tests of the source are not in this file"
    expected, got = solution.get("expected"), solution.get("got")
    if expected and got and same_output(suite.check, expected, got, printed=True):
        yield f"the output that its source rejects counts as the expected one here: {got[:80]!r}, {expected[:80]!r}"


def quixbugs(record: dict[str, Any]) -> Iterator[Known]:
    cases = tuple(Case("\n".join(map(json.dumps, t["args"])), json.dumps(t["expected"])) for t in record["tests"])
    for number, solution in enumerate(record["solutions"]):
        label = "wrong or endless" if solution["verdict"] == "wrong" else solution["verdict"]
        yield Known(
            id=f"{record['id']}[{number}]",
            program=Program(solution["code"], record["func_name"]),
            suite=Suite(cases, "json", QUIXBUGS_LIMITS),
            n_public=0,
            label=label,
            failing=None,
            status=label,
            remarks=(),
        )


FILES = {
    "lcb_with_tests.jsonl": livecodebench,
    "lcb_stdin_samples.jsonl": livecodebench,
    "quixbugs.jsonl": quixbugs,
}


# ---- printing ----


def print_table(outcomes: Sequence[Outcome]) -> None:
    """Print how often each recorded label met each verdict."""
    counts = collections.Counter((outcome.known.label, outcome.verdict) for outcome in outcomes)
    verdicts = sorted({verdict for _, verdict in counts})
    print(f"{'recorded':20}" + "".join(f"{verdict:>15}" for verdict in verdicts))
    for label in sorted({label for label, _ in counts}):
        print(f"{label:20}" + "".join(f"{counts[label, verdict]:15}" for verdict in verdicts))


async def print_disagreement(sandbox: Sandbox, outcome: Outcome, all_outcomes: Sequence[Outcome]) -> None:
    known = outcome.known
    print(f"\n{known.id}: recorded {said(known, known.status, known.failing)}", end="; ")
    print(f"here {said(known, outcome.verdict, outcome.failing)}")
    reasons = list(known.remarks)
    if outcome.failing is not None:
        reasons += [data_defect(known.suite, outcome.failing, outcome.results[-1]), shared(outcome, all_outcomes)]
        if known.label == "correct" and outcome.verdict != "time_limit":
            reasons.append(await others(sandbox, known, outcome.failing))
    for reason in filter(None, reasons):
        print(f"  {reason}")
    if outcome.failing is not None:
        print(f"  {shown(known.suite.cases[outcome.failing], outcome.results[-1])}")


def said(known: Known, status: str, failing: int | None) -> str:
    return status if failing is None else f"{status} at {named(known, failing)}"


def named(known: Known, index: int) -> str:
    if not known.n_public:
        return f"test {index}"
    return f"{'public' if index < known.n_public else 'hidden'} test {index}"


def data_defect(suite: Suite, failing: int, result: CaseResult) -> str:
    """Return why no program can pass the test, or an empty text."""
    case = suite.cases[failing]
    if suite.check == "lines":
        remark = case.expected.strip().endswith(".") and not result.stdout.strip()
        return "data defect? a remark stands where the program prints nothing" if remark else ""
    for text in (case.expected, *case.stdin.strip().split("\n")):
        try:
            json.loads(text)
        except ValueError:
            return f"data defect: no JSON value: {text[:80]!r}"
    return ""


def shared(outcome: Outcome, all_outcomes: Sequence[Outcome]) -> str:
    """Return in words how many programs recorded as correct fail first on the same test."""
    problem = outcome.known.id.partition("[")[0]
    correct = [o for o in all_outcomes if o.known.label == "correct" and o.known.id.partition("[")[0] == problem]
    failing = [o for o in correct if o.failing == outcome.failing]
    if len(failing) < 2:
        return ""
    suspicion = "; a data defect?" if len(failing) == len(correct) else ""
    return f"{len(failing)} of the problem's {len(correct)} correct programs fail first on this test{suspicion}"


async def others(sandbox: Sandbox, known: Known, failing: int) -> str:
    """Run the tests after the first failure, and return in words which of them fail."""
    rest = Suite(known.suite.cases[failing + 1 :], known.suite.check, known.suite.limits)
    results = await test(sandbox, known.program, rest, stop_at_failure=False)
    failed = [i for i, result in enumerate(results, start=failing + 1) if result.verdict != "accepted"]
    if not failed:
        return f"fails {named(known, failing)} only; passes the other {len(known.suite.cases) - 1}"
    names = ", ".join(named(known, index) for index in [failing, *failed])
    return f"fails {len(failed) + 1} of {len(known.suite.cases)} tests: {names}"


def shown(case: Case, result: CaseResult) -> str:
    texts = {
        "stdin": case.stdin,
        "expected": case.expected,
        "stdout": result.stdout,
        "value": result.value,
        "stderr": result.stderr[-300:],
    }
    cut = {name: text[-200:] if name == "stderr" else text[:200] for name, text in texts.items() if text}
    return f"{json.dumps(cut)} {result.cpu_seconds:.2f} s"


if __name__ == "__main__":
    main()
