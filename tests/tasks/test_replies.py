"""Realistic replies: right ones are read whatever they look like, and near misses are not taken for right."""

import pytest

from evorun.tasks.fitness_scores import read_fitness
from evorun.tasks.judging import parse_judgment, read_errors
from evorun.tasks.thinking import without_thinking
from reply_tables import (
    CASES,
    TOUR_RIGHT,
    Case,
    expression_case,
    incomplete_answers,
    templates,
    wrong_answers,
)

LEAST = 45


@pytest.fixture(scope="module", params=CASES)
def table(request: pytest.FixtureRequest) -> tuple[str, Case]:
    return request.param, CASES[request.param]()


def test_right_replies_are_read(table: tuple[str, Case]) -> None:
    name, case = table
    replies = templates(name)
    assert len(replies) >= LEAST
    assert [reply.name for reply in replies if not case.accepts(reply.fill(case.shapes(case.right)))] == []


@pytest.mark.nightly
def test_right_expressions_are_read() -> None:
    replies = templates("math500")
    assert len(replies) >= LEAST
    assert [reply.name for reply in replies if not expression_case(reply.name).accepts(reply.text)] == []


def test_the_same_replies_with_a_wrong_answer_are_read_as_that(table: tuple[str, Case]) -> None:
    name, case = table
    for answer in wrong_answers(name, case.right):
        texts = [(reply.name, reply.fill(case.shapes(answer))) for reply in templates(name)]
        assert [which for which, text in texts if case.accepts(text)] == []
        assert [which for which, text in texts if not case.accepts(text, answer)] == []


def test_the_same_replies_with_an_incomplete_answer_are_not_right(table: tuple[str, Case]) -> None:
    name, case = table
    for answer in incomplete_answers(name, case.right):
        for reply in templates(name):
            assert not case.accepts(reply.fill(case.shapes(answer))), (reply.name, answer)


def test_what_is_only_thought_is_no_answer(table: tuple[str, Case]) -> None:
    name, case = table
    for reply in templates(name):
        text = reply.fill(case.shapes(case.right))
        for thought in (f"<think>\n{text}\n</think>", f"{text}\n</think>\n\n", f"<think>\n{without_thinking(text)}"):
            assert case.task.parse(case.problem, thought).answer is None, reply.name


def test_near_misses_are_refused() -> None:
    cases = {name: case() for name, case in CASES.items()}
    for reply in templates("refused"):
        case = cases[reply.name.partition(":")[0]]
        read = case.task.parse(case.problem, reply.fill(case.shapes(case.right)))
        assert (read.answer, bool(read.error)) == (None, True), reply.name


@pytest.mark.parametrize("name", ["sudoku", "graph_coloring", "tsp"])
def test_a_reply_that_is_cut_off_is_not_read_as_another_answer(name: str) -> None:
    case = CASES[name]()
    shapes = case.shapes(case.right)
    stated = {case.right, None}
    if name == "tsp":
        stated.add(",".join(TOUR_RIGHT.split(",")[::-1]))
    for reply in templates(name)[::4]:
        if "«wrong»" in reply.text or "other" in reply.text:
            continue
        text = reply.fill(shapes)
        assert {case.task.parse(case.problem, text[:end]).answer for end in range(0, len(text), 7)} <= stated, (
            reply.name
        )


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("<think>\na\n</think>\nb", "\nb"),
        ("a</think>b", "b"),
        ("a</think>b</think>c", "c"),
        ("<thinking>a</thinking>b", "b"),
        ("[THINK]a[/THINK]b", "b"),
        ("\u25c1think\u25b7a\u25c1/think\u25b7b", "b"),
        ("<|begin_of_thought|>a<|end_of_thought|>b", "b"),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b", "b"),
        ("<think>a", ""),
        ("a\n <think>b", "a\n"),
        ("a</think>b\n<think>c", "b\n"),
        ("the tag <think> opens it", "the tag <think> opens it"),
        ("", ""),
    ],
)
def test_thinking_is_no_part_of_a_reply(text: str, reply: str) -> None:
    assert without_thinking(text) == reply


def test_judges_and_evaluators_may_think_first() -> None:
    for thinking in ("<think>\n{}\n</think>\n", "{}</think>"):
        draft = thinking.format('{"solution": "A", "score": 10, "errors": ["x"]} 10/100')
        assert parse_judgment(draft + '{"solution": "B", "reasoning": "r"}').verdict == "B"
        assert parse_judgment(draft + "B").verdict == "B"
        assert read_errors(draft + '{"reasoning": "", "errors": ["y"]}', 3) == ["y"]
        assert read_fitness(draft + '{"score": 85}') == read_fitness(draft + "85/100") == 85
    assert parse_judgment('<think>{"solution": "A"}').verdict == "invalid"
    assert read_fitness("<think>85") is read_errors('<think>{"errors": ["y"]}', 3) is None
