"""Prompts: their structure and placeholders, texts inserted as data, and a user's own prompt files."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from building import load_task
from evorun.errors import ConfigError
from evorun.tasks.base import Demonstration, Problem, Prompt, Response
from evorun.tasks.capabilities import (
    Attempt,
    Demonstrates,
    Evolves,
    Generates,
    Instructs,
    Judges,
    Refines,
    ScoredResponse,
)
from evorun.tasks.mathbench import MathBenchConfig
from evorun.tasks.mathbench.task import MathBench

PROBLEM = Problem(id="p1", stratum="high", data={"question": "How much is 6 * 7?", "options": ("41", "42", "43", "44")})
RIGHT = Response(text="raw right", answer="B", reasoning="Six sevens.")
WRONG = Response(text="raw wrong", answer="A", reasoning="Nearly.")
UNPARSED = Response(text="some prose", answer=None, error="no_json: ...")
TASK = MathBench()


def user_text(prompt: Prompt) -> str:
    system, user = prompt.messages
    assert system == {"role": "system", "content": "You are a helpful assistant."}
    assert user["role"] == "user"
    return user["content"]


def sections(text: str) -> dict[str, str]:
    parts = ("\n" + text).split("\n# ")[1:]
    return {title: body.strip() for title, body in (part.split("\n", 1) for part in parts)}


@pytest.mark.parametrize("protocol", [Generates, Evolves, Judges, Demonstrates, Refines, Instructs])
def test_the_task_offers_what_the_methods_need(protocol: type) -> None:
    assert isinstance(TASK, protocol)
    assert issubclass(MathBenchConfig.task_class, protocol)


def test_generation_prompt() -> None:
    prompt = TASK.generation_prompt(PROBLEM)
    parts = sections(user_text(prompt))
    assert list(parts) == ["Problem", "Instructions", "Multiple-Choice Options"]
    assert parts["Problem"] == "How much is 6 * 7?"
    assert parts["Multiple-Choice Options"].startswith("A. 41\nB. 42\nC. 43\nD. 44\n")
    assert prompt.hints == {"role": "generate", "problem": "p1", "answers": []}


def test_evolution_prompt_shows_each_parent_with_its_score() -> None:
    prompt = TASK.evolution_prompt(
        PROBLEM, [ScoredResponse(response=RIGHT, score=1.23456), ScoredResponse(response=WRONG, score=-0.5)]
    )
    parts = sections(user_text(prompt))
    assert list(parts) == ["Problem", "Options", "Parent Solutions", "Instructions"]
    assert parts["Options"] == "A. 41\nB. 42\nC. 43\nD. 44"
    assert parts["Parent Solutions"] == (
        "Answer: B (42)\nScore: 1.235\nReasoning:\nSix sevens.\n\nAnswer: A (41)\nScore: -0.500\nReasoning:\nNearly."
    )
    assert prompt.hints == {"role": "evolve", "problem": "p1", "answers": ["B", "A"]}


def test_judge_prompt_shows_the_first_as_a() -> None:
    prompt = TASK.judge_prompt(PROBLEM, WRONG, RIGHT)
    parts = sections(user_text(prompt))
    assert list(parts) == ["Goal", "Problem", "Options", "Candidate A", "Candidate B", "Output Format (STRICT)"]
    assert parts["Candidate A"] == "Answer: A (41)\nReasoning:\nNearly."
    assert parts["Candidate B"] == "Answer: B (42)\nReasoning:\nSix sevens."
    assert prompt.hints == {"role": "judge", "problem": "p1", "answers": ["A", "B"]}


def test_few_shot_prompt_shows_solved_problems_as_they_are_to_be_answered() -> None:
    other = msgspec.structs.replace(PROBLEM, data={"question": "How much is 1 + 1?", "options": ("0", "1", "2", "3")})
    shots = [
        Demonstration(problem=other, answer="C", reasoning='One and "one".'),
        Demonstration(problem=other, answer="C", reasoning="Two\nlines."),
    ]
    prompt = TASK.few_shot_prompt(PROBLEM, shots)
    text = user_text(prompt)
    titles = ["Problem", "Multiple-Choice Options", "Response"]
    assert [line[2:] for line in text.splitlines() if line.startswith("# ")] == ["Instructions", *titles * 3]
    assert text.endswith(
        "# Problem\nHow much is 6 * 7?\n# Multiple-Choice Options\nA. 41\nB. 42\nC. 43\nD. 44\n# Response"
    )
    replies = [TASK.parse(other, line) for line in text.splitlines() if line.startswith('{"')]
    assert [(reply.answer, reply.reasoning) for reply in replies] == [(shot.answer, shot.reasoning) for shot in shots]
    assert prompt.hints == {"role": "few_shot", "problem": "p1", "answers": []}


def test_a_graded_response_becomes_the_demonstration() -> None:
    shot = TASK.demonstration(Demonstration(problem=PROBLEM, answer="B"), RIGHT)
    assert shot == Demonstration(problem=PROBLEM, answer="B", reasoning="Six sevens.")


def test_refinement_prompt_shows_the_incumbent_and_the_attempts_in_order() -> None:
    attempts = [
        Attempt(response=WRONG, outcome="first"),
        Attempt(response=RIGHT, outcome="won", reason="It is exact."),
        Attempt(response=UNPARSED, outcome="lost", reason="It has no answer."),
        Attempt(response=WRONG, outcome="undecided"),
    ]
    prompt = TASK.refinement_prompt(PROBLEM, RIGHT, attempts)
    parts = sections(user_text(prompt))
    assert list(parts) == ["Problem", "Options", "Best Answer So Far", "Latest Attempts", "Instructions"]
    assert parts["Best Answer So Far"] == "Answer: B (42)\nReasoning:\nSix sevens."
    shown = [block.splitlines() for block in parts["Latest Attempts"].split("## ")[1:]]
    assert [block[0].split(":")[0] for block in shown] == [f"Attempt {number}" for number in (1, 2, 3, 4)]
    assert [block[0].split(": ")[1] for block in shown] == [
        "the first attempt",
        "judged better than the best answer before it",
        "judged worse than the best answer of its time",
        "judged neither better nor worse than the best answer of its time",
    ]
    assert [block[1] for block in shown] == ["Answer: A (41)", "Answer: B (42)", "Answer: none", "Answer: A (41)"]
    judged = ["Judge: no explanation", "Judge: It is exact.", "Judge: It has no answer.", "Judge: no explanation"]
    assert [block[2] for block in shown] == judged
    assert prompt.hints == {"role": "refine", "problem": "p1", "answers": ["B"]}


def test_an_instruction_takes_the_system_prompts_place() -> None:
    prompt = TASK.instructed_prompt(PROBLEM, "Be brief.")
    system, user = prompt.messages
    assert system == {"role": "system", "content": "Be brief."}
    assert list(sections(user["content"])) == ["Problem", "Multiple-Choice Options"]
    assert prompt.json_schema == TASK.generation_prompt(PROBLEM).json_schema
    seed = TASK.seed_instruction()
    assert "JSON" in seed
    assert "one of A, B, C, D" in seed
    assert TASK.instructed_prompt(PROBLEM, seed).hints["instruction"] == ""
    hints = [TASK.instructed_prompt(PROBLEM, text).hints["instruction"] for text in ("Be brief.", "Be long.")]
    assert hints[0] == prompt.hints["instruction"] != hints[1]


def test_the_reflection_record_names_the_right_letter_only_with_the_demonstration() -> None:
    gold = Demonstration(problem=PROBLEM, answer="B")
    assert TASK.reflection_record(PROBLEM, WRONG, None) == "Answer: A (41)\nReasoning:\nNearly."
    assert TASK.reflection_record(PROBLEM, WRONG, gold).endswith("The answer is wrong: the right one is B (42).")
    assert TASK.reflection_record(PROBLEM, RIGHT, gold).endswith("The answer is right.")
    record = TASK.reflection_record(PROBLEM, UNPARSED, gold)
    assert "no_json" in record
    assert "some prose" in record
    assert record.endswith("The answer is wrong: the right one is B (42).")


def test_an_unparsed_response_is_shown_as_its_text() -> None:
    parts = sections(user_text(TASK.judge_prompt(PROBLEM, UNPARSED, RIGHT)))
    assert parts["Candidate A"] == "Answer: none\nReasoning:\nsome prose"


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


def test_long_reasoning_is_cut_where_a_prompt_shows_it() -> None:
    long = Response(text="", answer="B", reasoning="z" * 5000)
    task = MathBench(reasoning_max_chars=300, shown_reasoning_chars=200)
    assert user_text(task.judge_prompt(PROBLEM, long, WRONG)).count("z") == 200
    shot = task.demonstration(Demonstration(problem=PROBLEM, answer="B"), long)
    assert user_text(task.few_shot_prompt(PROBLEM, [shot])).count("z") == 5000


def test_template_syntax_in_data_stays_as_it_is() -> None:
    nasty = "{{ question }} {% for x in y %} {# gone? #} {{ 7 * 7 }}"
    problem = msgspec.structs.replace(PROBLEM, data={"question": nasty, "options": (nasty, "2", "3", "4")})
    response = Response(text="", answer="A", reasoning=nasty)
    texts = [
        user_text(TASK.generation_prompt(problem)),
        user_text(TASK.evolution_prompt(problem, [ScoredResponse(response=response, score=0)])),
        user_text(TASK.judge_prompt(problem, response, response)),
    ]
    assert [text.count(nasty) for text in texts] == [2, 4, 6]


def test_markup_is_not_escaped() -> None:
    problem = msgspec.structs.replace(PROBLEM, data={**PROBLEM.data, "question": "Is 1 < 2 & 3 > 2?"})
    assert "Is 1 < 2 & 3 > 2?" in user_text(TASK.generation_prompt(problem))


def test_every_sample_problem_composes() -> None:
    loaded = load_task("mathbench", source="sample")
    task = loaded.task
    assert isinstance(task, MathBench)
    for problem in loaded.problems:
        parents = [ScoredResponse(response=response, score=0.1) for response in (RIGHT, UNPARSED)]
        for prompt in (
            task.generation_prompt(problem),
            task.evolution_prompt(problem, parents),
            task.judge_prompt(problem, RIGHT, WRONG),
            task.few_shot_prompt(problem, loaded.validation[:8]),
            task.refinement_prompt(problem, UNPARSED, [Attempt(response=WRONG, outcome="first")]),
        ):
            assert problem.data["question"] in user_text(prompt)
            assert all(option in user_text(prompt) for option in problem.data["options"])


# --- a user's own files ---


def test_a_users_file_replaces_the_one_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "generation.md").write_text("Q: {{ question }}\nO: {{ options }}\n")
    (tmp_path / "README.md").write_text("{{ not a prompt }}")
    task = MathBench(prompts=str(tmp_path))
    assert user_text(task.generation_prompt(PROBLEM)) == "Q: How much is 6 * 7?\nO: A. 41\nB. 42\nC. 43\nD. 44"
    assert task.judge_prompt(PROBLEM, RIGHT, WRONG) == TASK.judge_prompt(PROBLEM, RIGHT, WRONG)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("generation.md", "{{ question }} {{ options }} {{ qestion }}", "unknown variable 'qestion'"),
        ("system.md", "Solve {{ question }}", "unknown variable 'question'; this template may use: none"),
        ("parent.md", "{{ answer_letter }}\n{{ score }}\n{% if reasoning", ":3: the prompt template does not render"),
        ("parent.md", "{{ answer_letter }} {{ reasoning }} {{ score | upsidedown }}", "does not render"),
        ("parent.md", "{{ answer_letter }} {{ reasoning }} {{ score.value.more }}", "does not render"),
        ("parent.md", "{{ answer_letter }} {{ reasoning }} {{ score / 0 }}", "does not render"),
        ("system.md", "{{ ''.__class__.__mro__ }}", "does not render"),
        ("system.md", b"\xff\xfe", "cannot read the prompt template"),
    ],
)
def test_a_bad_prompt_file_is_named(tmp_path: Path, name: str, text: Any, reason: str) -> None:
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        load_task("mathbench", source="sample", prompts=str(tmp_path))
    assert str(tmp_path / name) in str(caught.value)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_or_empty_prompt_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"task\.prompts: expected a folder"):
        MathBench(prompts=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"expected at least one of answer_format\.md, attempt\.md, .* system\.md"):
        MathBench(prompts=str(tmp_path))
