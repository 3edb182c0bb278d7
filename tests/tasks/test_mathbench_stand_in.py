"""The stand-in: its rates are those of its skill, and its texts read like a model's."""

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from evorun.errors import ConfigError
from evorun.models.base import Request
from evorun.models.stand_in import Skill
from evorun.tasks.base import Prompt, Response, ScoredResponse
from evorun.tasks.mathbench import MathBenchConfig
from evorun.tasks.mathbench.task import MathBench

NO_TOOLS: Any = None  # letters are graded without running anything
DRAWS = 4000
TOLERANCE = 0.035  # four standard errors of a rate over DRAWS
TASK = MathBench()
LOADED = MathBenchConfig(source="sample").load(0)
PROBLEM = LOADED.problems[0]
GOLD = msgspec.json.decode(
    LOADED.stand_in.with_skill(Skill(skill=1, malformed=0)).respond(
        Request(messages=(), hints=TASK.generation_prompt(PROBLEM).hints), np.random.default_rng(0)
    )
)["solution"]
RIGHT = Response(text="", answer=GOLD)
WRONG, WRONG_TOO, _ = (Response(text="", answer=letter) for letter in "ABCD" if letter != GOLD)
UNPARSED = Response(text="", answer=None, error="empty: ...")


def rate(skill: Skill, prompt: Prompt, hit: Callable[[str], bool]) -> float:
    stand_in = LOADED.stand_in.with_skill(skill)
    request = Request(messages=prompt.messages, hints=prompt.hints)
    rng = np.random.default_rng(1)
    return sum(hit(stand_in.respond(request, rng)) for _ in range(DRAWS)) / DRAWS


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
    stand_in = LOADED.stand_in.with_skill(Skill(malformed=0, mean_tokens=100))
    rng = np.random.default_rng(2)
    request = Request(messages=prompt.messages, hints=prompt.hints)
    reasonings = [TASK.parse(PROBLEM, stand_in.respond(request, rng)).reasoning for _ in range(500)]
    assert np.mean([len(reasoning.split()) for reasoning in reasonings]) == pytest.approx(105, rel=0.05)
    assert max(map(len, reasonings)) <= 1200


def test_the_same_stream_gives_the_same_text() -> None:
    request = Request(messages=(), hints=TASK.generation_prompt(PROBLEM).hints)
    texts = {LOADED.stand_in.respond(request, np.random.default_rng(5)) for _ in range(3)}
    assert len(texts) == 1


@pytest.mark.parametrize("key", ["skill", "improvement", "judge_skill", "tie_rate", "malformed"])
def test_rates_lie_between_zero_and_one(key: str) -> None:
    with pytest.raises(ConfigError, match=f"engine.{key}"):
        Skill(**{key: 1.5})  # type: ignore[arg-type]
