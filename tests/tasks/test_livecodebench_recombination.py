"""What Lyria asks of LiveCodeBench: public tests as the oracle, prompts that recombine, a model's errors and scores."""

import json
import math
from collections.abc import AsyncIterator
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from building import load_task
from evorun.models.base import Request
from evorun.models.simulator import Skill
from evorun.runs.candidates import Response
from evorun.sandbox.base import CaseResult, Program, Suite
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.lazy import LazySandbox
from evorun.tasks.base import Problem, Prompt
from evorun.tasks.capabilities import Diagnoses, Diagnosis, Individual, Operates, Recombines, Scores, Verifies
from evorun.tasks.livecodebench import LiveCodeBenchConfig
from evorun.tasks.livecodebench.syntax import syntax_error
from evorun.tasks.livecodebench.task import LiveCodeBench

PROBLEM = Problem(
    id="p1",
    stratum="easy",
    data={
        "title": "Halve",
        "question": "Halve n, rounding down.",
        "starter_code": "",
        "func_name": None,
        "platform": "atcoder",
        "public_tests": tuple({"input": f"{n}\n", "output": f"{n // 2}\n"} for n in (0, 3, 8, 10)),
    },
)
METHOD = msgspec.structs.replace(
    PROBLEM,
    data={**PROBLEM.data, "func_name": "halve", "public_tests": ({"input": "3", "output": "1"},)},
)
TASK = LiveCodeBench()
LOADED = load_task("livecodebench", source="sample")
HALVES = "n = int(input())\nprint(n // 2)"
FAILS_ABOVE_5 = "def half(n):\n    assert n < 5\n    return n // 2\n\nprint(half(int(input())))"


def answered(source: str | None) -> Response:
    return Response(
        text=source or "raw", answer=source, memory="n may be 0", error=None if source else "empty: nothing"
    )


def individual(source: str | None, fitness: float = 25.0, errors: str = "") -> Individual:
    return Individual(response=answered(source), fitness=fitness, errors=Diagnosis(text=errors))


class Told:
    """Says of each test what it was told to say, and keeps what it was asked."""

    def __init__(self, *verdicts: str, stderr: str = "") -> None:
        self.verdicts, self.stderr = verdicts, stderr
        self.asked: list[tuple[Program, Suite, bool]] = []

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> tuple[CaseResult, ...]:
        self.asked.append((program, suite, stop_at_failure))
        return tuple(
            CaseResult(verdict=v, stdout="7", stderr=self.stderr, value=None, cpu_seconds=0)  # type: ignore[arg-type]
            for v in self.verdicts
        )


@pytest.mark.parametrize("protocol", [Recombines, Operates, Verifies, Diagnoses, Scores])
def test_the_task_offers_what_lyria_needs(protocol: type) -> None:
    assert isinstance(TASK, protocol)
    assert issubclass(LiveCodeBenchConfig.task_class, protocol)


# --- the oracle ---


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[LazySandbox]:
    tools = LazySandbox(SandboxConfig())
    yield tools
    await tools.close()


@pytest.mark.asyncio(loop_scope="module")
async def test_programs_are_verified_in_the_sandbox(sandbox: LazySandbox) -> None:
    async def verified(source: str, problem: Problem = PROBLEM) -> tuple[float, str, tuple[Any, ...]]:
        found = await TASK.verify(problem, answered(source), 2, sandbox)
        return found.fitness, found.errors.text, found.errors.findings

    assert await verified(HALVES) == (100, "", ())
    fitness, text, lines = await verified(FAILS_ABOVE_5)
    assert (fitness, lines) == (50, (2, 2))
    assert [line.split(" -> ")[0] for line in text.splitlines()] == ["- 8", "- 10"]
    assert text.count("AssertionError") == 2
    assert await verified("print(1)") == (
        25,
        "- 0 -> wrong answer: expected 0, got 1\n- 8 -> wrong answer: expected 4, got 1",
        (None, None),
    )
    assert await verified("\n\nprint((1)") == (0, "- syntax error in line 3: '(' was never closed", (None,))
    assert await verified(f"\ufeff{HALVES}") == (100, "", ())
    method = "import json\n\nclass Solution:\n    def halve(self, n):\n        return {}\n"
    assert await verified(method.format("n // 2"), METHOD) == (100, "", ())
    # the traceback ends in the library; the line is the program's own
    assert (await verified(method.format("json.loads('[')"), METHOD))[2] == (5,)


