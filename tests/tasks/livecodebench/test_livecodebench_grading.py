"""Grading and public tests, as feedback and as Lyria's oracle, through a real sandbox."""

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import numpy as np
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from building import load_task
from evorun.errors import DataError
from evorun.runs.candidates import Response
from evorun.sandbox.base import Case, CaseResult, Limits, Program, Suite
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.lazy import LazySandbox
from evorun.tasks.base import LoadedTask, Problem
from evorun.tasks.capabilities import Diagnosis, Individual
from evorun.tasks.livecodebench import problems
from evorun.tasks.livecodebench.feedback import make_feedback
from evorun.tasks.livecodebench.task import LiveCodeBench

RECORDS = {record["id"]: record for record in map(json.loads, problems.SAMPLE.read_bytes().splitlines())}
LOADED = load_task("livecodebench", source="sample", validation_per_stratum=0)
ACCEPTED = CaseResult(verdict="accepted", stdout="", stderr="", value=None, cpu_seconds=0)
PROBLEMS = {problem.id: problem for problem in LOADED.problems}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tools() -> AsyncIterator[LazySandbox]:
    sandbox = LazySandbox(SandboxConfig())
    yield sandbox
    await sandbox.close()


def answered(source: str | None) -> Response:
    return Response(text=source or "", answer=source, error=None if source else "empty: ...")


def program_of(identity: str, verdict: str) -> str:
    [source] = [solution["code"] for solution in RECORDS[identity]["solutions"] if solution["verdict"] == verdict]
    return str(source)


def as_script(identity: str, source: str) -> str:
    """Return a Solution class as the prompts ask for it: a program that reads JSON lines and prints."""
    name = RECORDS[identity]["func_name"]
    return (
        "import sys, json\nfrom collections import *\nfrom functools import *\nfrom itertools import *\n"
        f"from math import *\nfrom typing import *\n{source}\n"
        f"print(json.dumps(Solution().{name}(*map(json.loads, sys.stdin.read().splitlines()))))"
    )


@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.nightly)], ids=["few", "all"])
async def test_reference_programs_pass_and_wrong_ones_fail_a_hidden_test_only(step: int, tools: LazySandbox) -> None:
    task = LOADED.task
    assert isinstance(task, LiveCodeBench)
    assert PROBLEMS.keys() == RECORDS.keys()
    for identity, problem in list(PROBLEMS.items())[::step]:
        right, wrong = (answered(program_of(identity, verdict)) for verdict in ("correct", "wrong"))
        grade = await LOADED.grader.grade(problem, right, tools)
        assert (grade.correct, grade.detail) == (True, "accepted on all 12 hidden tests"), identity
        grade = await LOADED.grader.grade(problem, wrong, tools)
        assert not grade.correct, identity
        assert grade.detail.startswith("wrong_answer at hidden test "), identity
        assert grade.detail.endswith(" of 12"), identity
        feedback = (await task.observe(problem, wrong, tools)).feedback
        assert feedback is not None
        assert feedback.score == 1, identity


async def test_a_script_will_do_where_starter_code_is_given(tools: LazySandbox) -> None:
    functional = [identity for identity, record in RECORDS.items() if record["func_name"]]
    assert len(functional) == 12
    for identity in functional[::6]:
        for verdict in ("correct", "wrong"):
            source = as_script(identity, program_of(identity, verdict))
            grade = await LOADED.grader.grade(PROBLEMS[identity], answered(source), tools)
            assert grade.correct == (verdict == "correct"), (identity, grade.detail)


@pytest.mark.parametrize(
    ("source", "detail"),
    [
        ("print(1", "runtime_error at hidden test 1 of 12"),
        ("raise ValueError('no')", "runtime_error at hidden test 1 of 12"),
        ("pass", "wrong_answer at hidden test 1 of 12"),
        ("while True: pass", "time_limit at hidden test 1 of 12"),
        ("x = bytearray(10**10)", "memory_limit at hidden test 1 of 12"),
        (None, "no program"),
    ],
)
async def test_other_programs_are_wrong_and_the_detail_says_how(
    tools: LazySandbox, source: str | None, detail: str
) -> None:
    loaded = load_task("livecodebench", source="sample", validation_per_stratum=0, time_limit_s=0.3)
    grade = await loaded.grader.grade(PROBLEMS["sample/easy/late_buses"], answered(source), tools)
    assert (grade.correct, grade.detail) == (False, detail)


async def test_the_grader_knows_the_validation_split_and_refuses_strangers(tools: LazySandbox) -> None:
    loaded = load_task("livecodebench", source="sample")
    for shot in loaded.validation[:2]:
        assert (await loaded.grader.grade(shot.problem, answered(shot.answer), tools)).correct
    stranger = msgspec.structs.replace(loaded.problems[0], id="other")
    with pytest.raises(DataError, match="'other'"):
        await loaded.grader.grade(stranger, answered("pass"), tools)


