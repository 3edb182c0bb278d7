"""Grading and public tests, through a real sandbox."""

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from building import load_task
from evorun.errors import DataError
from evorun.runs.candidates import Response
from evorun.sandbox.base import Case, CaseResult, Limits, Program, Suite
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.lazy import LazySandbox
from evorun.tasks.base import LoadedTask, Problem
from evorun.tasks.livecodebench import files
from evorun.tasks.livecodebench.feedback import feedback_of
from evorun.tasks.livecodebench.task import LiveCodeBench

RECORDS = {record["id"]: record for record in map(json.loads, files.SAMPLE.read_bytes().splitlines())}
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


async def test_reference_programs_pass_and_wrong_ones_fail_a_hidden_test_only(tools: LazySandbox) -> None:
    task = LOADED.task
    assert isinstance(task, LiveCodeBench)
    assert PROBLEMS.keys() == RECORDS.keys()
    for identity, problem in PROBLEMS.items():
        right, wrong = (answered(program_of(identity, verdict)) for verdict in ("correct", "wrong"))
        grade = await LOADED.grader.grade(problem, right, tools)
        assert (grade.correct, grade.detail) == (True, "accepted on all 12 hidden tests"), identity
        grade = await LOADED.grader.grade(problem, wrong, tools)
        assert not grade.correct, identity
        assert grade.detail.startswith("wrong_answer at hidden test "), identity
        assert grade.detail.endswith(" of 12"), identity
        for response in (right, wrong):
            feedback = (await task.observe(problem, response, tools)).feedback
            assert feedback is not None
            assert feedback.score == 1, identity


async def test_a_script_will_do_where_starter_code_is_given(tools: LazySandbox) -> None:
    functional = [identity for identity, record in RECORDS.items() if record["func_name"]]
    assert len(functional) == 12
    for identity in functional:
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
    loaded = load_task("livecodebench", source="sample", validation_per_stratum=0, time_limit_s=0.5)
    grade = await loaded.grader.grade(PROBLEMS["sample/easy/late_buses"], answered(source), tools)
    assert (grade.correct, grade.detail) == (False, detail)


async def test_the_grader_knows_the_validation_split_and_refuses_strangers(tools: LazySandbox) -> None:
    loaded = load_task("livecodebench", source="sample")
    for shot in loaded.validation:
        assert (await loaded.grader.grade(shot.problem, answered(shot.answer), tools)).correct
    stranger = msgspec.structs.replace(loaded.problems[0], id="other")
    with pytest.raises(DataError, match="'other'"):
        await loaded.grader.grade(stranger, answered("pass"), tools)


# --- public tests ---


def adder(**data: Any) -> Problem:
    tests = tuple({"input": f"{n}\n", "output": f"{n + 1}\n"} for n in range(4))
    return Problem(id="adder", stratum="easy", data={"func_name": None, "public_tests": tests, **data})


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
        ("while True: pass", {"cpu_seconds": 0.3}, "stopped after 0.3 seconds"),
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


class Recorder:
    """Notes what it is asked to run."""

    def __init__(self) -> None:
        self.suites: list[Suite] = []
        self.stops: list[bool] = []

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> tuple[CaseResult, ...]:
        self.suites.append(suite)
        self.stops.append(stop_at_failure)
        return (ACCEPTED,) * len(suite.cases)


async def test_every_problem_has_one_suite_object_for_all_its_programs() -> None:
    recorder = Recorder()
    problem, task = PROBLEMS["sample/hard/toll_passes"], LOADED.task
    assert isinstance(task, LiveCodeBench)
    for source in ("a", "b"):
        await task.observe(problem, answered(source), recorder)
        await LOADED.grader.grade(problem, answered(source), recorder)
    assert len({id(suite) for suite in recorder.suites}) == 2
    assert recorder.stops == [False, True] * 2
    public, hidden = recorder.suites[:2]
    assert [case.stdin for case in public.cases] == [test["input"] for test in problem.data["public_tests"]]
    assert not {case.stdin for case in public.cases} & {case.stdin for case in hidden.cases}


async def test_limits_reach_the_sandbox() -> None:
    recorder = Recorder()
    loaded: LoadedTask = load_task("livecodebench", source="sample", time_limit_s=2.5, memory_mib=300)
    task = loaded.task
    assert isinstance(task, LiveCodeBench)
    await task.observe(loaded.problems[0], answered("a"), recorder)
    await loaded.grader.grade(loaded.problems[0], answered("a"), recorder)
    assert [(s.limits.cpu_seconds, s.limits.memory_mib) for s in recorder.suites] == [(2.5, 300)] * 2


async def test_long_inputs_are_shown_by_their_ends() -> None:
    case = Case("1 2\n" * 10**4, "0")
    line = feedback_of([case], [ACCEPTED], Limits()).text.splitlines()[1]
    assert " ... " in line
    assert len(line) < 220
