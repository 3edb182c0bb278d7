"""Prompts: their structure and placeholders, texts inserted as data, and what they must never hold."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from building import load_task
from evorun.errors import ConfigError
from evorun.runs.candidates import Feedback, Response
from evorun.sandbox.base import CaseResult, Program, Suite
from evorun.tasks.base import Demonstration, Problem, Prompt
from evorun.tasks.capabilities import (
    Attempt,
    Demonstrates,
    Evolves,
    Generates,
    GivesFeedback,
    Instructs,
    Judges,
    Refines,
    ScoredResponse,
)
from evorun.tasks.livecodebench import LiveCodeBenchConfig
from evorun.tasks.livecodebench.task import LiveCodeBench

STARTER = "class Solution:\n    def add(self, n: int) -> int:"
PROBLEM = Problem(
    id="p1",
    stratum="easy",
    data={
        "title": "Add One",
        "question": "Add one to n.",
        "starter_code": STARTER,
        "func_name": "add",
        "platform": "leetcode",
        "public_tests": ({"input": "1", "output": "2"}, {"input": "7\n", "output": "8\n"}),
        "kind": "functional",
    },
)
SCRIPT_PROBLEM = msgspec.structs.replace(PROBLEM, data={**PROBLEM.data, "starter_code": "", "func_name": None})
RIGHT = Response(
    text="raw right",
    answer="print(int(input()) + 1)",
    reasoning="Adding one.",
    memory="n may be 0",
    feedback=Feedback(text="2 of 2 passed\n- 1 -> passed", score=1),
)
WRONG = Response(text="raw wrong", answer="print(2)", reasoning="It is two.")
UNPARSED = Response(text="some prose", answer=None, error="no_json: ...")
TASK = LiveCodeBench()


def user_text(prompt: Prompt) -> str:
    system, user = prompt.messages
    assert system == {"role": "system", "content": "You are a helpful assistant."}
    assert user["role"] == "user"
    return user["content"]


def headings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#")]


def in_order(text: str, *parts: str) -> bool:
    places = [text.find(part) for part in parts]
    return -1 not in places and places == sorted(places)


def every_text(prompt: Prompt) -> str:
    return "\n".join(message["content"] for message in prompt.messages)


def every_prompt(problem: Problem, task: LiveCodeBench = TASK) -> dict[str, Prompt]:
    shots = [Demonstration(problem=SCRIPT_PROBLEM, answer="print(1)", reasoning="One.")]
    attempts = [Attempt(response=WRONG, outcome="first"), Attempt(response=RIGHT, outcome="won", reason="It adds.")]
    parents = [ScoredResponse(response=response, score=0.5) for response in (RIGHT, WRONG, UNPARSED)]
    return {
        "generate": task.generation_prompt(problem),
        "evolve": task.evolution_prompt(problem, parents),
        "judge": task.judge_prompt(problem, RIGHT, WRONG),
        "few_shot": task.few_shot_prompt(problem, shots),
        "refine": task.refinement_prompt(problem, RIGHT, attempts),
        "instruct": task.instructed_prompt(problem, task.seed_instruction()),
    }


@pytest.mark.parametrize("protocol", [Generates, Evolves, Judges, Demonstrates, Refines, Instructs, GivesFeedback])
def test_the_task_offers_what_the_methods_need(protocol: type) -> None:
    assert isinstance(TASK, protocol)
    assert issubclass(LiveCodeBenchConfig.task_class, protocol)


def test_generation_prompt() -> None:
    text = user_text(TASK.generation_prompt(PROBLEM))
    assert headings(text) == ["# Problem", "# Public Examples (I/O)", "# Starter Code", "# Instructions"]
    assert in_order(text, "Add one to n.", "Input:\n1\nOutput:\n2\n", "Input:\n7\nOutput:\n8\n", STARTER, "4 seconds")
    assert "# Starter Code" not in user_text(TASK.generation_prompt(SCRIPT_PROBLEM))


def test_evolution_prompt_shows_all_that_is_known_of_each_parent() -> None:
    parent = ScoredResponse(response=RIGHT, score=1.2, win_reason="It adds.", loss_reason="It is slow.")
    text = user_text(TASK.evolution_prompt(PROBLEM, [parent, ScoredResponse(response=WRONG, score=0)]))
    assert [heading.split(" (")[0] for heading in headings(text)] == [
        "# Problem",
        "# Public Examples",
        "# Starter Code",
        "# Parent Solutions",
        "# Instructions",
    ]
    assert (
        "Solution:\n```python\nprint(int(input()) + 1)\n```\nReasoning: Adding one.\nRecent win explanation: It adds.\n"
        "Recent loss explanation: It is slow.\nPublic test executions (sample):\n2 of 2 passed\n- 1 -> passed\n"
        "Evolving memory: n may be 0\n\nSolution:\n```python\nprint(2)\n```\nReasoning: It is two.\n"
        "Recent win explanation: none yet\nRecent loss explanation: none yet\nPublic test executions (sample):\n"
        "The public tests were not run.\nEvolving memory: empty"
    ) in text


def test_judge_prompt_shows_the_first_as_a_and_the_priorities_in_order() -> None:
    text = user_text(TASK.judge_prompt(PROBLEM, WRONG, RIGHT))
    assert headings(text) == [
        "# Problem",
        "# Solution A",
        "## Test Runs of A",
        "# Solution B",
        "## Test Runs of B",
        "# Limits",
        "# Task",
    ]
    assert in_order(text, "print(2)", "were not run", "print(int(input()) + 1)", "2 of 2 passed", "4 seconds")
    priorities = ["EXECUT", "INPUT PARSING", "TIME COMPLEXITY", "CORRECT", "EFFICIEN", "EDGE CASE", "BRUTE"]
    assert in_order(text, *(f"{number}. {name}" for number, name in enumerate(priorities, 1)))


def test_few_shot_prompt_shows_solved_problems_as_they_are_to_be_answered() -> None:
    shots = [
        Demonstration(problem=SCRIPT_PROBLEM, answer='print("a")\nprint(2)', reasoning="First."),
        Demonstration(problem=PROBLEM, answer="print(3)", reasoning="Second."),
    ]
    text = user_text(TASK.few_shot_prompt(PROBLEM, shots))
    replies = [line for line in text.splitlines() if line.startswith('{"')]
    assert [TASK.parse(PROBLEM, reply).answer for reply in replies] == [shot.answer for shot in shots]
    assert [TASK.parse(PROBLEM, reply).reasoning for reply in replies] == ["First.", "Second."]
    assert text.count("# Response") == 2
    assert text.count("# Problem\n") == 3
    assert "evolving_memory" not in text
    assert [heading for heading in headings(text) if heading != "# Starter Code"] == [
        "# Solved Reference Examples",
        *("# Problem", "# Public Examples (I/O)", "# Response") * 2,
        "# The Problem to Solve Now",
        "# Problem",
        "# Public Examples (I/O)",
        "# Instructions",
    ]
    assert in_order(text, "# Solved Reference Examples", "2 problems", "First.", "Second.", "# Instructions")


def test_few_shot_prompt_without_examples_does_not_speak_of_any() -> None:
    text = user_text(TASK.few_shot_prompt(SCRIPT_PROBLEM, []))
    assert headings(text) == ["# The Problem to Solve Now", "# Problem", "# Public Examples (I/O)", "# Instructions"]
    assert "---" not in text
    assert text.startswith("Solve a competitive programming problem, one step after another.\n\n# The Problem")


def test_refinement_prompt_shows_the_incumbent_and_the_attempts_in_order() -> None:
    attempts = [
        Attempt(response=WRONG, outcome="first"),
        Attempt(response=RIGHT, outcome="won", reason="It adds."),
        Attempt(response=UNPARSED, outcome="lost", reason="No program."),
        Attempt(response=WRONG, outcome="undecided", reason="Both are fine."),
    ]
    text = user_text(TASK.refinement_prompt(PROBLEM, RIGHT, attempts))
    assert in_order(
        text,
        "# Best Program So Far\n```python\nprint(int(input()) + 1)",
        "## Attempt 1: the first attempt\n```python\nprint(2)",
        "Judge: no explanation",
        "## Attempt 2: judged better",
        "Judge: It adds.",
        "2 of 2 passed",
        "## Attempt 3: judged worse",
        "some prose",
        "## Attempt 4: judged neither better nor worse",
        "Judge: Both are fine.",
    )


def test_an_instruction_takes_the_system_prompts_place() -> None:
    system, user = TASK.instructed_prompt(PROBLEM, "Be brief.").messages
    assert system == {"role": "system", "content": "Be brief."}
    assert headings(user["content"]) == ["## Problem", "## Public Test Cases", "## Starter Code"]
    assert in_order(user["content"], "Example 1\nInput:\n1\nOutput:\n2\n", "Example 2\nInput:\n7\nOutput:\n8\n")
    seed = TASK.seed_instruction()
    assert in_order(seed, "Python program", "stdin", "JSON", '"reasoning"', '"solution"')


def test_hints_tell_the_simulator_what_is_asked() -> None:
    hints = {role: prompt.hints for role, prompt in every_prompt(PROBLEM).items()}
    assert all(hint["role"] == role and hint["problem"] == "p1" for role, hint in hints.items())
    assert {role: hint["answers"] for role, hint in hints.items()} == {
        "generate": [],
        "evolve": [RIGHT.answer, WRONG.answer, None],
        "judge": [RIGHT.answer, WRONG.answer],
        "few_shot": [],
        "refine": [RIGHT.answer],
        "instruct": [],
    }
    assert hints["instruct"]["instruction"] == ""
    others = [
        TASK.instructed_prompt(PROBLEM, text).hints["instruction"] for text in ("Be brief.", "Be long.", "Be long.")
    ]
    assert others[0] != others[1] == others[2] != ""


def test_the_reflection_record_tells_of_public_tests() -> None:
    record = TASK.reflection_record(PROBLEM, RIGHT, None)
    assert in_order(record, "print(int(input()) + 1)", "Adding one.", "2 of 2 passed")
    record = TASK.reflection_record(PROBLEM, UNPARSED, Demonstration(problem=PROBLEM, answer="print(3)"))
    assert in_order(record, "no_json", "some prose", "passes every test", "print(3)")
    # the release has no solutions: a demonstration without one shows nothing
    without = TASK.reflection_record(PROBLEM, RIGHT, Demonstration(problem=PROBLEM, answer=""))
    assert without == TASK.reflection_record(PROBLEM, RIGHT, None)
    assert "passes every test" not in without


def test_a_graded_response_becomes_the_demonstration() -> None:
    shot = TASK.demonstration(Demonstration(problem=PROBLEM, answer=""), RIGHT)
    assert (shot.problem, shot.answer, shot.reasoning) == (PROBLEM, RIGHT.answer, RIGHT.reasoning)


# --- schemas ---


def test_schemas_fix_the_order_and_bound_every_text() -> None:
    task = LiveCodeBench(reasoning_max_chars=300, solution_max_chars=700)
    schemas = {role: prompt.json_schema for role, prompt in every_prompt(PROBLEM, task).items()}
    for role, schema in schemas.items():
        assert schema is not None
        assert list(schema["properties"]) == schema["required"], role
        assert all("maxLength" in field or "enum" in field for field in schema["properties"].values()), role
    generate, judge, few_shot = (schemas[role] or {} for role in ("generate", "judge", "few_shot"))
    assert generate["required"] == ["reasoning", "evolving_memory", "solution"]
    assert [field["maxLength"] for field in generate["properties"].values()] == [300, 500, 700]
    assert schemas["evolve"] == schemas["refine"] == generate
    assert few_shot["required"] == ["reasoning", "solution"]
    assert schemas["instruct"] == few_shot
    assert judge["required"] == ["reasoning", "solution"]
    assert judge["properties"]["solution"]["enum"] == ["A", "B", "T"]


def test_what_the_prompts_ask_for_is_what_the_schemas_allow() -> None:
    for role, prompt in every_prompt(PROBLEM).items():
        text = every_text(prompt)
        reply = json.loads(text[text.rindex("{\n") : text.rindex("}") + 1])
        assert prompt.json_schema is not None
        assert list(reply) == prompt.json_schema["required"], role
        if role != "judge":
            jsonschema.validate(reply, prompt.json_schema)


# --- texts are data ---


def test_long_programs_and_reasons_are_cut_where_a_prompt_shows_them() -> None:
    long = Response(text="", answer="x" * 50_000, reasoning="y" * 50_000)
    task = LiveCodeBench(reasoning_max_chars=300, shown_reasoning_chars=200, solution_max_chars=700)
    text = user_text(task.evolution_prompt(PROBLEM, [ScoredResponse(response=long, score=0)]))
    assert "x" * 700 in text
    assert "x" * 701 not in text
    assert "y" * 200 in text
    assert "y" * 201 not in text
    shot = task.demonstration(Demonstration(problem=SCRIPT_PROBLEM, answer=""), long)
    assert "y" * 50_000 in user_text(task.few_shot_prompt(PROBLEM, [shot]))


def test_template_syntax_and_markup_in_data_stay_as_they_are() -> None:
    nasty = "{{ question }} {% for x in y %} <b>&amp; {# gone? #} {{ 7 * 7 }}"
    problem = msgspec.structs.replace(PROBLEM, data={**PROBLEM.data, "question": nasty})
    response = Response(text="", answer=nasty, reasoning=nasty, memory=nasty)
    assert user_text(TASK.evolution_prompt(problem, [ScoredResponse(response=response, score=0)])).count(nasty) == 4
    assert user_text(TASK.judge_prompt(problem, response, response)).count(nasty) == 3
    assert every_text(TASK.instructed_prompt(problem, "s")).count(nasty) == 1


def test_no_prompt_holds_a_hidden_test_or_a_solution() -> None:
    loaded = load_task("livecodebench", source="sample")
    task = loaded.task
    assert isinstance(task, LiveCodeBench)
    for problem in loaded.problems:
        prompts = every_prompt(problem, task)
        texts = "\n".join(map(every_text, prompts.values()))
        assert texts.count(problem.data["question"]) == len(prompts)
        cases = loaded.grader._hidden[problem.id].cases  # type: ignore[attr-defined]
        assert not [case for case in cases if len(case.stdin) > 12 and case.stdin.strip() in texts]


class Loses:
    """Runs nothing: every test fails with nothing printed."""

    def __init__(self) -> None:
        self.suites: list[Suite] = []

    async def test(self, program: Program, suite: Suite, *, stop_at_failure: bool) -> tuple[CaseResult, ...]:
        self.suites.append(suite)
        return tuple(
            CaseResult(verdict="wrong_answer", stdout="", stderr="", value=None, cpu_seconds=0) for _ in suite.cases
        )


async def test_what_is_marked_as_hidden_is_in_no_prompt(tmp_path: Path) -> None:
    def record(number: int) -> dict[str, Any]:
        return {
            "id": f"p{number}",
            "title": "Add One",
            "statement": f"Add one to a number. ({number})",
            "platform": "codeforces",
            "difficulty": "easy",
            "contest_date": "2024-03-02",
            "kind": "stdin",
            "public_tests": [{"input": "public-input", "output": "public-output"}],
            "hidden_tests": [{"input": "marked-input", "output": "marked-output"}],
            "solutions": [{"code": "print('marked-code')", "verdict": "correct"}],
        }

    (tmp_path / "some.jsonl").write_text("\n".join(json.dumps(record(number)) for number in range(2)))
    loaded = load_task(
        "livecodebench", data=str(tmp_path / "some.jsonl"), strata=["easy"], per_stratum=1, validation_per_stratum=1
    )
    task, [problem], [shot] = loaded.task, loaded.problems, loaded.validation
    assert isinstance(task, LiveCodeBench)
    tools = Loses()
    seen = await task.observe(problem, RIGHT, tools)
    assert seen.feedback is not None
    await loaded.grader.grade(problem, seen, tools)
    public, hidden = tools.suites
    assert "public-input" in str(public)
    assert all(mark in f"{hidden} {shot.answer}" for mark in ("marked-input", "marked-output", "marked-code"))
    texts = {name: every_text(prompt) for name, prompt in every_prompt(problem, task).items()}
    texts["evolve, observed"] = every_text(task.evolution_prompt(problem, [ScoredResponse(response=seen, score=0.5)]))
    texts["judge, observed"] = every_text(task.judge_prompt(problem, seen, seen))
    texts["refine, observed"] = every_text(
        task.refinement_prompt(problem, seen, [Attempt(response=seen, outcome="first")])
    )
    texts["few-shot, worked"] = every_text(task.few_shot_prompt(problem, [task.demonstration(shot, RIGHT)]))
    texts |= {f"reflect on {r.text}": task.reflection_record(problem, r, None) for r in (seen, WRONG, UNPARSED)}
    assert {name for name, text in texts.items() if "public-output" in text} >= {
        *("generate", "evolve, observed", "judge, observed", "refine, observed", "instruct", "reflect on raw right")
    }
    assert not {name: text for name, text in texts.items() if "marked" in text}
    # a solution is shown where labels are given, and hidden tests are not even then
    labelled = task.reflection_record(shot.problem, seen, shot)
    assert "marked-code" in labelled
    assert "marked-input" not in labelled
    assert "marked-output" not in labelled


def test_a_problem_of_the_same_id_is_not_taken_for_another() -> None:
    other = msgspec.structs.replace(PROBLEM, data={**PROBLEM.data, "question": "Add two."})
    assert "Add one" in user_text(TASK.generation_prompt(PROBLEM))
    assert "Add two" in user_text(TASK.generation_prompt(other))


# --- a user's own files ---


def test_a_users_file_replaces_the_one_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "rules.md").write_text("- Be quick: {{ seconds }} s.")
    task = LiveCodeBench(prompts=str(tmp_path), stated_time_limit_s=2.5)
    for role in ("generate", "evolve", "few_shot", "refine"):
        assert "# Instructions\n- Be quick: 2.5 s.\n" in user_text(every_prompt(PROBLEM, task)[role])
    assert "2.5 seconds" in user_text(task.judge_prompt(PROBLEM, RIGHT, WRONG))


async def test_the_prompts_state_a_limit_of_their_own() -> None:
    """B.2 tells the model 4 s, while the benchmark's harness allows 6."""
    loaded = load_task("livecodebench", source="sample", time_limit_s=9.5, stated_time_limit_s=2.5)
    task, problem, tools = loaded.task, loaded.problems[0], Loses()
    assert isinstance(task, LiveCodeBench)
    prompts = every_prompt(problem, task)
    del prompts["instruct"]  # B.2.6 has no limit
    for role, prompt in prompts.items():
        assert "2.5 seconds" in every_text(prompt), role
        assert "9.5" not in every_text(prompt), role
    await task.observe(problem, RIGHT, tools)
    await loaded.grader.grade(problem, RIGHT, tools)
    assert {suite.limits.cpu_seconds for suite in tools.suites} == {9.5}


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("judge.md", "{{ hidden_tests }}", "unknown variable 'hidden_tests'"),
        ("parent.md", "{% if code", "does not render"),
    ],
)
def test_a_bad_prompt_file_is_named(tmp_path: Path, name: str, text: str, reason: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_task("livecodebench", source="sample", prompts=str(tmp_path))
    assert str(tmp_path / name) in str(caught.value)
    assert reason in str(caught.value)
