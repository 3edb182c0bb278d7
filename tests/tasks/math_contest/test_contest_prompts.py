"""The forms of contests' answers, in prompts and in replies that are read."""

from typing import Any

import pytest

from evorun.runs.candidates import Response
from evorun.tasks.base import Demonstration, Problem, Prompt
from evorun.tasks.math_contest.math_contest import ContestGrader, MathContest

AIME = MathContest(integers=True, largest=999)
ANY = MathContest(integers=True)
HMMT = MathContest(integers=False)
PROBLEM = Problem(id="p", stratum="AIME 2025", data={"problem": "How much is {{ 6 }} times 7?"})
RIGHT = AIME.parse(PROBLEM, "Six times seven is \\boxed{042}.")
CUT = AIME.parse(PROBLEM, "Six times seven is \\boxed{4")


def words(prompt: Prompt) -> str:
    return "\n".join(message["content"] for message in prompt.messages)


@pytest.mark.parametrize(
    ("task", "form"),
    [(AIME, "an integer from 0 to 999"), (ANY, "an integer,"), (HMMT, "the exact value in its simplest form")],
)
def test_prompts_say_what_an_answer_looks_like(task: MathContest, form: str) -> None:
    asking = (task.generation_prompt(PROBLEM), task.refinement_prompt(PROBLEM, RIGHT, []))
    evaluating = (task.judge_prompt(PROBLEM, RIGHT, CUT), task.errors_prompt(PROBLEM, RIGHT))
    for prompt in (*asking, *evaluating, task.fitness_prompt(PROBLEM, CUT)):
        assert form.strip(",") in words(prompt)
        assert ("999" in words(prompt)) == (task is AIME)
        assert ("as \\boxed{ANSWER}." in words(prompt)) == (prompt in asking)
    assert form in task.seed_instruction()


async def test_a_reflection_says_what_the_grader_finds_by_value() -> None:
    shot = Demonstration(problem=PROBLEM, answer="\\frac{1}{2}")
    grader = ContestGrader(HMMT, {PROBLEM.id: (shot.answer,)})
    tools: Any = None
    for text, told in (("\\boxed{2/4}", "The answer is right."), ("None", "The right answer is \\frac{1}{2}.")):
        response = HMMT.parse(PROBLEM, text)
        grade = await grader.grade(PROBLEM, response, tools)
        assert told in HMMT.reflection_record(PROBLEM, response, shot, grade)


def test_what_cannot_be_read_says_its_kind() -> None:
    for text, kind in [
        ("", "empty"),
        (" \n", "empty"),
        ("It is 42.", "no_box"),
        ("\\boxed{}", "no_box"),
        ("\\boxed{4", "no_box"),
        ("\\boxed{forty-two}", "not_an_integer"),
        ("\\boxed{84/2}", "not_an_integer"),
        ("\\boxed{1000}", "out_of_range"),
        ("\\boxed{-1}", "out_of_range"),
        (f"\\boxed{{{'9' * 501}}}", "too_long"),
        ("\ud800", "no_box"),
    ]:
        response = AIME.parse(PROBLEM, text)
        assert response.answer is None
        assert response.error is not None
        assert response.error.partition(":")[0] == kind
        assert "\n" not in response.error


def test_larger_integers_and_expressions_where_they_are_answers() -> None:
    assert ANY.parse(PROBLEM, "\\boxed{-1,000}").answer == "-1000"
    assert HMMT.parse(PROBLEM, "\\boxed{ \\frac{1}{2} }").answer == "\\frac{1}{2}"


def test_votes_are_counted_by_value() -> None:
    def signature(text: str) -> str:
        return HMMT.signature(PROBLEM, Response(text="", answer=text))

    assert signature("\\dfrac12") == signature("0.5") == signature("1/2") != signature("1/3")
