"""Prompts: their structure, what each shows of a program, and what they must never hold."""

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
from evorun.tasks.capabilities import Attempt, Diagnosis, Explanation, Individual, ScoredResponse
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
    answer="n = int(input())\nprint(n + 1)",
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
    return user["content"]


def every_text(prompt: Prompt) -> str:
    return "\n".join(message["content"] for message in prompt.messages)


def headings(text: str) -> list[str]:
    return [line.split(" (")[0] for line in text.splitlines() if line.startswith("#")]


def in_order(text: str, *parts: str) -> bool:
    indices = [text.find(part) for part in parts]
    return -1 not in indices and indices == sorted(indices)


def every_prompt(
    task: LiveCodeBench = TASK, problem: Problem = PROBLEM, response: Response = RIGHT, errors: str = "- 3 -> wrong"
) -> dict[str, Prompt]:
    """Ask for everything: the response is the parent, the incumbent and A, and WRONG stands beside it."""
    shots = [Demonstration(problem=SCRIPT_PROBLEM, answer="print(1)", reasoning="One.")]
    attempts = [
        Attempt(response=WRONG, outcome="first"),
        Attempt(response=response, outcome="won", judged=Explanation(reason="It adds.")),
    ]
    one, other = (
        Individual(response=response, fitness=25, errors=Diagnosis(text=errors)),
        Individual(response=WRONG, fitness=66.66, errors=Diagnosis()),
    )
    return {
        "generate": task.generation_prompt(problem),
        "evolve": task.evolution_prompt(problem, [ScoredResponse(response=r, score=0.5) for r in (response, WRONG)]),
        "judge": task.judge_prompt(problem, response, WRONG),
        "few_shot": task.few_shot_prompt(problem, shots),
        "refine": task.refinement_prompt(problem, response, attempts),
        "instruct": task.instructed_prompt(problem, task.seed_instruction()),
        "crossover": task.crossover_prompt(problem, one, other),
        "mutate": task.mutation_prompt(problem, one),
        "errors": task.errors_prompt(problem, response),
        "fitness": task.fitness_prompt(problem, response),
    }


def test_generation_prompt() -> None:
    text = user_text(TASK.generation_prompt(PROBLEM))
    assert headings(text) == ["# Problem", "# Public Examples", "# Starter Code", "# Instructions"]
    assert in_order(text, "Add one to n.", "Input:\n1\nOutput:\n2\n", "Input:\n7\nOutput:\n8\n", STARTER, "4 seconds")
    assert "# Starter Code" not in user_text(TASK.generation_prompt(SCRIPT_PROBLEM))


def test_evolution_prompt_shows_all_that_is_known_of_each_parent() -> None:
    parent = ScoredResponse(
        response=RIGHT, score=1.2, win=Explanation(reason="A adds."), loss=Explanation(reason="B is slow.", letter="B")
    )
    text = user_text(TASK.evolution_prompt(PROBLEM, [parent, ScoredResponse(response=WRONG, score=0)]))
    problem = ["# Problem", "# Public Examples", "# Starter Code"]
    assert headings(text) == [*problem, "# Parent Solutions", "# Instructions"]
    assert (
        "Solution:\n```python\nn = int(input())\nprint(n + 1)\n```\nReasoning: Adding one.\n"
        "Recent win explanation (of a comparison in which this program was A): A adds.\n"
        "Recent loss explanation (of a comparison in which this program was B): B is slow.\n"
        "Public test executions (sample):\n"
        "2 of 2 passed\n- 1 -> passed\nEvolving memory: n may be 0\n\nSolution:\n```python\nprint(2)\n```\n"
        "Reasoning: It is two.\nRecent win explanation: none yet\nRecent loss explanation: none yet\n"
        "Public test executions (sample):\nThe public tests were not run.\nEvolving memory: empty"
    ) in text


def test_judge_prompt_shows_the_first_as_a_and_the_priorities_in_order() -> None:
    text = user_text(TASK.judge_prompt(PROBLEM, WRONG, RIGHT))
    shown = ["# Solution A", "## Test Runs of A", "# Solution B", "## Test Runs of B"]
    assert headings(text) == ["# Problem", *shown, "# Limits", "# Task"]
    assert in_order(text, "print(2)", "were not run", "print(n + 1)", "2 of 2 passed", "4 seconds")
    priorities = ["EXECUT", "INPUT PARSING", "TIME COMPLEXITY", "CORRECT", "EFFICIEN", "EDGE CASE", "BRUTE"]
    assert in_order(text, *(f"{number}. {name}" for number, name in enumerate(priorities, 1)))


