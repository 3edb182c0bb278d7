"""The peculiarities of MathBench's prompts: options, letters with their texts, and replies in JSON."""

import msgspec
import pytest

from building import load_task
from evorun.runs.candidates import Response
from evorun.tasks import text_task
from evorun.tasks.base import Demonstration, Grade, Problem, Prompt
from evorun.tasks.capabilities import Attempt, Diagnosis, HasSymbolicOperators, HasVerifier, Individual, ScoredResponse
from evorun.tasks.mathbench.mathbench import MathBench

PROBLEM = Problem(id="p1", stratum="high", data={"question": "How much is 6 * 7?", "options": ("41", "42", "43", "44")})
RIGHT = Response(text="raw right", answer="B", reasoning="Six sevens.")
WRONG = Response(text="raw wrong", answer="A", reasoning="Nearly.")
UNPARSED = Response(text="some prose", answer=None, error="no_json: ...")
TASK = MathBench()


def user_text(prompt: Prompt) -> str:
    system, user = prompt.messages
    assert system == {"role": "system", "content": "You are a helpful assistant."}
    return user["content"]


def sections(text: str) -> dict[str, str]:
    parts = ("\n" + text).split("\n# ")[1:]
    return {title: body.strip() for title, body in (part.split("\n", 1) for part in parts)}


def test_nothing_but_the_answer_key_can_tell_right_from_wrong() -> None:
    assert not any(issubclass(MathBench, protocol) for protocol in (HasVerifier, HasSymbolicOperators))


def test_every_prompt_shows_the_options_and_asks_for_one_of_their_letters() -> None:
    individual = Individual(response=RIGHT, fitness=50, errors=Diagnosis())
    asking = [
        TASK.generation_prompt(PROBLEM),
        TASK.evolution_prompt(PROBLEM, [ScoredResponse(response=RIGHT, score=1)]),
        TASK.few_shot_prompt(PROBLEM, []),
        TASK.refinement_prompt(PROBLEM, RIGHT, []),
        TASK.crossover_prompt(PROBLEM, individual, individual),
        TASK.mutation_prompt(PROBLEM, individual),
    ]
    evaluating = [
        TASK.judge_prompt(PROBLEM, RIGHT, WRONG),
        TASK.errors_prompt(PROBLEM, RIGHT),
        TASK.fitness_prompt(PROBLEM, RIGHT),
    ]
    for prompt in (*asking, *evaluating):
        assert "A. 41\nB. 42\nC. 43\nD. 44\n" in user_text(prompt)
        assert ("one of A, B, C, D" in user_text(prompt)) == (prompt in asking)
    assert "one of A, B, C, D" in TASK.seed_instruction()


def test_letters_are_shown_with_their_texts_and_the_unparsed_as_it_came() -> None:
    parents = [ScoredResponse(response=response, score=1.5) for response in (RIGHT, UNPARSED)]
    assert sections(user_text(TASK.evolution_prompt(PROBLEM, parents)))["Parent Solutions"] == (
        "Answer: B (42)\nScore: 1.500\nReasoning:\nSix sevens.\n\nAnswer: none\nScore: 1.500\nReasoning:\nsome prose"
    )


def test_few_shot_prompt_shows_solved_problems_as_they_are_to_be_answered() -> None:
    other = msgspec.structs.replace(PROBLEM, data={"question": "How much is 1 + 1?", "options": ("0", "1", "2", "3")})
    shots = [
        Demonstration(problem=other, answer="C", reasoning='One and "one".'),
        Demonstration(problem=other, answer="C", reasoning="Two\nlines."),
    ]
    text = user_text(TASK.few_shot_prompt(PROBLEM, shots))
    titles = ["Problem", "Multiple-Choice Options", "Response"]
    assert [line[2:] for line in text.splitlines() if line.startswith("# ")] == ["Instructions", *titles * 3]
    assert text.endswith(
        "# Problem\nHow much is 6 * 7?\n# Multiple-Choice Options\nA. 41\nB. 42\nC. 43\nD. 44\n# Response"
    )
    replies = [TASK.parse(other, line) for line in text.splitlines() if line.startswith('{"')]
    assert [(reply.answer, reply.reasoning) for reply in replies] == [(shot.answer, shot.reasoning) for shot in shots]


