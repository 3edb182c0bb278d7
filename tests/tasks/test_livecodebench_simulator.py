"""The simulator: its rates are those of its skill, and its programs do in the sandbox what it means them to do."""

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from building import load_task
from evorun.models.base import Request
from evorun.models.simulator import Skill
from evorun.runs.candidates import Response
from evorun.sandbox.base import Case
from evorun.sandbox.config import SandboxConfig
from evorun.sandbox.lazy import LazySandbox
from evorun.tasks.base import Problem, Prompt
from evorun.tasks.capabilities import Attempt, ScoredResponse
from evorun.tasks.livecodebench.simulator import LiveCodeBenchSimulator
from evorun.tasks.livecodebench.task import LiveCodeBench

DRAWS = 2500
TOLERANCE = 0.04  # four standard errors of a rate over DRAWS
TASK = LiveCodeBench()
LOADED = load_task("livecodebench", source="sample")
SCRIPT, METHOD = (
    next(p for p in LOADED.problems if bool(p.data["func_name"]) == functional) for functional in (False, True)
)
ALWAYS = LOADED.simulator.with_skill(Skill(skill=1, malformed=0))
NEVER = LOADED.simulator.with_skill(Skill(skill=0, malformed=0))


def written(simulator: LiveCodeBenchSimulator, problem: Problem, seed: int = 0) -> Response:
    prompt = TASK.generation_prompt(problem)
    text = simulator.respond(Request(messages=(), hints=prompt.hints), np.random.default_rng(seed))
    return TASK.parse(problem, text)


RIGHT, WRONG, WRONG_TOO = written(ALWAYS, SCRIPT), written(NEVER, SCRIPT), written(NEVER, SCRIPT, 1)
UNPARSED = Response(text="", answer=None, error="empty: ...")


def rate(skill: Skill, prompt: Prompt, hit: Callable[[str], bool]) -> float:
    simulator = LOADED.simulator.with_skill(skill)
    request = Request(messages=prompt.messages, hints=prompt.hints)
    rng = np.random.default_rng(1)
    return sum(hit(simulator.respond(request, rng)) for _ in range(DRAWS)) / DRAWS


def is_right(text: str) -> bool:
    """Tell a right program by the table that the right one holds."""
    table = str(RIGHT.answer).split('TABLE = "')[1].split('"\n')[0]
    return table in text


def says(verdict: str) -> Callable[[str], bool]:
    return lambda text: TASK.parse_judgment(text).verdict == verdict


@pytest.mark.parametrize("problem", [SCRIPT, METHOD], ids=["script", "method"])
async def test_programs_are_graded_as_they_are_meant(problem: Problem) -> None:
    tools = LazySandbox(SandboxConfig())
    try:
        right = [written(ALWAYS, problem, seed) for seed in range(4)]
        wrong = [written(NEVER, problem, seed) for seed in range(12)]
        grades = await asyncio.gather(*(LOADED.grader.grade(problem, response, tools) for response in right + wrong))
        assert [grade.correct for grade in grades] == [True] * 4 + [False] * 12
        seen = await asyncio.gather(*(TASK.observe(problem, response, tools) for response in right + wrong))
        scores = [response.feedback.score for response in seen if response.feedback]
        assert scores[:4] == [1] * 4
        assert {0, 1} <= set(scores[4:])  # a wrong program may pass the public tests
        assert {grade.detail.split()[0] for grade in grades} == {"accepted", "wrong_answer", "runtime_error"}
    finally:
        await tools.close()


@pytest.mark.parametrize("skill", [0.0, 0.4, 1.0])
def test_programs_from_scratch_are_right_at_its_skill(skill: float) -> None:
    found = rate(Skill(skill=skill, malformed=0), TASK.generation_prompt(SCRIPT), is_right)
    assert found == pytest.approx(skill, abs=TOLERANCE)


@pytest.mark.parametrize(("parents", "share"), [([RIGHT, RIGHT], 1), ([RIGHT, UNPARSED], 0.5), ([WRONG], 0), ([], 0)])
def test_right_parents_improve_programs_by_their_share(parents: list[Response], share: float) -> None:
    prompt = TASK.evolution_prompt(SCRIPT, [ScoredResponse(response=parent, score=0) for parent in parents])
    found = rate(Skill(skill=0.3, improvement=0.4, malformed=0), prompt, is_right)
    assert found == pytest.approx(0.3 + 0.4 * share, abs=TOLERANCE)


@pytest.mark.parametrize(("incumbent", "gain"), [(RIGHT, 0.4), (WRONG, 0)])
def test_a_right_incumbent_improves_proposals(incumbent: Response, gain: float) -> None:
    prompt = TASK.refinement_prompt(SCRIPT, incumbent, [Attempt(response=RIGHT, outcome="lost")])
    found = rate(Skill(skill=0.3, improvement=0.4, malformed=0), prompt, is_right)
    assert found == pytest.approx(0.3 + gain, abs=TOLERANCE)