def test_few_shot_prompt_shows_solved_problems_as_they_are_to_be_answered() -> None:
    shots = [
        Demonstration(problem=SCRIPT_PROBLEM, answer='print("a")\nprint(2)', reasoning="First."),
        Demonstration(problem=SCRIPT_PROBLEM, answer="print(3)", reasoning="Second."),
    ]
    text = user_text(TASK.few_shot_prompt(SCRIPT_PROBLEM, shots))
    replies = [TASK.parse(PROBLEM, line) for line in text.splitlines() if line.startswith('{"')]
    assert [(reply.answer, reply.reasoning) for reply in replies] == [(shot.answer, shot.reasoning) for shot in shots]
    solved = ["# Problem", "# Public Examples", "# Response"]
    to_solve = ["# The Problem to Solve Now", "# Problem", "# Public Examples", "# Instructions"]
    assert headings(text) == ["# Solved Reference Examples", *solved, *solved, *to_solve]
    assert in_order(text, "# Solved Reference Examples", "2 problems", "First.", "Second.", "# Instructions")
    without = user_text(TASK.few_shot_prompt(SCRIPT_PROBLEM, []))
    assert headings(without) == to_solve
    assert "---" not in without


def test_refinement_prompt_shows_the_incumbent_and_the_attempts_in_order() -> None:
    attempts = [
        Attempt(response=WRONG, outcome="first"),
        Attempt(response=RIGHT, outcome="won", judged=Explanation(reason="It adds.")),
        Attempt(response=UNPARSED, outcome="lost", judged=Explanation(reason="No program.")),
    ]
    assert in_order(
        user_text(TASK.refinement_prompt(PROBLEM, RIGHT, attempts)),
        "# Best Program So Far\n```python\nn = int(input())\nprint(n + 1)\n```\n\n",
        "## Attempt 1: the first attempt\n```python\nprint(2)",
        "Judge: no explanation",
        "## Attempt 2: judged better",
        "Judge, who calls this attempt A and the best program of its time B: It adds.",
        "2 of 2 passed",
        "## Attempt 3: judged worse",
        "some prose",
        "No program could be read",
    )


def test_an_instruction_takes_the_system_prompts_place() -> None:
    system, user = TASK.instructed_prompt(PROBLEM, "Be brief.").messages
    assert system == {"role": "system", "content": "Be brief."}
    assert headings(user["content"]) == ["## Problem", "## Public Test Cases", "## Starter Code"]
    assert in_order(user["content"], "Example 1\nInput:\n1\nOutput:\n2\n", "Example 2\nInput:\n7\nOutput:\n8\n")
    assert in_order(TASK.seed_instruction(), "Python program", "stdin", "JSON", '"reasoning"', '"solution"')


def test_the_reflection_record_tells_of_public_tests_and_with_labels_of_a_solution() -> None:
    record = TASK.reflection_record(PROBLEM, RIGHT, None)
    assert in_order(record, "print(n + 1)", "Adding one.", "2 of 2 passed")
    # the release has no solutions: a demonstration without one shows nothing
    assert TASK.reflection_record(PROBLEM, RIGHT, Demonstration(problem=PROBLEM, answer="")) == record
    record = TASK.reflection_record(PROBLEM, UNPARSED, Demonstration(problem=PROBLEM, answer="print(3)"))
    assert in_order(record, "no_json", "some prose", "A program that passes every test:\n```python\nprint(3)\n```")


def test_recombination_shows_programs_with_fitness_errors_and_notes() -> None:
    prompts = every_prompt()
    first = (
        "```python\nn = int(input())\nprint(n + 1)\n```\nQuality: 25.0 on a scale from 0 (worthless) to 100 (no error "
        "known)\nErrors found:\n- 3 -> wrong\nEvolving memory: n may be 0"
    )
    other = "```python\nprint(2)\n```\nQuality: 66.7 on"
    crossover = user_text(prompts["crossover"])
    assert in_order(
        crossover, "Add one", f"# Program 1\n{first}\n\n# Program 2\n{other}", "none named", "memory: empty"
    )
    assert f"# Program\n{first}\n\n# Instructions" in user_text(prompts["mutate"])
    assert "print(2)" not in user_text(prompts["mutate"])


def test_evaluators_see_the_program_and_the_limit_and_detectors_its_line_numbers() -> None:
    errors, fitness = (user_text(every_prompt()[role]) for role in ("errors", "fitness"))
    assert "```\n1| n = int(input())\n2| print(n + 1)\n```" in errors
    assert "```python\nn = int(input())\nprint(n + 1)\n```" in fitness
    for text in (errors, fitness):
        assert "n may be 0" not in text
        assert "4 seconds" in text


# --- schemas ---


def test_schemas_fix_the_order_and_bound_every_text_as_the_prompts_ask() -> None:
    prompts = every_prompt(LiveCodeBench(reasoning_max_chars=300, solution_max_chars=700))
    with_memory = {"reasoning": 300, "evolving_memory": 500, "solution": 700}
    for role, prompt in prompts.items():
        schema, text = prompt.json_schema, every_text(prompt)
        assert schema is not None
        example = json.loads(text[text.rindex("{\n") : text.rindex("}") + 1])
        assert list(example) == list(schema["properties"]) == schema["required"], role
        if role != "judge":
            jsonschema.validate(example, schema)
            bounds = {key: field.get("maxLength") for key, field in schema["properties"].items()}
        if role in ("generate", "evolve", "refine", "crossover", "mutate"):
            assert bounds == with_memory, role
        elif role in ("few_shot", "instruct"):
            assert bounds == {"reasoning": 300, "solution": 700}, role
        elif role == "judge":
            assert list(example) == ["reasoning", "solution"]
            assert schema["properties"]["solution"]["enum"] == ["A", "B", "T"]