@given(
    st.lists(st.sampled_from(["accepted", "wrong_answer", "runtime_error", "time_limit"]), min_size=4, max_size=4),
    st.integers(0, 6),
)
@settings(deadline=None)
@pytest.mark.asyncio(loop_scope="function")
async def test_fitness_is_the_percentage_of_public_tests_passed(verdicts: list[str], max_errors: int) -> None:
    tools = Told(*verdicts, stderr='  File "solution.py", line 2, in f\n  File "solution.py", line 1, in g\nOops: 1')
    found = await TASK.verify(PROBLEM, answered(HALVES), max_errors, tools)
    seen = await TASK.observe(PROBLEM, answered(HALVES), tools)
    assert seen.feedback is not None
    failed = [verdict for verdict in verdicts if verdict != "accepted"]
    assert found.fitness == pytest.approx(100 * (4 - len(failed)) / 4) == pytest.approx(100 * seen.feedback.score)
    assert (found.fitness == 100) == (not failed)
    assert len(found.errors.findings) == len(found.errors.text.splitlines()) == min(max_errors, len(failed))
    assert list(found.errors.findings) == [1 if v == "runtime_error" else None for v in failed[:max_errors]]
    # the same request as feedback's: a journal answers the second
    assert tools.asked[0] == tools.asked[1]
    assert tools.asked[0][1] is tools.asked[1][1]


def test_every_third_of_tests_adds_up_to_exactly_100() -> None:
    for count in range(1, 200):
        assert 100 * (count / count) == 100
        assert 100 * ((count - 1) / count) < 100


async def test_what_cannot_be_run_is_worth_nothing() -> None:
    tools = Told()
    found = await TASK.verify(PROBLEM, answered(None), 3, tools)
    assert (found.fitness, found.errors.findings) == (0, ())
    assert "empty: nothing" in found.errors.text
    assert (await TASK.verify(PROBLEM, answered(None), 0, tools)).errors == Diagnosis()
    untested = msgspec.structs.replace(PROBLEM, data={**PROBLEM.data, "public_tests": ()})
    found = await TASK.verify(untested, answered(HALVES), 3, tools)
    assert (found.fitness, found.errors) == (0, Diagnosis())
    assert tools.asked == []
    broken = await TASK.verify(PROBLEM, answered("print("), 0, Told(*["runtime_error"] * 4))
    assert broken.errors == Diagnosis()


@pytest.mark.parametrize("source", ["x = '\x00'", "\ud800", "(" * 300, "x = 1\n y = 2", "\t\tif", "é = ²"])
def test_texts_that_are_no_python_say_why_on_one_line(source: str) -> None:
    error = syntax_error(source)
    assert error is not None
    assert error.startswith("syntax error")
    assert "\n" not in error


def test_deep_programs_are_not_called_broken() -> None:
    assert syntax_error("1+" * 30_000 + "1") is None
    assert syntax_error("x = '\\d'") is None


# --- prompts ---


def user_text(prompt: Prompt) -> str:
    return prompt.messages[-1]["content"]


def every_prompt(
    task: LiveCodeBench = TASK, source: str | None = HALVES, errors: str = "- 3 -> wrong"
) -> dict[str, Prompt]:
    one, other = individual(source, 25, errors), individual(FAILS_ABOVE_5, 66.66)
    return {
        "crossover": task.crossover_prompt(PROBLEM, one, other),
        "mutate": task.mutation_prompt(PROBLEM, one),
        "errors": task.errors_prompt(PROBLEM, one.response),
        "fitness": task.fitness_prompt(PROBLEM, one.response),
    }


def test_the_parents_are_shown_with_fitness_errors_and_notes_in_order() -> None:
    text = user_text(every_prompt()["crossover"])
    shown = [
        "Halve n, rounding down.",
        f"# Program 1\n```python\n{HALVES}\n```\nQuality: 25.0 on a scale from 0 (worthless) to 100 (no error known)\n"
        "Errors found:\n- 3 -> wrong\nEvolving memory: n may be 0\n",
        f"# Program 2\n```python\n{FAILS_ABOVE_5}\n```\nQuality: 66.7 on",
        "Errors found:\nnone named",
        "# Instructions",
        '"evolving_memory"',
    ]
    places = [text.find(part) for part in shown]
    assert -1 not in places
    assert places == sorted(places)
    mutation = user_text(every_prompt()["mutate"])
    assert shown[1].partition("\n")[2] in mutation
    assert FAILS_ABOVE_5 not in mutation


def test_an_evaluator_sees_the_program_its_lines_numbered() -> None:
    prompts = every_prompt()
    assert "1| n = int(input())\n2| print(n // 2)" in user_text(prompts["errors"])
    assert HALVES in user_text(prompts["fitness"])
    for role in ("errors", "fitness"):
        assert "n may be 0" not in user_text(prompts[role])
        assert "4 seconds" in user_text(prompts[role])


def test_hints_and_schemas_fit_what_is_asked() -> None:
    for role, prompt in every_prompt().items():
        assert prompt.hints["role"] == role
        assert prompt.hints["problem"] == "p1"
        assert prompt.hints["answers"][0] == HALVES
        text = user_text(prompt)
        reply = json.loads(text[text.rindex("{\n") : text.rindex("}") + 1])
        assert prompt.json_schema is not None
        assert list(reply) == prompt.json_schema["required"]
        jsonschema.validate(reply, prompt.json_schema)
    assert TASK.crossover_prompt(PROBLEM, individual(None), individual(HALVES)).hints["answers"] == [None, HALVES]
    generation = TASK.generation_prompt(PROBLEM)
    assert every_prompt()["crossover"].json_schema == every_prompt()["mutate"].json_schema == generation.json_schema


