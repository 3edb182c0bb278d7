"""Prompts and parsing: what methods see of a contest, and how a completion becomes a response."""

from pathlib import Path

import pytest

from evorun.tasks.base import Demonstration, Problem, Prompt, Response
from evorun.tasks.capabilities import Attempt, Diagnosis, Individual, ScoredResponse
from evorun.tasks.math_contest.task import MathContest

AIME = MathContest(integers=True, largest=999)
ANY = MathContest(integers=True)
HMMT = MathContest(integers=False)
PROBLEM = Problem(id="p", stratum="AIME 2025", data={"problem": "How much is {{ 6 }} times 7?"})
RIGHT = AIME.parse(PROBLEM, "Six times seven is \\boxed{042}.")
CUT = AIME.parse(PROBLEM, "Six times seven is \\boxed{4")
INDIVIDUAL = Individual(response=RIGHT, fitness=81.25, errors=Diagnosis(text="- It is short."))
SHOT = Demonstration(problem=PROBLEM, answer="42", reasoning="Count: \\boxed{42}.")


def prompts(task: MathContest) -> dict[str, Prompt]:
    return {
        "generate": task.generation_prompt(PROBLEM),
        "evolve": task.evolution_prompt(PROBLEM, [ScoredResponse(response=RIGHT, score=0.25)]),
        "refine": task.refinement_prompt(PROBLEM, RIGHT, [Attempt(response=CUT, outcome="lost", reason="It is cut.")]),
        "few_shot": task.few_shot_prompt(PROBLEM, [SHOT]),
        "instruct": task.instructed_prompt(PROBLEM, task.seed_instruction()),
        "crossover": task.crossover_prompt(PROBLEM, INDIVIDUAL, INDIVIDUAL),
        "mutate": task.mutation_prompt(PROBLEM, INDIVIDUAL),
        "judge": task.judge_prompt(PROBLEM, RIGHT, CUT),
        "errors": task.errors_prompt(PROBLEM, RIGHT),
        "fitness": task.fitness_prompt(PROBLEM, RIGHT),
    }


def words(prompt: Prompt) -> str:
    return "\n".join(message["content"] for message in prompt.messages)


@pytest.mark.parametrize("role", prompts(AIME))
def test_every_prompt_shows_the_problem_and_says_its_role(role: str) -> None:
    prompt = prompts(AIME)[role]
    assert PROBLEM.data["problem"] in words(prompt)
    assert prompt.hints["role"] == role
    assert [message["role"] for message in prompt.messages] == ["system", "user"]
    is_evaluated = role in ("judge", "errors", "fitness")
    assert (prompt.json_schema is not None) == is_evaluated
    assert ("\\boxed{ANSWER}" in words(prompt)) != is_evaluated


@pytest.mark.parametrize(
    ("task", "form"),
    [(AIME, "an integer from 0 to 999"), (ANY, "an integer,"), (HMMT, "the exact value in its simplest form")],
)
def test_prompts_say_what_an_answer_looks_like(task: MathContest, form: str) -> None:
    assert all(form in words(prompts(task)[role]) for role in ("generate", "evolve", "mutate", "few_shot", "instruct"))


def test_parents_and_judged_ones_are_shown_with_answer_and_text() -> None:
    assert "Answer: 42\nScore: 0.250\nSolution:\nSix times" in words(prompts(AIME)["evolve"])
    judged = words(prompts(AIME)["judge"])
    assert judged.index("Answer: 42\n") < judged.index("Answer: none\n")
    assert "Quality: 81.2 " in words(prompts(AIME)["mutate"])
    assert "- It is short." in words(prompts(AIME)["mutate"])
    assert "judged worse" in words(prompts(AIME)["refine"])


def test_of_a_long_text_the_end_is_shown() -> None:
    task = MathContest(shown_reasoning_chars=20)
    response = task.parse(PROBLEM, "start " + "step " * 100 + "so \\boxed{42}.")
    shown = words(task.judge_prompt(PROBLEM, response, response))
    assert "start" not in shown
    assert "[...] " in shown
    assert "so \\boxed{42}." in shown


def test_a_reflection_names_the_right_answer_only_with_the_demonstration() -> None:
    wrong = AIME.parse(PROBLEM, "It is \\boxed{43}.")
    assert "42" not in AIME.reflection_record(PROBLEM, wrong, None)
    assert "The right answer is 42." in AIME.reflection_record(PROBLEM, wrong, SHOT)
    assert "The answer is right." in AIME.reflection_record(PROBLEM, RIGHT, SHOT)
    assert "no_box" in AIME.reflection_record(PROBLEM, CUT, None)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
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
    ],
)
def test_what_cannot_be_read_says_its_kind(text: str, kind: str) -> None:
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


def test_a_users_files_may_use_the_older_placeholders(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "generation.md").write_text("{{ problem }} Give {{ form }}!")
    task = MathContest(prompts=str(tmp_path))
    assert words(task.generation_prompt(PROBLEM)).endswith(f"{PROBLEM.data['problem']} Give an integer!")
    assert task.mutation_prompt(PROBLEM, INDIVIDUAL) == ANY.mutation_prompt(PROBLEM, INDIVIDUAL)
    assert not caplog.records
