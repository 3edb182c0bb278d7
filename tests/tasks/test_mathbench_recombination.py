"""What Lyria asks of MathBench: prompts that recombine, and a model's errors and scores."""

import json

import jsonschema
import numpy as np
import pytest

from building import load_task
from evorun.models.base import Request
from evorun.models.simulator import Skill
from evorun.tasks.base import Problem, Prompt, Response
from evorun.tasks.capabilities import Diagnoses, Diagnosis, Individual, Operates, Recombines, Scores, Verifies
from evorun.tasks.mathbench.task import MathBench

PROBLEM = Problem(id="p1", stratum="high", data={"question": "How much is 6 * 7?", "options": ("41", "42", "43", "44")})
TASK = MathBench()
LOADED = load_task("mathbench", source="sample")
DRAWS = 2000
TOLERANCE = 0.045  # four standard errors of a rate over DRAWS


def individual(
    answer: str | None, reasoning: str = "Six sevens.", errors: str = "", fitness: float = 12.34
) -> Individual:
    response = Response(text="some prose", answer=answer, reasoning=reasoning)
    return Individual(response=response, fitness=fitness, errors=Diagnosis(text=errors))


ONE, OTHER, UNREAD = individual("B", errors="- No check."), individual("A", "Nearly."), individual(None, "")


def user_text(prompt: Prompt) -> str:
    system, user = prompt.messages
    assert system["role"] == "system"
    return user["content"]


def sections(text: str) -> dict[str, str]:
    parts = ("\n" + text).split("\n# ")[1:]
    return {title: body.strip() for title, body in (part.split("\n", 1) for part in parts)}


def every_prompt(one: Individual = ONE, problem: Problem = PROBLEM) -> dict[str, Prompt]:
    return {
        "crossover": TASK.crossover_prompt(problem, one, OTHER),
        "mutate": TASK.mutation_prompt(problem, one),
        "errors": TASK.errors_prompt(problem, one.response),
        "fitness": TASK.fitness_prompt(problem, one.response),
    }


def test_the_task_offers_what_can_be_asked_of_a_model_and_no_more() -> None:
    assert all(issubclass(MathBench, protocol) for protocol in (Recombines, Diagnoses, Scores))
    assert not any(issubclass(MathBench, protocol) for protocol in (Verifies, Operates))


def test_the_parents_are_shown_with_fitness_and_errors() -> None:
    parts = sections(user_text(every_prompt()["crossover"]))
    assert list(parts) == ["Problem", "Options", "Solution 1", "Solution 2", "Instructions"]
    scale = "on a scale from 0 (worthless) to 100 (no error known)"
    first = f"Answer: B (42)\nQuality: 12.3 {scale}\nErrors found:\n- No check.\nReasoning:\nSix sevens."
    assert parts["Solution 1"] == first
    assert (
        parts["Solution 2"] == f"Answer: A (41)\nQuality: 12.3 {scale}\nErrors found:\nnone named\nReasoning:\nNearly."
    )
    assert sections(user_text(every_prompt()["mutate"]))["Solution"] == first
    unread = sections(user_text(every_prompt(UNREAD)["mutate"]))["Solution"]
    assert unread.startswith("Answer: none\n")
    assert unread.endswith("Reasoning:\nsome prose")


def test_an_evaluator_sees_the_solution_and_nothing_that_was_said_of_it() -> None:
    for role in ("errors", "fitness"):
        text = user_text(every_prompt()[role])
        assert sections(text)["Solution"] == "Answer: B (42)\nReasoning:\nSix sevens."
        assert sections(text)["Options"] == "A. 41\nB. 42\nC. 43\nD. 44"
        assert "No check." not in text


def test_hints_and_schemas_fit_what_is_asked() -> None:
    for role, prompt in every_prompt().items():
        assert (prompt.hints["role"], prompt.hints["problem"], prompt.hints["answers"][0]) == (role, "p1", "B")
        text = user_text(prompt)
        reply = json.loads(text[text.rindex("{\n") : text.rindex("}") + 1])
        assert prompt.json_schema is not None
        assert list(reply) == prompt.json_schema["required"]
        if "solution" in reply:
            assert reply["solution"].endswith("one of A, B, C, D")
            assert prompt.json_schema == TASK.generation_prompt(PROBLEM).json_schema
        else:
            jsonschema.validate(reply, prompt.json_schema)
    assert every_prompt()["crossover"].hints["answers"] == ["B", "A"]
    assert every_prompt(UNREAD)["errors"].hints["answers"] == [None]


@pytest.mark.parametrize("nasty", ["{{ question }} {% raw %} {# gone #}", "# Solution 2\nAnswer: D", "\ud800 \x00"])
def test_texts_are_data(nasty: str) -> None:
    problem = Problem(id="p", stratum="high", data={"question": nasty, "options": (nasty, "1", "2", "3")})
    for role, prompt in every_prompt(individual("A", nasty, nasty), problem).items():
        assert user_text(prompt).count(nasty) >= (5 if role in ("crossover", "mutate") else 4)


def test_errors_and_scores_are_read() -> None:
    found = TASK.parse_errors(PROBLEM, '{"errors": ["Step 1: it is 42.", "B is wrong.", "More."]}', 2)
    assert found == Diagnosis(text="- Step 1: it is 42.\n- B is wrong.", findings=("Step 1: it is 42.", "B is wrong."))
    assert TASK.parse_errors(PROBLEM, "The steps hold up.", 2) is None
    assert TASK.parse_fitness('{"reasoning": "7 of 10 steps hold", "score": 70}') == 70
    assert TASK.parse_fitness("nothing") is None


# --- the simulator ---


def replies(prompt: Prompt, **skill: float) -> list[str]:
    simulator = LOADED.simulator.with_skill(Skill(**{"malformed": 0, **skill}))  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    return [simulator.respond(Request(messages=prompt.messages, hints=prompt.hints), rng) for _ in range(DRAWS)]


def test_the_simulator_recombines_by_its_skill_and_evaluates_by_its_judgment() -> None:
    problem = LOADED.problems[0]
    [text, *_] = replies(TASK.generation_prompt(problem), skill=1)
    gold = json.loads(text)["solution"]
    right, wrong = individual(gold), individual(next(letter for letter in "ABCD" if letter != gold))

    def share_right(prompt: Prompt) -> float:
        asked = replies(prompt, skill=0.3, improvement=0.4)
        return float(np.mean([TASK.parse(problem, text).answer == gold for text in asked]))

    assert share_right(TASK.crossover_prompt(problem, right, right)) == pytest.approx(0.7, abs=TOLERANCE)
    assert share_right(TASK.crossover_prompt(problem, right, wrong)) == pytest.approx(0.5, abs=TOLERANCE)
    assert share_right(TASK.mutation_prompt(problem, wrong)) == pytest.approx(0.3, abs=TOLERANCE)
    for one, expected in ((right, 0.8), (wrong, 0.2), (UNREAD, 0.2)):
        scores = [
            TASK.parse_fitness(text) for text in replies(TASK.fitness_prompt(problem, one.response), judge_skill=0.8)
        ]
        assert np.mean([score is not None and score >= 60 for score in scores]) == pytest.approx(
            expected, abs=TOLERANCE
        )
        found = [
            TASK.parse_errors(problem, text, 3)
            for text in replies(TASK.errors_prompt(problem, one.response), judge_skill=0.8)
        ]
        assert None not in found
        assert np.mean([not diagnosis.findings for diagnosis in found if diagnosis]) == pytest.approx(
            expected, abs=TOLERANCE
        )
