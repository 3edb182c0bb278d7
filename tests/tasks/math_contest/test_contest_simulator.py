"""The simulator: its rates are those of its skill, for integers and for expressions."""

from collections.abc import Callable

import numpy as np
import pytest

from building import load_task
from evorun.models.base import Request
from evorun.models.simulator import Skill
from evorun.tasks.base import LoadedTask, Prompt, Response
from evorun.tasks.capabilities import ScoredResponse
from evorun.tasks.math_contest.reading import canonical

DRAWS = 3000
TOLERANCE = 0.04  # four standard errors of a rate over DRAWS
LOADED = {"integers": load_task("aime", source="sample"), "expressions": load_task("hmmt", source="sample")}


def texts(loaded: LoadedTask, skill: Skill, prompt: Prompt, draws: int = DRAWS) -> list[str]:
    simulator = loaded.simulator.with_skill(skill)
    rng = np.random.default_rng(1)
    request = Request(messages=prompt.messages, hints=prompt.hints)
    return [simulator.respond(request, rng) for _ in range(draws)]


def rate(loaded: LoadedTask, skill: Skill, prompt: Prompt, hit: Callable[[str], bool]) -> float:
    return float(np.mean([hit(text) for text in texts(loaded, skill, prompt)]))


@pytest.fixture(params=LOADED)
def loaded(request: pytest.FixtureRequest) -> LoadedTask:
    return LOADED[request.param]


def gold_of(loaded: LoadedTask, number: int = 0) -> str:
    problem = loaded.problems[number]
    text = texts(loaded, Skill(skill=1, malformed=0), loaded.task.generation_prompt(problem), 1)[0]  # type: ignore[attr-defined]
    return loaded.task.parse(problem, text).answer or ""


@pytest.mark.parametrize("skill", [0.0, 0.4, 1.0])
def test_answers_from_scratch_are_right_at_its_skill(loaded: LoadedTask, skill: float) -> None:
    problem, gold = loaded.problems[0], gold_of(loaded)
    prompt = loaded.task.generation_prompt(problem)  # type: ignore[attr-defined]
    found = rate(
        loaded, Skill(skill=skill, malformed=0), prompt, lambda text: loaded.task.parse(problem, text).answer == gold
    )
    assert found == pytest.approx(skill, abs=TOLERANCE)


def test_mistakes_are_answers_of_the_task_and_never_right(loaded: LoadedTask) -> None:
    for number, problem in enumerate(loaded.problems):
        gold = gold_of(loaded, number)
        prompt = loaded.task.generation_prompt(problem)  # type: ignore[attr-defined]
        for text in texts(loaded, Skill(skill=0, malformed=0, typical_mistake=0.3), prompt, 100):
            answer = loaded.task.parse(problem, text).answer
            assert answer is not None
            assert canonical(answer) != canonical(gold)


def test_the_typical_mistake_is_one_and_the_same(loaded: LoadedTask) -> None:
    problem = loaded.problems[0]
    prompt = loaded.task.generation_prompt(problem)  # type: ignore[attr-defined]
    made = texts(loaded, Skill(skill=0, malformed=0, typical_mistake=0.6), prompt)
    answers = [loaded.task.parse(problem, text).answer for text in made]
    most = max(answers.count(answer) for answer in set(answers)) / DRAWS
    assert most == pytest.approx(0.61, abs=TOLERANCE)


def test_right_parents_improve_answers_in_any_writing() -> None:
    loaded = LOADED["expressions"]
    problem, gold = loaded.problems[0], gold_of(loaded)
    parent = Response(text="", answer=f" {gold} ")
    prompt = loaded.task.evolution_prompt(problem, [ScoredResponse(response=parent, score=0)])  # type: ignore[attr-defined]
    skill = Skill(skill=0.3, improvement=0.4, malformed=0)
    found = rate(loaded, skill, prompt, lambda text: loaded.task.parse(problem, text).answer == gold)
    assert found == pytest.approx(0.7, abs=TOLERANCE)


def test_the_judge_prefers_the_right_one_and_the_malformed_share_is_unread(loaded: LoadedTask) -> None:
    right, wrong = Response(text="", answer=gold_of(loaded)), Response(text="", answer=None)
    skill = Skill(judge_skill=0.75, position_bias=0.15, malformed=0, tie_rate=1)
    prompt = loaded.task.judge_prompt(loaded.problems[0], right, wrong)  # type: ignore[attr-defined]

    def verdict(text: str) -> str:
        return str(loaded.task.parse_judgment(text).verdict)  # type: ignore[attr-defined]

    assert rate(loaded, skill, prompt, lambda text: verdict(text) == "A") == pytest.approx(0.9, abs=TOLERANCE)
    found = rate(loaded, Skill(malformed=0.2), prompt, lambda text: verdict(text) == "invalid")
    assert found == pytest.approx(0.2, abs=TOLERANCE)
    generation = loaded.task.generation_prompt(loaded.problems[0])  # type: ignore[attr-defined]
    unread = rate(
        loaded,
        Skill(malformed=0.2),
        generation,
        lambda text: loaded.task.parse(loaded.problems[0], text).answer is None,
    )
    assert unread == pytest.approx(0.2, abs=TOLERANCE)