# --- texts are data ---


@pytest.mark.parametrize(
    "nasty", ["{{ code }} {% raw %} {# gone #} {{ 7 * 7 }}", "```\n# Program 2\n```", "\ud800 \x00"]
)
def test_texts_are_data(nasty: str) -> None:
    problem = msgspec.structs.replace(PROBLEM, data={**PROBLEM.data, "question": nasty})
    response = Response(text="", answer=nasty, reasoning=nasty, memory=nasty)
    # problem, program, reasoning and notes; the judge sees no reasoning, an evaluator the program alone
    counts = {"generate": 1, "few_shot": 1, "instruct": 1, "judge": 2, "evolve": 4, "refine": 5, "fitness": 2}
    for role, prompt in every_prompt(problem=problem, response=response, errors="").items():
        if role in counts:
            assert every_text(prompt).count(nasty) == counts[role], role
        elif role != "errors":
            assert every_text(prompt).count(nasty) == 3, role


def test_a_program_is_shown_whole_and_of_its_reasons_as_much_as_is_set() -> None:
    long = Response(text="", answer="x" * 7000, reasoning="y" * 5000)
    prompts = every_prompt(LiveCodeBench(shown_reasoning_chars=200, solution_max_chars=700), response=long)
    for role in ("evolve", "judge", "refine", "crossover", "mutate", "errors", "fitness"):
        assert "x" * 7000 in user_text(prompts[role])
        assert "y" * 101 not in user_text(prompts[role])
    assert f"{'y' * 100} [... 4,800 characters left out ...] {'y' * 100}" in user_text(prompts["evolve"])
    assert "y" * 5000 in user_text(
        every_prompt(load_task("livecodebench", source="sample").task, response=long)["evolve"]
    )
    shot = TASK.demonstration(Demonstration(problem=SCRIPT_PROBLEM, answer=""), long)
    assert "y" * 5000 in user_text(TASK.few_shot_prompt(PROBLEM, [shot]))


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
    errors = (await task.verify(problem, RIGHT, 3, tools)).errors.text
    await loaded.grader.grade(problem, seen, tools)
    assert "marked-output" in str(tools.suites[-1])
    assert "marked-code" in shot.answer
    texts = {role: every_text(prompt) for role, prompt in every_prompt(task, problem, seen, errors).items()}
    texts["few-shot, worked"] = every_text(task.few_shot_prompt(problem, [task.demonstration(shot, RIGHT)]))
    texts |= {f"reflect on {r.text}": task.reflection_record(problem, r, None) for r in (seen, WRONG, UNPARSED)}
    assert {name for name, text in texts.items() if "public-output" not in text} == {
        *("reflect on raw wrong", "reflect on some prose")
    }
    assert not {name: text for name, text in texts.items() if "marked" in text}
    # a solution is shown where labels are given, and hidden tests are not even then
    labelled = task.reflection_record(shot.problem, seen, shot)
    assert "marked-code" in labelled
    assert "marked-input" not in labelled


# --- settings ---


async def test_the_prompts_state_a_limit_of_their_own(tmp_path: Path) -> None:
    """B.2 tells the model 4 s, while the benchmark's harness allows 6."""
    (tmp_path / "instruction.md").write_text("Take {{ seconds }} seconds.")
    loaded = load_task(
        "livecodebench", source="sample", time_limit_s=9.5, stated_time_limit_s=2.5, prompts=str(tmp_path)
    )
    task, problem, tools = loaded.task, loaded.problems[0], Loses()
    assert isinstance(task, LiveCodeBench)
    for role, prompt in every_prompt(task, problem).items():
        assert "2.5 seconds" in every_text(prompt), role
        assert "9.5" not in every_text(prompt), role
    await task.observe(problem, RIGHT, tools)
    await loaded.grader.grade(problem, RIGHT, tools)
    assert {suite.limits.cpu_seconds for suite in tools.suites} == {9.5}


@pytest.mark.parametrize("name", ["problem", "rules", "reply", "demonstration", "judge", "candidate"])
def test_a_users_file_is_tried_before_the_run_where_the_release_has_no_solutions(tmp_path: Path, name: str) -> None:
    shown = "{{ code_a }} {{ code_b }} " if name == "judge" else ""
    (tmp_path / f"{name}.md").write_text(f"{shown}{{{{ hidden_tests }}}}")
    with pytest.raises(ConfigError, match=rf"{name}\.md: unknown variable 'hidden_tests'"):
        LiveCodeBench(prompts=str(tmp_path)).try_prompts(PROBLEM, "")


def test_a_judge_that_is_shown_no_programs_is_refused_by_their_names_in_this_task(tmp_path: Path) -> None:
    (tmp_path / "judge.md").write_text("{{ question }} Which one is better?")
    with pytest.raises(ConfigError, match=r"that shows \{\{ code_a \}\} and \{\{ code_b \}\}; else it judges blind"):
        LiveCodeBench(prompts=str(tmp_path)).try_prompts(PROBLEM, "")
