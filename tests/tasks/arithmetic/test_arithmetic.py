"""The generated problems: their answers, their splits, their short prompts, and what is said about bad settings."""

from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from building import load_task, task_config
from evorun.errors import ConfigError, DataError
from evorun.tasks.arithmetic.arithmetic import SIGNS, Expression, Space, assign_split, value
from evorun.tasks.base import LoadedTask, Problem, Prompt

NO_TOOLS: Any = None
HARD = {"operations": ["add", "subtract", "multiply"], "terms": 4, "largest_operand": 30}


def text_of(problem: Problem) -> str:
    return str(problem.data["problem"]).removesuffix(" =")


def texts(loaded: LoadedTask) -> set[str]:
    return {text_of(problem) for problem in loaded.problems}


def turns(prompt: Prompt) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in prompt.messages]


def test_a_value_is_what_python_makes_of_the_text() -> None:
    for signs in list(product(SIGNS, repeat=3)):
        expression = Expression((7, 0, 13, 4), signs)
        assert value(expression) == eval(str(expression))


@pytest.mark.parametrize("largest", [1, 2, 3])
@pytest.mark.parametrize("terms", [2, 3, 4])
def test_the_bounds_are_those_of_all_expressions(largest: int, terms: int) -> None:
    for some in (["add"], ["subtract"], ["multiply"], ["add", "multiply"], ["subtract", "multiply"], list(SIGNS)):
        values = [
            value(Expression(operands, signs))
            for operands in product(range(largest + 1), repeat=terms)
            for signs in product(some, repeat=terms - 1)
        ]
        assert Space(some, largest, terms).bounds() == (min(values), max(values))


def test_random_answers_are_equally_likely_within_the_bounds() -> None:
    loaded = load_task(
        "arithmetic",
        operations=["subtract"],
        largest_operand=4,
        test_problems=2,
        train_problems=1,
        validation_problems=1,
    )
    rng = np.random.default_rng(0)
    task: Any = loaded.task
    drawn = [int(task.random_answer(loaded.problems[0], rng)) for _ in range(9000)]
    counts = [drawn.count(number) for number in range(-4, 5)]
    assert sum(counts) == 9000
    assert counts == pytest.approx([1000] * 9, abs=4 * 1000**0.5)


@pytest.mark.parametrize("settings", [{}, HARD])
async def test_right_answers_pass_the_grader_and_others_do_not(settings: dict[str, Any]) -> None:
    loaded = load_task("arithmetic", **settings)
    for problem in loaded.problems:
        gold = eval(text_of(problem))
        for text, correct, form in (
            (f"\\boxed{{{gold}}}", True, 1),
            (f"\\boxed{{{gold + 1}}}", False, 1),
            (f"It is \\boxed{{{gold}}}, so 1", True, 0),
            (str(gold), True, 0),
            (f"It is {gold}, or {gold + 1}", False, 0),
        ):
            grade = await loaded.grader.grade(problem, loaded.task.parse(problem, text), NO_TOOLS)
            assert (grade.correct, grade.scores["format"]) == (correct, form)


@pytest.mark.parametrize("settings", [{}, {"largest_operand": 60, "operations": ["multiply"]}, HARD])
def test_splits_share_no_problem_in_any_order_of_its_operands(settings: dict[str, Any]) -> None:
    def made_of(loaded: LoadedTask) -> set[str]:
        return {str(sorted(text.split())) for text in texts(loaded)}

    test, train = set[str](), set[str]()
    for draw_seed in range(3):
        config = task_config("arithmetic", **settings, draw_seed=draw_seed)
        loaded, training = config.load(), config.load_training()
        assert len(texts(loaded)) == config.test_problems
        assert len(texts(training)) == config.train_problems
        shown = {text_of(demonstration.problem) for demonstration in loaded.validation}
        assert len(shown) == config.validation_problems
        assert not shown & (texts(training) | texts(loaded))
        test |= made_of(loaded)
        train |= made_of(training)
    assert not test & train


