"""The simulator: its rates are those of its skill, and its texts read like a model's."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from building import load_task
from evorun.errors import ConfigError
from evorun.models.base import Request
from evorun.models.simulator import Skill
from evorun.tasks.base import Prompt, Response
from evorun.tasks.capabilities import Attempt, ScoredResponse
from evorun.tasks.mathbench.task import MathBench

NO_TOOLS: Any = None  # letters are graded without running anything
DRAWS = 4000
TOLERANCE = 0.035  # four standard errors of a rate over DRAWS
TASK = MathBench()
LOADED = load_task("mathbench", source="sample")
PROBLEM = LOADED.problems[0]
GOLD = msgspec.json.decode(
    LOADED.simulator.with_skill(Skill(skill=1, malformed=0)).respond(
        Request(messages=(), hints=TASK.generation_prompt(PROBLEM).hints), np.random.default_rng(0)
    )
)["solution"]
RIGHT = Response(text="", answer=GOLD)
WRONG, WRONG_TOO, _ = (Response(text="", answer=letter) for letter in "ABCD" if letter != GOLD)
UNPARSED = Response(text="", answer=None, error="empty: ...")


def rate(skill: Skill, prompt: Prompt, hit: Callable[[str], bool]) -> float:
    simulator = LOADED.simulator.with_skill(skill)
    request = Request(messages=prompt.messages, hints=prompt.hints)
    rng = np.random.default_rng(1)
    return sum(hit(simulator.respond(request, rng)) for _ in range(DRAWS)) / DRAWS


def says(verdict: str) -> Callable[[str], bool]:
    return lambda text: TASK.parse_judgment(text).verdict == verdict


def is_gold(text: str) -> bool:
    return TASK.parse(PROBLEM, text).answer == GOLD


async def test_what_it_holds_for_gold_is_what_the_grader_holds() -> None:
    assert (await LOADED.grader.grade(PROBLEM, RIGHT, NO_TOOLS)).correct


@pytest.mark.parametrize("skill", [0.0, 0.4, 1.0])
def test_answers_from_scratch_are_right_at_its_skill(skill: float) -> None:
    found = rate(Skill(skill=skill, malformed=0), TASK.generation_prompt(PROBLEM), is_gold)
    assert found == pytest.approx(skill, abs=TOLERANCE)


@pytest.mark.parametrize(("parents", "share"), [([RIGHT, RIGHT], 1), ([RIGHT, UNPARSED], 0.5), ([WRONG], 0), ([], 0)])
def test_right_parents_improve_answers_by_their_share(parents: list[Response], share: float) -> None:
    prompt = TASK.evolution_prompt(PROBLEM, [ScoredResponse(response=parent, score=0) for parent in parents])
    found = rate(Skill(skill=0.3, improvement=0.4, malformed=0), prompt, is_gold)
    assert found == pytest.approx(0.3 + 0.4 * share, abs=TOLERANCE)


@pytest.mark.parametrize(
    ("first", "second", "prefers_first"), [(RIGHT, WRONG, 0.9), (WRONG, RIGHT, 0.4), (RIGHT, UNPARSED, 0.9)]
)
def test_the_judge_prefers_the_right_one_at_its_skill_and_bias(
    first: Response, second: Response, prefers_first: float
) -> None:
    skill = Skill(judge_skill=0.75, position_bias=0.15, malformed=0, tie_rate=1)
    found = rate(
        skill, TASK.judge_prompt(PROBLEM, first, second), lambda text: TASK.parse_judgment(text).verdict == "A"
    )
    assert found == pytest.approx(prefers_first, abs=TOLERANCE)


@pytest.mark.parametrize("pair", [(RIGHT, RIGHT), (WRONG, WRONG_TOO)])
def test_the_judge_ties_equals_at_its_rate(pair: tuple[Response, Response]) -> None:
    prompt = TASK.judge_prompt(PROBLEM, *pair)
    found = rate(Skill(tie_rate=0.25, malformed=0), prompt, says("T"))
    assert found == pytest.approx(0.25, abs=TOLERANCE)


def test_the_malformed_share_cannot_be_parsed() -> None:
    skill = Skill(malformed=0.2)
    unparsed = rate(skill, TASK.generation_prompt(PROBLEM), lambda text: TASK.parse(PROBLEM, text).answer is None)
    invalid = rate(
        skill, TASK.judge_prompt(PROBLEM, RIGHT, WRONG), lambda text: TASK.parse_judgment(text).verdict == "invalid"
    )
    assert (unparsed, invalid) == pytest.approx((0.2, 0.2), abs=TOLERANCE)


def test_texts_fit_the_schema_and_have_the_mean_length() -> None:
    prompt = TASK.generation_prompt(PROBLEM)
    simulator = LOADED.simulator.with_skill(Skill(malformed=0, mean_tokens=100))
    rng = np.random.default_rng(2)
    request = Request(messages=prompt.messages, hints=prompt.hints)
    reasonings = [TASK.parse(PROBLEM, simulator.respond(request, rng)).reasoning for _ in range(500)]
    assert np.mean([len(reasoning.split()) for reasoning in reasonings]) == pytest.approx(105, rel=0.05)
    assert max(map(len, reasonings)) <= 1200


def test_the_same_stream_gives_the_same_text() -> None:
    request = Request(messages=(), hints=TASK.generation_prompt(PROBLEM).hints)
    texts = {LOADED.simulator.respond(request, np.random.default_rng(5)) for _ in range(3)}
    assert len(texts) == 1


@pytest.mark.parametrize(("incumbent", "gain"), [(RIGHT, 0.4), (WRONG, 0)])
def test_a_right_incumbent_improves_proposals(incumbent: Response, gain: float) -> None:
    prompt = TASK.refinement_prompt(PROBLEM, incumbent, [Attempt(response=RIGHT, outcome="lost")])
    found = rate(Skill(skill=0.3, improvement=0.4, malformed=0), prompt, is_gold)
    assert found == pytest.approx(0.3 + gain, abs=TOLERANCE)


def test_demonstrations_leave_the_skill_as_it_is() -> None:
    prompt = TASK.few_shot_prompt(PROBLEM, LOADED.validation[:8])
    assert rate(Skill(skill=0.3, malformed=0), prompt, is_gold) == pytest.approx(0.3, abs=TOLERANCE)


def test_an_instruction_moves_the_skill_by_its_own_amount() -> None:
    skill = Skill(skill=0.5, instruction_gain=0.3, malformed=0)

    def found(instruction: str) -> float:
        return rate(skill, TASK.instructed_prompt(PROBLEM, instruction), is_gold)

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


@pytest.mark.parametrize("key", ["skill", "improvement", "judge_skill", "tie_rate", "instruction_gain", "malformed"])
def test_rates_lie_between_zero_and_one(key: str) -> None:
    with pytest.raises(ConfigError, match=f"engine.{key}"):
        Skill(**{key: 1.5})  # type: ignore[arg-type]
