"""The simulated model's programs: what they do in the sandbox, and which of them count as right where it sees them."""

import asyncio
import json
from typing import Any

import jsonschema
import numpy as np
import pytest

from building import load_task
from evorun.models.base import Request
from evorun.runs.candidates import Response
from evorun.sandbox.base import Case
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.lazy import LazySandbox
from evorun.simulation.skill import Skill
from evorun.tasks.base import Problem, Prompt, Row
from evorun.tasks.capabilities import Diagnosis, Individual, ScoredResponse
from evorun.tasks.livecodebench.simulator import LiveCodeBenchSimulator
from evorun.tasks.livecodebench.task import LiveCodeBench

TASK = LiveCodeBench()
LOADED = load_task("livecodebench", source="sample")
SCRIPT, METHOD = (
    next(p for p in LOADED.problems if bool(p.data["func_name"]) == functional) for functional in (False, True)
)
ALWAYS = LOADED.simulator.with_skill(Skill(skill=1, malformed=0))
NEVER = LOADED.simulator.with_skill(Skill(skill=0, malformed=0))


def said(simulator: Any, prompt: Prompt, seed: int = 0) -> str:
    text: str = simulator.respond(Request(messages=(), hints=prompt.hints), np.random.default_rng(seed))
    return text


def written(simulator: Any, problem: Problem, seed: int = 0) -> Response:
    return TASK.parse(problem, said(simulator, TASK.generation_prompt(problem), seed))


RIGHT, WRONG, WRONG_TOO = written(ALWAYS, SCRIPT), written(NEVER, SCRIPT), written(NEVER, SCRIPT, 1)
UNPARSED = Response(text="", answer=None, error="empty: ...")


def table_of(response: Response) -> str:
    return str(response.answer).split('TABLE = "')[1].split('"\n')[0]


@pytest.mark.parametrize("problem", [pytest.param(SCRIPT, marks=pytest.mark.nightly), METHOD], ids=["script", "method"])
async def test_programs_are_graded_as_they_are_meant(problem: Problem) -> None:
    tools = LazySandbox(SandboxConfig())
    try:
        right = [written(ALWAYS, problem, seed) for seed in range(2)]
        wrong = [written(NEVER, problem, seed) for seed in range(12)]
        grades = await asyncio.gather(*(LOADED.grader.grade(problem, response, tools) for response in right + wrong))
        assert [grade.correct for grade in grades] == [True] * 2 + [False] * 12
        seen = await asyncio.gather(*(TASK.observe(problem, response, tools) for response in right + wrong))
        scores = [response.feedback.score for response in seen if response.feedback]
        assert scores[:2] == [1] * 2
        assert {0, 1} <= set(scores[2:])  # a wrong program may pass the public tests
        assert {grade.detail.split()[0] for grade in grades} == {"accepted", "wrong_answer", "runtime_error"}
    finally:
        await tools.close()


@pytest.mark.parametrize(("parents", "share"), [([RIGHT, RIGHT], 1), ([RIGHT, UNPARSED], 0.5), ([WRONG], 0), ([], 0)])
def test_right_programs_in_view_improve_new_ones_by_their_share(parents: list[Response], share: float) -> None:
    prompt = TASK.evolution_prompt(SCRIPT, [ScoredResponse(response=parent, score=0) for parent in parents])
    simulator = LOADED.simulator.with_skill(Skill(skill=0.3, improvement=0.4, malformed=0))
    found = np.mean([table_of(RIGHT) in said(simulator, prompt, seed) for seed in range(1200)])
    assert found == pytest.approx(0.3 + 0.4 * share, abs=0.06)  # four standard errors


def test_judges_and_evaluators_tell_right_programs_from_wrong_ones() -> None:
    simulator = LOADED.simulator.with_skill(Skill(judge_skill=1, position_bias=0, tie_rate=1, malformed=0))
    pairs = [(RIGHT, WRONG, "A"), (WRONG, RIGHT, "B"), (RIGHT, UNPARSED, "A"), (WRONG, WRONG_TOO, "T")]
    for first, second, expected in pairs:
        prompt = TASK.judge_prompt(SCRIPT, first, second)
        reply = said(simulator, prompt)
        jsonschema.validate(json.loads(reply), prompt.json_schema or {})
        assert TASK.parse_judgment(reply).verdict == expected
    for seed in range(20):
        scores = [TASK.parse_fitness(said(simulator, TASK.fitness_prompt(SCRIPT, r), seed)) for r in (RIGHT, WRONG)]
        assert 100 >= (scores[0] or 0) >= 60 >= (scores[1] or 0) >= 0
        found = [
            TASK.parse_errors(SCRIPT, said(simulator, TASK.errors_prompt(SCRIPT, r), seed), 3) for r in (RIGHT, WRONG)
        ]
        assert found[0] == Diagnosis() != found[1]


def test_malformed_replies_have_no_program() -> None:
    simulator = LOADED.simulator.with_skill(Skill(malformed=1))
    unread = [written(simulator, SCRIPT, seed) for seed in range(40)]
    assert {response.answer for response in unread} == {None}
    assert {str(response.error).split(":")[0] for response in unread} == {"empty", "no_json", "no_solution"}


def test_programs_differ_and_repeat_as_a_models_do() -> None:
    signatures = [TASK.signature(SCRIPT, written(ALWAYS, SCRIPT, seed)) for seed in range(80)]
    assert 60 < len(set(signatures)) < 80


def test_replies_fit_what_is_asked() -> None:
    individual = Individual(response=RIGHT, fitness=50, errors=Diagnosis())
    prompts = [
        TASK.generation_prompt(SCRIPT),
        TASK.refinement_prompt(SCRIPT, RIGHT, []),
        TASK.few_shot_prompt(SCRIPT, []),
        TASK.instructed_prompt(SCRIPT, "Be brief."),
        TASK.crossover_prompt(SCRIPT, individual, individual),
        TASK.mutation_prompt(SCRIPT, individual),
    ]
    for prompt in prompts:
        jsonschema.validate(json.loads(said(ALWAYS, prompt)), prompt.json_schema or {})
    for problem in LOADED.problems:
        response = written(ALWAYS, problem)
        assert response.reasoning
        assert response.memory
        assert len(response.text) < 4 * 1024  # within 1,024 simulated tokens


def simulator_of(hidden: list[Case], **skill: float) -> Any:
    simulator = LiveCodeBenchSimulator(TASK, [Row(SCRIPT, "")], {SCRIPT.id: hidden})
    return simulator.with_skill(Skill(malformed=0, **skill))  # type: ignore[arg-type]


def test_wrong_programs_know_nothing_where_the_public_tests_are_all_there_is() -> None:
    public = [Case(test["input"], test["output"]) for test in SCRIPT.data["public_tests"]]
    table = table_of(written(simulator_of(public, skill=1), SCRIPT))
    wrong = simulator_of(public, skill=0)
    assert not any(table in str(written(wrong, SCRIPT, seed).answer) for seed in range(40))


def test_a_problem_whose_outputs_are_too_long_is_never_solved() -> None:
    noise = np.random.default_rng(0).integers(0, 10**9, 5000)
    simulator = simulator_of([Case("1\n", " ".join(map(str, noise)))], skill=1, tie_rate=1)
    response = written(simulator, SCRIPT)
    assert response.answer is not None
    assert len(response.answer) < 3000
    prompt = TASK.judge_prompt(SCRIPT, response, RIGHT)
    assert TASK.parse_judgment(said(simulator, prompt)).verdict == "T"  # neither counts as right