def test_the_reflection_record_names_the_right_letter_only_with_the_demonstration() -> None:
    gold = Demonstration(problem=PROBLEM, answer="B")
    assert TASK.reflection_record(PROBLEM, WRONG, None) == "Answer: A (41)\nReasoning:\nNearly."
    wrong, right = Grade(correct=False), Grade(correct=True)
    told = "The answer is wrong: the right one is B (42)."
    assert TASK.reflection_record(PROBLEM, WRONG, gold, wrong).endswith(told)
    assert TASK.reflection_record(PROBLEM, RIGHT, gold, right).endswith("The answer is right.")
    assert "no_json" in TASK.reflection_record(PROBLEM, UNPARSED, gold, wrong)


def test_schemas_fix_the_order_and_the_length() -> None:
    answer = MathBench(reasoning_max_chars=300).generation_prompt(PROBLEM).json_schema
    verdict = TASK.judge_prompt(PROBLEM, RIGHT, WRONG).json_schema
    assert answer is not None
    assert verdict is not None
    assert list(answer["properties"]) == answer["required"] == ["reasoning", "solution"]
    assert answer["properties"]["reasoning"]["maxLength"] == 300
    assert answer["properties"]["solution"]["enum"] == ["A", "B", "C", "D"]
    assert list(verdict["properties"]) == verdict["required"] == ["solution", "reasoning"]
    assert verdict["properties"]["solution"]["enum"] == ["A", "B", "T"]
    assert verdict["properties"]["reasoning"]["maxLength"] == 200


def test_judges_and_later_prompts_see_all_of_a_reasoning_unless_a_limit_is_set() -> None:
    long = Response(text="", answer="B", reasoning=" ".join(f"step{number}" for number in range(700)))
    individual = Individual(response=long, fitness=50, errors=Diagnosis())

    def prompts(task: MathBench) -> list[str]:
        return [
            user_text(task.judge_prompt(PROBLEM, WRONG, long)),
            user_text(task.evolution_prompt(PROBLEM, [ScoredResponse(response=long, score=1)])),
            user_text(task.refinement_prompt(PROBLEM, WRONG, [Attempt(response=long, outcome="won")])),
            user_text(task.mutation_prompt(PROBLEM, individual)),
            user_text(task.errors_prompt(PROBLEM, long)),
            user_text(task.fitness_prompt(PROBLEM, long)),
            task.reflection_record(PROBLEM, long, None),
        ]

    assert len(long.reasoning) > 3000
    for whole in prompts(load_task("mathbench", source="sample").task):
        assert long.reasoning in whole
    limited = MathBench(shown_reasoning_chars=40)
    for cut in prompts(limited):
        assert "\nstep0 step1 step2 [... 5,457 characters left out ...] step698 step699" in cut
    assert limited.shows_excerpt(long)
    assert not limited.shows_excerpt(RIGHT)
    assert not TASK.shows_excerpt(long)
    # Prompts show the text of a response only where no answer could be read from it.
    lengthy = "I cannot say. " * 10
    assert limited.shows_excerpt(Response(text=lengthy, answer=None, error="no_json: ..."))
    assert not limited.shows_excerpt(Response(text=lengthy, answer="B", reasoning="Six sevens."))


def test_what_judges_are_shown_is_remembered_for_the_problem_that_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    # ids are unique within a run only, and what is remembered is bounded
    monkeypatch.setattr(text_task, "MAX_RENDERED_CANDIDATES", 1)
    options = [f"another {option}" for option in PROBLEM.data["options"]]
    namesake = msgspec.structs.replace(PROBLEM, data={**PROBLEM.data, "options": options})
    task = MathBench()
    for problem in (PROBLEM, PROBLEM, namesake, PROBLEM):
        for pair in ((RIGHT, WRONG), (WRONG, RIGHT)):
            assert task.judge_prompt(problem, *pair) == MathBench().judge_prompt(problem, *pair)
            assert len(task._rendered_candidates) <= 1