@pytest.mark.parametrize(
    ("first", "second", "prefers_first"), [(RIGHT, WRONG, 0.9), (WRONG, RIGHT, 0.4), (RIGHT, UNPARSED, 0.9)]
)
def test_the_judge_prefers_the_right_one_at_its_skill_and_bias(
    first: Response, second: Response, prefers_first: float
) -> None:
    skill = Skill(judge_skill=0.75, position_bias=0.15, malformed=0, tie_rate=1)
    found = rate(skill, TASK.judge_prompt(SCRIPT, first, second), says("A"))
    assert found == pytest.approx(prefers_first, abs=TOLERANCE)


@pytest.mark.parametrize("pair", [(RIGHT, RIGHT), (WRONG, WRONG_TOO)])
def test_the_judge_ties_equals_at_its_rate(pair: tuple[Response, Response]) -> None:
    found = rate(Skill(tie_rate=0.25, malformed=0), TASK.judge_prompt(SCRIPT, *pair), says("T"))
    assert found == pytest.approx(0.25, abs=TOLERANCE)


def test_the_malformed_share_cannot_be_parsed() -> None:
    skill = Skill(malformed=0.2)
    unparsed = rate(skill, TASK.generation_prompt(SCRIPT), lambda text: TASK.parse(SCRIPT, text).answer is None)
    invalid = rate(skill, TASK.judge_prompt(SCRIPT, RIGHT, WRONG), says("invalid"))
    assert (unparsed, invalid) == pytest.approx((0.2, 0.2), abs=TOLERANCE)


def test_programs_differ_and_repeat_as_a_models_do() -> None:
    signatures = [TASK.signature(SCRIPT, written(ALWAYS, SCRIPT, seed)) for seed in range(200)]
    assert 150 < len(set(signatures)) < 200


def test_replies_fit_what_is_asked() -> None:
    for problem in LOADED.problems:
        response = written(ALWAYS, problem)
        assert response.error is None
        assert response.reasoning
        assert response.memory
        assert len(response.text) < 4 * 1024  # within 1,024 simulated tokens


def test_an_instruction_moves_the_skill_by_its_own_amount() -> None:
    skill = Skill(skill=0.5, instruction_gain=0.3, malformed=0)

    def found(instruction: str) -> float:
        return rate(skill, TASK.instructed_prompt(SCRIPT, instruction), is_right)

    assert found(TASK.seed_instruction()) == pytest.approx(0.5, abs=TOLERANCE)
    rates = [found(f"Solve it in way {n}.") for n in range(8)]
    assert all(0.2 - TOLERANCE <= r <= 0.8 + TOLERANCE for r in rates)
    assert max(rates) - min(rates) > 0.2
    assert found("Solve it in way 0.") == rates[0]


def test_a_reflecting_model_writes_instructions_in_a_fence() -> None:
    request = Request(messages=(), hints={"role": "reflect"})
    texts = {LOADED.simulator.respond(request, np.random.default_rng(seed)) for seed in range(20)}
    assert len(texts) > 10
    assert all(text.count("```") == 2 for text in texts)
    assert LOADED.simulator.respond(request, np.random.default_rng(0)) in texts


def test_wrong_programs_know_nothing_where_the_public_tests_are_all_there_is() -> None:
    public = [Case(test["input"], test["output"]) for test in SCRIPT.data["public_tests"]]
    simulator = LiveCodeBenchSimulator({SCRIPT.id: SCRIPT}, {SCRIPT.id: public}, Skill(skill=0, malformed=0))
    right = str(written(simulator.with_skill(Skill(skill=1, malformed=0)), SCRIPT).answer)
    table = right.split('TABLE = "')[1].split('"\n')[0]
    assert not any(table in str(written(simulator, SCRIPT, seed).answer) for seed in range(40))


def test_a_problem_whose_outputs_are_too_long_is_never_solved() -> None:
    noise = np.random.default_rng(0).integers(0, 10**9, 5000)
    hidden = [Case("1\n", " ".join(map(str, noise)))]
    simulator = LiveCodeBenchSimulator({SCRIPT.id: SCRIPT}, {SCRIPT.id: hidden}, Skill(skill=1, malformed=0))
    response = written(simulator, SCRIPT)
    assert response.answer is not None
    assert len(response.answer) < 3000
    prompt = TASK.judge_prompt(SCRIPT, response, RIGHT)
    replies = [
        simulator.respond(Request(messages=(), hints=prompt.hints), np.random.default_rng(seed)) for seed in range(40)
    ]
    assert any(says("T")(reply) for reply in replies)  # neither counts as right


def test_the_same_stream_gives_the_same_text() -> None:
    assert {written(ALWAYS, METHOD, 5).text for _ in range(3)} == {written(ALWAYS, METHOD, 5).text}