def test_the_draw_is_decided_by_its_seed_alone_and_a_limit_takes_the_first() -> None:
    loaded = load_task("arithmetic", validation_problems=3)
    assert load_task("arithmetic", limit=7).problems == loaded.problems[:7]
    assert load_task("arithmetic", test_problems=7).problems == loaded.problems[:7]
    assert load_task("arithmetic", draw_seed=1).problems != loaded.problems
    assert loaded.provenance.digest != load_task("arithmetic", draw_seed=1).provenance.digest


def test_all_of_a_small_space_can_be_drawn_and_no_more() -> None:
    every = {f"{a} + {b}" for a in range(5) for b in range(5)}
    of_test = {text for text in every if assign_split(Expression((int(text[0]), int(text[-1])), ("add",))) == "test"}
    small: dict[str, Any] = {
        "operations": ["add"],
        "largest_operand": 4,
        "train_problems": 1,
        "validation_problems": 0,
    }
    assert texts(load_task("arithmetic", **small, test_problems=len(of_test))) == of_test
    with pytest.raises(
        DataError, match=rf"expected {len(of_test) + 1} different .* found {len(of_test)}; lower task\.t"
    ):
        load_task("arithmetic", **small, test_problems=len(of_test) + 1)


def test_a_problem_is_posed_after_one_with_its_answer_and_needs_no_other_words() -> None:
    loaded = load_task("arithmetic")
    task: Any = loaded.task
    problem = loaded.problems[0]
    asked = task.generation_prompt(problem)
    shown = [("user", "1 + 4 ="), ("assistant", "1 + 4 = 5. \\boxed{5}"), ("user", problem.data["problem"])]
    assert turns(asked)[1:] == shown
    assert turns(task.instructed_prompt(problem, "Count.")) == [("system", "Count."), *shown]
    assert turns(task.instructed_prompt(problem, task.seed_instruction())) == turns(asked)
    judged = task.judge_prompt(problem, task.parse(problem, "\\boxed{1}"), task.parse(problem, "\\boxed{2}"))
    assert [role for role, _ in turns(judged)] == ["system", "user"]
    assert judged.json_schema is not None


def test_the_answered_problem_of_the_prompt_is_none_that_is_tested() -> None:
    assert assign_split(Expression((1, 4), ("add",))) == "train"


def test_its_prompt_files_can_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "shown_answer.md").write_text("Five.")
    loaded = load_task("arithmetic", prompts=str(tmp_path))
    task: Any = loaded.task
    assert ("assistant", "Five.") in turns(task.generation_prompt(loaded.problems[0]))


def test_strata_name_the_operations() -> None:
    problems = load_task("arithmetic", **HARD).problems
    for problem in problems:
        signs = {sign for sign in SIGNS.values() if f" {sign} " in text_of(problem)}
        assert {SIGNS[operation] for operation in problem.stratum.split(" and ")} == signs


def test_bad_settings_name_the_key() -> None:
    for changes, message in [
        ({"operations": []}, "task.operations: expected distinct ones"),
        ({"operations": ["add", "add"]}, "task.operations: expected distinct ones"),
        ({"operations": ["divide"]}, "task.operations: expected one of add, multiply, subtract"),
        ({"split": "evaluation"}, "task.split: expected one of test, train"),
        ({"terms": 1}, "task.terms: expected a number >= 2"),
        ({"largest_operand": 0}, "task.largest_operand"),
        ({"train_problems": 0}, "task.train_problems"),
        ({"limit": 0}, "task.limit"),
        ({"validation_problems": -1}, "task.validation_problems"),
    ]:
        with pytest.raises(ConfigError) as caught:
            task_config("arithmetic", **changes)
        assert str(caught.value).startswith(message)


@pytest.mark.nightly
@pytest.mark.slow
def test_prompts_are_short_for_the_embedded_model() -> None:
    transformers = pytest.importorskip("transformers")
    embedded = pytest.importorskip("evorun.models.embedded")
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(embedded.ensure()))
    loaded = load_task("arithmetic")
    task: Any = loaded.task
    for problem in loaded.problems:
        messages = msgspec.to_builtins(task.generation_prompt(problem).messages)
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert len(tokenizer(text, add_special_tokens=False)["input_ids"]) <= 55