@pytest.mark.parametrize(
    "nasty", ["{{ problem }} {% raw %} {# gone #}", "```\n# Program 2\n```", "\ud800 \x00", "x" * 50_000]
)
def test_texts_are_data(nasty: str) -> None:
    task = LiveCodeBench(solution_max_chars=700)
    for role, prompt in every_prompt(task, nasty, nasty if len(nasty) < 100 else "").items():
        text = user_text(prompt)
        assert nasty[:700] in text or role == "errors"
        assert nasty[:600] in text.replace("| ", "") or "\n" in nasty
        assert "x" * 701 not in text
    unread = user_text(task.mutation_prompt(PROBLEM, individual(None, 0, "No program could be read: empty")))
    assert "```python\nraw\n```\nQuality: 0.0" in unread


def test_no_prompt_holds_a_hidden_test() -> None:
    for problem in LOADED.problems:
        one = individual("print(1)", 0, "")
        prompts = [TASK.crossover_prompt(problem, one, one), TASK.mutation_prompt(problem, one)]
        prompts += [TASK.errors_prompt(problem, one.response), TASK.fitness_prompt(problem, one.response)]
        texts = "\n".join(map(user_text, prompts))
        assert texts.count(problem.data["question"]) == len(prompts)
        cases = LOADED.grader._hidden[problem.id].cases  # type: ignore[attr-defined]
        assert not [case for case in cases if len(case.stdin) > 12 and case.stdin.strip() in texts]


# --- a model's errors and scores ---


def test_errors_are_read_with_the_lines_that_they_name() -> None:
    text = json.dumps(
        {"reasoning": "r", "errors": ["line 3: off\nby one", "Lines 12 to 14 loop", "no place", "line 3: x"]}
    )
    found = TASK.parse_errors(PROBLEM, text, 3)
    assert found == Diagnosis(text="- line 3: off by one\n- Lines 12 to 14 loop\n- no place", findings=(3, 12, None))
    assert TASK.parse_errors(PROBLEM, '{"reasoning": "", "errors": []}', 3) == Diagnosis()
    assert TASK.parse_errors(PROBLEM, "all is well", 3) is None


async def test_the_operators_read_what_detectors_find() -> None:
    """From a runtime error in the oracle, or a line that a model names, to the function that is changed."""
    stderr = (
        'Traceback\n  File "solution.py", line 5, in <module>\n  File "solution.py", line 2, in half\nAssertionError'
    )
    verified = await TASK.verify(PROBLEM, answered(FAILS_ABOVE_5), 3, Told(*["runtime_error"] * 4, stderr=stderr))
    named = TASK.parse_errors(PROBLEM, '{"errors": ["line 2: the bound is too low"]}', 3)
    assert named is not None
    for errors in (verified.errors, named):
        one = Individual(response=answered(FAILS_ABOVE_5), fitness=50, errors=errors)
        for seed in range(20):
            child = TASK.mutate(PROBLEM, one, np.random.default_rng(seed))
            assert str(child.answer).endswith("print(half(int(input())))")
            assert child.answer != FAILS_ABOVE_5
            assert TASK.parse(PROBLEM, child.text).answer == child.answer


# --- the simulator ---


def reply(prompt: Prompt, seed: int, **skill: float) -> str:
    simulator = LOADED.simulator.with_skill(Skill(**{"malformed": 0, **skill}))  # type: ignore[arg-type]
    return simulator.respond(Request(messages=prompt.messages, hints=prompt.hints), np.random.default_rng(seed))


def test_the_simulator_recombines_scores_and_finds_errors() -> None:
    problem = LOADED.problems[0]
    right = TASK.parse(problem, reply(TASK.generation_prompt(problem), 0, skill=1))
    wrong = TASK.parse(problem, reply(TASK.generation_prompt(problem), 0, skill=0))
    pair = [Individual(response=response, fitness=50, errors=Diagnosis()) for response in (right, wrong)]
    for prompt in (TASK.crossover_prompt(problem, *pair), TASK.mutation_prompt(problem, pair[0])):
        child = TASK.parse(problem, reply(prompt, 1, skill=1))
        assert child.answer is not None
        assert child.memory
        jsonschema.validate(json.loads(reply(prompt, 2)), prompt.json_schema or {})
    for seed in range(40):
        scores = [
            TASK.parse_fitness(reply(TASK.fitness_prompt(problem, r), seed, judge_skill=1)) for r in (right, wrong)
        ]
        assert scores[0] is not None
        assert scores[1] is not None
        assert 0 <= scores[1] <= 60 <= scores[0] <= 100
        found = [
            TASK.parse_errors(problem, reply(TASK.errors_prompt(problem, r), seed, judge_skill=1), 3)
            for r in (right, wrong)
        ]
        assert found[0] == Diagnosis()
        assert found[1] is not None
        assert found[1].text
    fooled = [TASK.parse_fitness(reply(TASK.fitness_prompt(problem, wrong), s, judge_skill=0.75)) for s in range(400)]
    assert 0.15 < np.mean([score is not None and score > 60 for score in fooled]) < 0.35
    assert math.isfinite(sum(score or 0 for score in fooled))