# --- public tests ---


def adder(id: str = "adder", **data: Any) -> Problem:
    tests = tuple({"input": f"{n}\n", "output": f"{n + 1}\n"} for n in range(4))
    return Problem(id=id, stratum="easy", data={"func_name": None, "public_tests": tests, **data})


async def observed(tools: LazySandbox, source: str, **limits: Any) -> tuple[str, float]:
    task = LiveCodeBench(limits=Limits(**limits))
    feedback = (await task.observe(adder(), answered(source), tools)).feedback
    assert feedback is not None
    return feedback.text, feedback.score


async def test_feedback_shows_failures_first_and_three_tests(tools: LazySandbox) -> None:
    text, score = await observed(tools, "n = int(input())\nprint(n + 1 if n < 3 else 0)")
    assert score == 0.75
    assert text == "3 of 4 passed\n- 3 -> wrong answer: expected 4, got 0\n- 0 -> passed\n- 1 -> passed"


@pytest.mark.parametrize(
    ("source", "limits", "outcome"),
    [
        ("print(int(input()) + 1)", {}, "passed"),
        ("pass", {}, "wrong answer: expected 1, got no output"),
        ("print('x' * 10**4)", {}, f"wrong answer: expected 1, got {'x' * 97} ... {'x' * 97}"),
        ("print(1", {}, "SyntaxError: '(' was never closed"),
        ("raise ValueError('too ' + 'long ' * 999)", {}, "long long"),
        ("while True: pass", {"cpu_seconds": 0.05}, "stopped after 0.05 seconds"),
        ("x = bytearray(10**10)", {"memory_mib": 256}, "stopped at 256 MiB of memory"),
        ("print('x' * 10**7)", {}, "stopped for printing too much"),
    ],
)
async def test_each_outcome_is_told_in_short(
    tools: LazySandbox, source: str, limits: dict[str, Any], outcome: str
) -> None:
    text, score = await observed(tools, source, **limits)
    assert score == (outcome == "passed")
    first = text.splitlines()[1]
    assert first.startswith("- 0 -> ")
    assert outcome in first
    assert len(first) < 500


async def test_a_problem_without_public_tests_gives_no_feedback(tools: LazySandbox) -> None:
    response = answered("print(1)")
    assert await LiveCodeBench().observe(adder(public_tests=()), response, tools) is response


class Told:
    """Says of each test what it was told to say, else that it passed, and keeps what it was asked."""

    def __init__(self, *verdicts: str, stderr: str = "") -> None:
        self.verdicts, self.stderr = verdicts, stderr
        self.suites: list[Suite] = []
        self.asked: list[tuple[Program, bool]] = []

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> tuple[CaseResult, ...]:
        self.suites.append(suite)
        self.asked.append((program, stop_at_failure))
        verdicts = self.verdicts or ("accepted",) * len(suite.cases)
        return tuple(
            CaseResult(verdict=v, stdout="7", stderr=self.stderr, value=None, cpu_seconds=0)  # type: ignore[arg-type]
            for v in verdicts
        )


async def test_every_problem_has_one_suite_object_for_all_its_programs() -> None:
    recorder = Told()
    problem, task = PROBLEMS["sample/hard/toll_passes"], LOADED.task
    assert isinstance(task, LiveCodeBench)
    for source in ("a", "b"):
        await task.observe(problem, answered(source), recorder)
        await LOADED.grader.grade(problem, answered(source), recorder)
    assert len({id(suite) for suite in recorder.suites}) == 2
    assert [stop for _, stop in recorder.asked] == [False, True] * 2
    public, hidden = recorder.suites[:2]
    assert [case.stdin for case in public.cases] == [test["input"] for test in problem.data["public_tests"]]
    assert not {case.stdin for case in public.cases} & {case.stdin for case in hidden.cases}
    await task.observe(adder(id=problem.id), answered("a"), recorder)  # of the same id, and another one
    assert len(recorder.suites[-1].cases) == 4


async def test_limits_reach_the_sandbox() -> None:
    recorder = Told()
    loaded: LoadedTask = load_task("livecodebench", source="sample", time_limit_s=2.5, memory_mib=300)
    task = loaded.task
    assert isinstance(task, LiveCodeBench)
    await task.observe(loaded.problems[0], answered("a"), recorder)
    await loaded.grader.grade(loaded.problems[0], answered("a"), recorder)
    assert [(s.limits.cpu_seconds, s.limits.memory_mib) for s in recorder.suites] == [(2.5, 300)] * 2


