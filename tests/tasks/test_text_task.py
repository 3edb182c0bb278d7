"""The defaults of every task in text: prompts for all capabilities, reading, a user's files, loading."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from building import load_task
from evorun.errors import ConfigError, DataError
from evorun.runs.candidates import Response
from evorun.tasks.base import Demonstration, Grade, LoadedTask, Problem, Prompt, TaskConfig
from evorun.tasks.capabilities import Attempt, Diagnosis, Explanation, Individual, ScoredResponse
from evorun.tasks.loading import load_rows
from evorun.tasks.text_task import TextTask
from text_tasks import Essays, JsonSums, Sums, essays, sums

NO_TOOLS: Any = None
LOADED: dict[str, LoadedTask] = {
    "sums": load_rows(Sums(), sums(12), validation=sums(4, 20)),
    "json_sums": load_rows(JsonSums(), sums(3), validation=sums(1, 20)),
    "essays": load_rows(Essays(), essays("One two.", "Three."), validation=essays("", "", "Four five.")[2:]),
    "mathbench": load_task("mathbench", source="sample"),
    "arithmetic": load_task("arithmetic"),
    "aime": load_task("aime", source="sample"),
    "hmmt": load_task("hmmt", source="sample"),
    "livecodebench": load_task("livecodebench", source="sample"),
}
EVALUATING = ("judge", "errors", "fitness")
TASK = Sums()
PROBLEM, OTHER = (row.problem for row in sums(2))
RIGHT = TASK.parse(PROBLEM, "Five and none.\n#### 5")
WRONG = TASK.parse(PROBLEM, "Nearly.\n#### 6")
UNREAD = TASK.parse(PROBLEM, "I do not know.")


@pytest.fixture(params=LOADED)
def loaded(request: pytest.FixtureRequest) -> LoadedTask:
    return LOADED[request.param]


def task_of(loaded: LoadedTask) -> TextTask:
    assert isinstance(loaded.task, TextTask)
    return loaded.task


def right_answer(loaded: LoadedTask) -> str:
    return loaded.validation[0].answer


def every_prompt(task: TextTask, problem: Problem, response: Response, *shots: Demonstration) -> dict[str, Prompt]:
    individual = Individual(response=response, fitness=81.25, errors=Diagnosis(text="- It is short."))
    return {
        "generate": task.generation_prompt(problem),
        "evolve": task.evolution_prompt(problem, [ScoredResponse(response=response, score=0.25)]),
        "refine": task.refinement_prompt(
            problem, response, [Attempt(response=response, outcome="won", judged=Explanation(reason="ok"))]
        ),
        "few_shot": task.few_shot_prompt(problem, shots),
        "instruct": task.instructed_prompt(problem, task.seed_instruction()),
        "crossover": task.crossover_prompt(problem, individual, individual),
        "mutate": task.mutation_prompt(problem, individual),
        "judge": task.judge_prompt(problem, response, response),
        "errors": task.errors_prompt(problem, response),
        "fitness": task.fitness_prompt(problem, response),
    }


def words(prompt: Prompt) -> str:
    return "\n".join(message["content"] for message in prompt.messages)


# --- of all families ---


def test_every_prompt_poses_the_problem_and_says_its_role(loaded: LoadedTask) -> None:
    task, shot = task_of(loaded), loaded.validation[0]
    response = task.parse(shot.problem, task.write(shot.problem, shot.answer, "Thinking."))
    for role, prompt in every_prompt(task, shot.problem, response, shot).items():
        assert task.question(shot.problem) in words(prompt), role
        assert (prompt.hints["role"], prompt.hints["problem"]) == (role, shot.problem.id)
        answers = {"crossover": 2, "judge": 2, "generate": 0, "few_shot": 0, "instruct": 0}.get(role, 1)
        assert prompt.hints["answers"] == [shot.answer] * answers
        assert (prompt.json_schema is None) == (task.reply_schema is None and role not in EVALUATING)


def test_what_is_asked_for_in_json_fits_its_schema(loaded: LoadedTask) -> None:
    task, shot = task_of(loaded), loaded.validation[0]
    prompts = every_prompt(task, shot.problem, Response(text="", answer=shot.answer))
    for role, prompt in prompts.items():
        text = words(prompt)
        if prompt.json_schema is not None and "{\n" in text:
            example = json.loads(text[text.rindex("{\n") : text.rindex("}") + 1])
            assert list(example) == prompt.json_schema["required"]
            if role in ("errors", "fitness"):
                jsonschema.validate(example, prompt.json_schema)
        assert role not in EVALUATING or prompt.json_schema is not None


def test_what_is_written_is_read_again(loaded: LoadedTask) -> None:
    task = task_of(loaded)
    for shot in loaded.validation:
        for reasoning in ("", "It follows.\nSo it is."):
            response = task.parse(shot.problem, task.write(shot.problem, shot.answer, reasoning))
            assert (response.answer, response.error) == (shot.answer, None)
            assert reasoning in response.reasoning or isinstance(task, Essays)


def test_a_demonstration_shows_a_reply_that_is_read_as_its_answer(loaded: LoadedTask) -> None:
    task, shot = task_of(loaded), loaded.validation[0]
    assert task.parse(shot.problem, task.solution(shot)).answer == shot.answer
    response = task.parse(shot.problem, task.write(shot.problem, shot.answer, "It follows."))
    made = task.demonstration(shot, response)
    assert task.solution(made) == response.text
    assert task.solution(made) in words(task.few_shot_prompt(loaded.problems[0], [made]))


def test_texts_are_data(loaded: LoadedTask) -> None:
    task, nasty = (
        task_of(loaded),
        "{{ question }} {% for x in y %} {# gone? #} {{ 7 * 7 }} Is 1 < 2 & 3 > 2? \ud800 \x00",
    )
    response = Response(text=nasty, answer=right_answer(loaded), reasoning=nasty)
    for role, prompt in every_prompt(task, loaded.problems[0], response).items():
        shown = {"crossover": 2, "judge": 2, "generate": 0, "few_shot": 0, "instruct": 0, "refine": 2}.get(role, 1)
        if loaded is LOADED["livecodebench"]:  # elsewhere its prompts show programs without their reasoning
            shown = int(role in ("evolve", "refine"))
        assert words(prompt).count(nasty) == shown, role


def test_any_text_becomes_a_response(loaded: LoadedTask) -> None:
    for text in ("", " \n", "\ud800", "{" * 500, "\x00"):
        response = loaded.task.parse(loaded.problems[0], text)
        assert (response.answer is None) == (response.error is not None)
        if not text.strip():
            assert response.error == "empty: the completion has no text"
        msgspec.json.encode(response)  # can be written to a record


# --- how responses are shown ---


def sections(text: str) -> dict[str, str]:
    parts = ("\n" + text).split("\n# ")[1:]
    return {title: body.strip() for title, body in (part.split("\n", 1) for part in parts)}


def test_parents_are_shown_with_their_scores() -> None:
    parents = [ScoredResponse(response=RIGHT, score=1.23456), ScoredResponse(response=UNREAD, score=-0.5)]
    prompt = TASK.evolution_prompt(PROBLEM, parents)
    assert sections(words(prompt))["Parent Solutions"] == (
        "Answer: 5\nScore: 1.235\nSolution:\nFive and none.\n#### 5\n\n"
        "Answer: none\nScore: -0.500\nSolution:\nI do not know."
    )
    assert prompt.hints["answers"] == ["5", None]


def test_the_first_of_two_is_judged_as_a() -> None:
    prompt = TASK.judge_prompt(PROBLEM, WRONG, RIGHT)
    parts = sections(words(prompt))
    assert parts["Candidate A"] == "Answer: 6\nSolution:\nNearly.\n#### 6"
    assert parts["Candidate B"].startswith("Answer: 5\n")
    assert prompt.hints["answers"] == ["6", "5"]


def test_attempts_are_shown_in_order_with_what_became_of_them() -> None:
    attempts = [
        Attempt(response=WRONG, outcome="first"),
        Attempt(response=RIGHT, outcome="won", judged=Explanation(reason="B is exact.", letter="B")),
        Attempt(response=UNREAD, outcome="lost", judged=Explanation(reason="A has no answer.")),
        Attempt(response=WRONG, outcome="undecided"),
    ]
    parts = sections(words(TASK.refinement_prompt(PROBLEM, RIGHT, attempts)))
    assert parts["Best Solution So Far"] == "Answer: 5\nSolution:\nFive and none.\n#### 5"
    shown = [block.splitlines()[:3] for block in re.split("^## ", parts["Latest Attempts"], flags=re.M)[1:]]
    assert shown == [
        ["Attempt 1: the first attempt", "Answer: 6", "Judge: no explanation"],
        [
            "Attempt 2: judged better than the best answer before it",
            "Answer: 5",
            "Judge, who calls this attempt B and the best answer of its time A: B is exact.",
        ],
        [
            "Attempt 3: judged worse than the best answer of its time",
            "Answer: none",
            "Judge, who calls this attempt A and the best answer of its time B: A has no answer.",
        ],
        [
            "Attempt 4: judged neither better nor worse than the best answer of its time",
            "Answer: 6",
            "Judge: no explanation",
        ],
    ]


def test_individuals_are_shown_with_fitness_and_errors() -> None:
    one = Individual(response=RIGHT, fitness=12.34, errors=Diagnosis(text="- No check."))
    other = Individual(response=WRONG, fitness=100, errors=Diagnosis())
    parts = sections(words(TASK.crossover_prompt(PROBLEM, one, other)))
    scale = "on a scale from 0 (worthless) to 100 (no error known)"
    first = f"Answer: 5\nQuality: 12.3 {scale}\nErrors found:\n- No check.\nSolution:\nFive and none.\n#### 5"
    assert parts["Solution 1"] == first
    assert f"Quality: 100.0 {scale}\nErrors found:\nnone named\n" in parts["Solution 2"]
    assert sections(words(TASK.mutation_prompt(PROBLEM, one)))["Solution"] == first
    assert "No check." not in words(TASK.errors_prompt(PROBLEM, RIGHT)) + words(TASK.fitness_prompt(PROBLEM, RIGHT))


def test_of_a_long_text_the_middle_is_left_out_but_for_demonstrations() -> None:
    task = Sums(shown_reasoning_chars=20)
    response = task.parse(PROBLEM, "start " + "step " * 100 + "\n#### 5")
    shown = words(task.judge_prompt(PROBLEM, response, response))
    assert shown.count("start step [... 497 characters left out ...] #### 5\n") == 2
    assert words(TASK.judge_prompt(PROBLEM, response, response)).count(response.reasoning) == 2
    shot = task.demonstration(Demonstration(problem=OTHER, answer="6"), response)
    assert response.reasoning in words(task.few_shot_prompt(PROBLEM, [shot]))


def test_an_instruction_takes_the_system_prompts_place() -> None:
    prompt = TASK.instructed_prompt(PROBLEM, "Be brief.")
    assert [message["role"] for message in prompt.messages] == ["system", "user"]
    assert prompt.messages[0]["content"] == "Be brief."
    assert TASK.answer_format in TASK.seed_instruction()
    assert TASK.instructed_prompt(PROBLEM, TASK.seed_instruction()).hints["instruction"] == ""
    hints = [TASK.instructed_prompt(PROBLEM, text).hints["instruction"] for text in ("Be brief.", "Be long. \ud800")]
    assert hints[0] == prompt.hints["instruction"] != hints[1]


def test_the_truth_is_told_only_with_the_demonstration() -> None:
    gold = Demonstration(problem=PROBLEM, answer="5")
    assert TASK.reflection_record(PROBLEM, WRONG, None) == "Answer: 6\nSolution:\nNearly.\n#### 6"
    assert TASK.reflection_record(PROBLEM, WRONG, gold, Grade(correct=False)).endswith("The right answer is 5.")
    assert TASK.reflection_record(PROBLEM, RIGHT, gold, Grade(correct=True)).endswith("The answer is right.")
    assert "no_number: expected" in TASK.reflection_record(PROBLEM, UNREAD, None)


def test_a_task_without_right_and_wrong_tells_its_scores() -> None:
    [(problem, reference, _)] = essays("Three long words.")
    shot, response = Demonstration(problem=problem, answer=str(reference)), Response(text="x", answer="One two")
    record = Essays().reflection_record(problem, response, shot, Essays().score(problem, response, reference))
    assert record.endswith("Its grade: missing 98, words 2")


def test_the_verdict_is_the_graders_where_no_answer_is_known() -> None:
    """Only the grader's reference tells that 6 is right here: the task's own comparison has nothing to go by."""
    unknown = Demonstration(problem=PROBLEM, answer="")
    assert TASK.reflection_record(PROBLEM, WRONG, unknown, Grade(correct=True)).endswith("Its grade: right")
    graded = Grade(correct=False, scores={"reward": 0.25})
    assert TASK.reflection_record(PROBLEM, WRONG, unknown, graded).endswith("Its grade: wrong, reward 0.25")


def test_errors_and_scores_are_read() -> None:
    found = TASK.parse_errors(PROBLEM, '{"errors": ["Step 1: it is 5.", "6 is wrong.", "More."]}', 2)
    assert found == Diagnosis(text="- Step 1: it is 5.\n- 6 is wrong.", findings=("Step 1: it is 5.", "6 is wrong."))
    assert TASK.parse_errors(PROBLEM, "The steps hold up.", 2) is None
    assert TASK.parse_fitness('{"reasoning": "7 of 10 steps hold", "score": 70}') == 70
    assert TASK.parse_fitness("nothing") is None


# --- loading ---


async def test_rows_become_splits_with_one_grader() -> None:
    loaded = load_rows(TASK, sums(3), validation=sums(2, 10), training=sums(4, 20))
    assert [problem.id for problem in loaded.problems] == ["q0", "q1", "q2"]
    assert [(shot.problem.id, shot.answer) for shot in loaded.validation] == [("q10", "15"), ("q11", "16")]
    assert [problem.id for problem in loaded.training] == ["q20", "q21", "q22", "q23"]
    for problem in (*loaded.problems, *loaded.training, *(shot.problem for shot in loaded.validation)):
        right = str(int(problem.id[1:]) + 5)
        for answer, correct in ((right, True), ("-1", False), (None, False)):
            grade = await loaded.grader.grade(problem, Response(text="", answer=answer), NO_TOOLS)
            assert (grade.correct, grade.scores) == (correct, {})
    with pytest.raises(DataError, match=r"'stranger': expected one of the 9 loaded problems"):
        await loaded.grader.grade(msgspec.structs.replace(PROBLEM, id="stranger"), RIGHT, NO_TOOLS)
    assert loaded.provenance.digest != load_rows(TASK, sums(4)).provenance.digest
    assert loaded.provenance.source == "own"
    assert load_rows(TASK, sums(4), source="generated").provenance.source == "generated"


@dataclass
class SumsConfig(TaskConfig):
    task_class = Sums

    name: str = "sums"
    to_train_on: int = 4

    def load(self) -> LoadedTask:
        return load_rows(Sums(), sums(3), validation=sums(2, 10), training=sums(self.to_train_on, 20))


@pytest.mark.parametrize(("to_train_on", "expected"), [(4, ["q20", "q21", "q22", "q23"]), (0, ["q10", "q11"])])
async def test_weights_are_trained_on_the_training_rows_else_on_those_of_validation(
    to_train_on: int, expected: list[str]
) -> None:
    training = SumsConfig(to_train_on=to_train_on).load_training()
    assert [problem.id for problem in training.problems] == expected
    assert not training.validation
    assert training.provenance.description == ("training" if to_train_on else "validation") + " split of sums"
    assert training.provenance.digest != SumsConfig().load().provenance.digest
    right = Response(text="", answer=str(int(expected[0][1:]) + 5))
    assert (await training.grader.grade(training.problems[0], right, NO_TOOLS)).correct


def test_rows_that_cannot_be_a_task_are_refused() -> None:
    with pytest.raises(DataError, match="task=sums: expected at least one problem"):
        load_rows(TASK, [], validation=sums(2))
    with pytest.raises(DataError, match="task=sums: expected distinct ids over all splits together"):
        load_rows(TASK, sums(2), validation=sums(1))


# --- a user's own files ---


def test_a_users_file_replaces_the_one_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "generation.md").write_text("Q: {{ question }}\nF: {{ answer_format }}\n")
    (tmp_path / "README.md").write_text("{{ not a prompt }}")
    task = Sums(prompts=str(tmp_path))
    assert task.generation_prompt(PROBLEM).messages[-1]["content"] == "Q: How much is 0 + 5?\nF: End with #### NUMBER."
    assert task.judge_prompt(PROBLEM, RIGHT, WRONG) == TASK.judge_prompt(PROBLEM, RIGHT, WRONG)


def test_a_users_file_may_leave_out_a_placeholder_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "parent.md").write_text("{{ answer }}")
    (tmp_path / "system.md").write_text("Solve.")
    load_rows(Sums(prompts=str(tmp_path)), sums(1))
    [record] = caplog.records
    assert str(tmp_path / "parent.md") in record.getMessage()
    assert "leaves out {{ reasoning }}, {{ score }}" in record.getMessage()


@pytest.mark.parametrize(
    ("text", "lacking"),
    [
        ("{{ question }} {{ candidate_a }} {{ candidate_b }}", None),
        ("{{ question }} {{ candidate_a }}", "shows {{ candidate_b }};"),
        ("{{ candidate_a }} {{ candidate_b }} {{ requirement }}", "shows {{ question }};"),
        ("Which is better, A or B?", "shows {{ question }} and {{ candidate_a }} and {{ candidate_b }};"),
    ],
)
def test_a_judges_file_shows_the_problem_and_both_candidates(tmp_path: Path, text: str, lacking: str | None) -> None:
    (tmp_path / "judge.md").write_text(text)
    if lacking is None:
        assert Sums(prompts=str(tmp_path)).judge_prompt(PROBLEM, RIGHT, WRONG)
    else:
        with pytest.raises(ConfigError, match=re.escape(lacking)):
            Sums(prompts=str(tmp_path))


def test_a_bad_prompt_file_is_named_before_the_run(tmp_path: Path) -> None:
    for name, text, reason in [
        (
            "generation.md",
            "{{ question }} {{ qestion }}",
            "unknown variable 'qestion'; .* use: answer_format, question",
        ),
        ("generation.md", "{% if 0 %}{{ gold }}{% endif %}", "unknown variable 'gold'"),
        ("system.md", "Solve {{ question }}", "unknown variable 'question'; this template may use: none"),
        ("parent.md", "{{ answer }}\n{{ score }}\n{% if reasoning", ":3: the prompt template does not render"),
        ("parent.md", "{{ score | upsidedown }}", "does not render"),
        ("individual.md", "{{ fitness.value.more }}", "does not render"),
        ("attempt.md", "{{ number / 0 }}", "does not render"),
        ("system.md", "{{ ''.__class__.__mro__ }}", "does not render"),
        ("system.md", b"\xff\xfe", "cannot read the prompt template"),
    ]:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ConfigError) as caught:
            load_rows(Sums(prompts=str(tmp_path)), sums(1))
        assert str(tmp_path / name) in str(caught.value)
        assert re.search(reason, str(caught.value))
        assert "\n" not in str(caught.value)
        (tmp_path / name).unlink()


def test_a_prompt_that_no_model_could_read_is_not_read_to_its_end(tmp_path: Path) -> None:
    with (tmp_path / "system.md").open("wb") as file:
        file.truncate(2**34)
    with pytest.raises(ConfigError, match=r"system\.md: .*more than 1,048,576 characters"):
        Sums(prompts=str(tmp_path))


def test_a_missing_or_empty_prompt_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^task\.prompts: expected a folder"):
        Sums(prompts=str(tmp_path / "none"))
    with pytest.raises(
        ConfigError, match=r"^task\.prompts: expected at least one of aggregation\.md, .* system\.md, .* in"
    ):
        Sums(prompts=str(tmp_path))
