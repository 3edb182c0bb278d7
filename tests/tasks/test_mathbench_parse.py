"""Reading answers and verdicts: what is understood, what is refused, and that nothing makes the parser raise."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.tasks.base import Problem
from evorun.tasks.judging import parse_judgment
from evorun.tasks.mathbench.task import MathBench

PROBLEM = Problem(id="p", stratum="high", data={"question": "How much?", "options": ("41", "42", "x + 1", "None of A")})
TASK = MathBench()


def reply(solution: object, reasoning: str = "because") -> str:
    return msgspec.json.encode({"reasoning": reasoning, "solution": solution}).decode()


SOLUTIONS = [
    ("B", "B"),
    ("b", "B"),
    (" B ", "B"),
    ("B.", "B"),
    ("B)", "B"),
    ("(B)", "B"),
    ("(b).", "B"),
    ("[B]", "B"),
    ("**B**", "B"),
    ("Option B", "B"),
    ("option b.", "B"),
    ("Answer: B", "B"),
    ("The answer is B", "B"),
    (r"\boxed{B}", "B"),
    (r"$\boxed{\text{B}}$", "B"),
    ("B. 42", "B"),
    ("B) 42", "B"),
    ("B: something in other words", "B"),
    ("42", "B"),
    (42, "B"),
    (["B"], "B"),
    (" X +  1", "C"),
    ("none of A", "D"),
    ("D. None of A", "D"),
]


def test_a_solution_with_one_meaning_is_understood() -> None:
    for solution, letter in SOLUTIONS:
        response = TASK.parse(PROBLEM, reply(solution))
        assert (response.answer, response.error, response.reasoning) == (letter, None, "because")


REFUSED = [
    ("E", "not_an_option"),
    ("", "not_an_option"),
    ("43", "not_an_option"),
    (None, "not_an_option"),
    (True, "not_an_option"),
    (["A", "B"], "not_an_option"),
    ({"letter": "B"}, "not_an_option"),
    ("I do not know", "not_an_option"),
    ("A or B", "ambiguous"),
    ("A, B", "ambiguous"),
    ("A. or B.", "ambiguous"),
    ("A. 42", "ambiguous"),
]


def test_a_solution_without_one_meaning_is_refused_by_kind() -> None:
    for solution, kind in REFUSED:
        response = TASK.parse(PROBLEM, reply(solution))
        assert response.answer is None
        assert response.error is not None
        assert response.error.startswith(f"{kind}:")


def test_an_option_text_that_two_options_share_is_ambiguous() -> None:
    problem = Problem(id="p", stratum="high", data={"question": "?", "options": ("7", "7", "8", "9")})
    assert TASK.parse(problem, reply("7")).error == "ambiguous: '7' means more than one option"
    assert TASK.parse(problem, reply("8")).answer == "C"


NEAR_JSON = [
    '```json\n{"reasoning": "r", "solution": "B"}\n```',
    'Here you are:\n{"reasoning": "r", "solution": "B"}\nI hope that helps.',
    '{"reasoning": "r", "solution": "B",}',
    "{'reasoning': 'r', 'solution': 'B'}",
    '{"reasoning": "r", "solution": "B"',
    '{"reasoning": "r", "solution": "B',
    '{reasoning: "r", solution: "B"}',
]


@pytest.mark.parametrize("text", NEAR_JSON)
def test_near_json_is_repaired(text: str) -> None:
    response = TASK.parse(PROBLEM, text)
    assert (response.answer, response.reasoning) == ("B", "r")


def test_unescaped_latex_and_newlines_are_repaired() -> None:
    response = TASK.parse(PROBLEM, '{"reasoning": "so \\( x = \\frac{1}{2} \\)\nand {x}", "solution": "C"}')
    assert response.answer == "C"
    assert "frac{1}{2}" in response.reasoning


TEXTS = [
    # plainly stated, without any JSON
    ("Work... The answer is C.", "C"),
    ("So the final answer is (C).", "C"),
    ("**Answer:** C", "C"),
    ("Answer: C) x + 1", "C"),
    ("The correct option is C because it fits.", "C"),
    (r"Hence \boxed{C}.", "C"),
    (r"The answer is \boxed{\text{C}}.", "C"),
    ("First 40 + 1, then more.\n\n(C)", "C"),
    ("C", "C"),
    # nothing that commits to one letter
    ("", None),
    ("   \n", None),
    ("I think it could be A.", None),
    ("The answer is a number larger than 3.", None),
    ("The answer is unclear.", None),
    ("The answer is A Cauchy sequence", None),
    ("Option A fails, option B fails, so C it is", None),
    ("The answer is A. No wait, the answer is B.", "B"),
    ("The answer is A. The answer is B.", None),
    ("The answer is A. Wait, is it? The answer is B. The answer is C.", None),
    ("Among the answer choices A and B, both look right.", None),
    ("Answer: E", None),
    ("The answer is Delta", None),
    # JSON without a usable solution: the reasoning is not searched
    ('{"reasoning": "The answer is C', None),
    ('{"reasoning": "The answer is C"}', None),
    ("{}", None),
    ("[]", None),
    ("null", None),
    # started over
    ('{"reasoning": "r", "solution": "A"}\n{"reasoning": "r", "solution": "C"}', None),
    ('{"reasoning": "r", "solution": "C"}\n{"reasoning": "r", "solution": "C"}', "C"),
    ('{"reasoning": "steps", "solution": "the letter"}\n{"reasoning": "r", "solution": "C"}', "C"),
]


def test_texts_without_clean_json() -> None:
    for text, letter in TEXTS:
        response = TASK.parse(PROBLEM, text)
        assert response.answer == letter
        assert (response.error is None) == (letter is not None)
        assert response.text == text


HOSTILE = [
    "{" * 5000,
    "[" * 100_000,
    '{"a":' * 3000,
    '{"solution": ' * 500 + '"A"' + "}" * 500,
    "\x00\ud800 {\udfff}",
    '{"reasoning": "\\ud800", "solution": "A"}',
    '{"solution": "' + "A" * 100_000,
    "answer " * 20_000,
    "answer is " * 20_000,
    "(" * 50_000 + "A",
    "\\boxed{" * 20_000,
    '"solution":"' * 10_000,
    '{"solution": 1e999}',
    '{"solution": ' + "9" * 5000 + "}",
]


@pytest.mark.timeout(60)
def test_hostile_texts_neither_raise_nor_hang() -> None:
    for text in HOSTILE:
        response = TASK.parse(PROBLEM, text)
        assert response.answer is None or response.error is None
        msgspec.json.encode(response)  # can be written to a record
        parse_judgment(text)


@given(st.one_of(st.text(), st.text(alphabet='{}[]":,\\ABCDT solutionanswer is\n\ud800')))
def test_any_text_yields_an_answer_or_an_error(text: str) -> None:
    for candidate in (text, '{"reasoning": "r", "solution": "' + text, "The answer is " + text):
        response = TASK.parse(PROBLEM, candidate)
        assert (response.answer is None) != (response.error is None)
        assert response.answer in ("A", "B", "C", "D", None)
        msgspec.json.encode(response)
        assert parse_judgment(candidate).verdict in ("A", "B", "T", "invalid")


def test_a_text_whose_repair_would_take_long_is_not_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    repaired: list[str] = []
    monkeypatch.setattr("json_repair.loads", lambda text: repaired.append(text) or {})
    for text in ("{" * 41, '{"a": "' + "x" * 40_000):
        TASK.parse(PROBLEM, text)
    assert not repaired
    TASK.parse(PROBLEM, "{" * 40)
    assert len(repaired) == 1


def test_a_long_chain_of_thought_before_the_json_is_no_hindrance() -> None:
    thinking = "Consider \\frac{1}{2} of it, then {x | x > 3}. " * 3000
    assert TASK.parse(PROBLEM, f'{thinking}</think>\n{{"reasoning": "r", "solution": "B"}}').answer == "B"