async def test_long_inputs_are_shown_by_their_ends() -> None:
    case = Case("1 2\n" * 10**4, "0")
    line = make_feedback([case], [ACCEPTED], Limits()).text.splitlines()[1]
    assert " ... " in line
    assert len(line) < 220


# --- as the oracle ---

ADDS = "print(int(input()) + 1)"
FAILS_ABOVE_1 = "def more(n):\n    assert n < 2\n    return n + 1\n\nprint(more(int(input())))"
TASK = LiveCodeBench()


async def test_programs_are_verified_in_the_sandbox(tools: LazySandbox) -> None:
    async def verified(source: str, **data: Any) -> tuple[float, str, tuple[Any, ...]]:
        found = await TASK.verify(adder(**data), answered(source), 2, tools)
        return found.fitness, found.errors.text, found.errors.findings

    assert await verified(ADDS) == await verified(f"\ufeff{ADDS}") == (100, "", ())
    fitness, text, lines = await verified(FAILS_ABOVE_1)
    assert (fitness, lines) == (50, (2, 2))
    assert [line.split(" -> ")[0] for line in text.splitlines()] == ["- 2", "- 3"]
    assert text.count("AssertionError") == 2
    shown = "- 0 -> wrong answer: expected 1, got 3\n- 1 -> wrong answer: expected 2, got 3"
    assert await verified("print(3)") == (25, shown, (None, None))
    assert await verified("\n\nprint((1)") == (0, "- syntax error in line 3: '(' was never closed", (None,))
    method = "import json\n\nclass Solution:\n    def more(self, n):\n        return {}\n"
    assert await verified(method.format("n + 1"), func_name="more") == (100, "", ())
    # the traceback ends in the library; the line is the program's own
    assert (await verified(method.format("json.loads('[')"), func_name="more"))[2] == (5, 5)


@given(
    st.lists(st.sampled_from(["accepted", "wrong_answer", "runtime_error", "time_limit"]), min_size=4, max_size=4),
    st.integers(0, 6),
)
@pytest.mark.asyncio(loop_scope="function")
async def test_fitness_is_the_percentage_of_public_tests_passed(verdicts: list[str], max_errors: int) -> None:
    told = Told(*verdicts, stderr='  File "solution.py", line 2, in f\n  File "solution.py", line 1, in g\nOops: 1')
    problem = adder()
    found = await TASK.verify(problem, answered(ADDS), max_errors, told)
    seen = await TASK.observe(problem, answered(ADDS), told)
    assert seen.feedback is not None
    failed = [verdict for verdict in verdicts if verdict != "accepted"]
    assert found.fitness == pytest.approx(100 * (4 - len(failed)) / 4) == pytest.approx(100 * seen.feedback.score)
    assert (found.fitness == 100) == (not failed)
    assert len(found.errors.findings) == len(found.errors.text.splitlines()) == min(max_errors, len(failed))
    assert list(found.errors.findings) == [1 if v == "runtime_error" else None for v in failed[:max_errors]]
    # the same request as feedback's: a journal answers the second
    assert told.asked[0] == told.asked[1]
    assert told.suites[0] is told.suites[1]


async def test_what_cannot_be_run_is_worth_nothing() -> None:
    told = Told()
    found = await TASK.verify(adder(), answered(None), 3, told)
    assert (found.fitness, found.errors.findings) == (0, ())
    assert "empty: ..." in found.errors.text
    assert (await TASK.verify(adder(), answered(None), 0, told)).errors == Diagnosis()
    found = await TASK.verify(adder(public_tests=()), answered(ADDS), 3, told)
    assert (found.fitness, found.errors) == (0, Diagnosis())
    assert told.asked == []
    broken = await TASK.verify(adder(), answered("print("), 0, Told(*["runtime_error"] * 4))
    assert broken.errors == Diagnosis()


async def test_the_operators_read_what_detectors_find() -> None:
    """From a runtime error in the oracle, or a line that a model names, to the function that is changed."""
    stderr = (
        'Traceback\n  File "solution.py", line 5, in <module>\n  File "solution.py", line 2, in more\nAssertionError'
    )
    problem = adder()
    verified = await TASK.verify(problem, answered(FAILS_ABOVE_1), 3, Told(*["runtime_error"] * 4, stderr=stderr))
    named = TASK.parse_errors(problem, '{"errors": ["line 2: the bound is too low"]}', 3)
    assert named is not None
    for errors in (verified.errors, named):
        one = Individual(response=answered(FAILS_ABOVE_1), fitness=50, errors=errors)
        for seed in range(20):
            child = TASK.mutate(problem, one, np.random.default_rng(seed))
            assert str(child.answer).endswith("print(more(int(input())))")
            assert child.answer != FAILS_ABOVE_1
            assert TASK.parse(problem, child.text).answer == child.answer
