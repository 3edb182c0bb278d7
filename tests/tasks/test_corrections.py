"""Answers that a reply takes back: what can be read after that counts, and else there is no answer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from building import load_task
from evorun.tasks import corrections
from reply_tables import CASES, Case

TAKEN_BACK = (
    "Wait, that is wrong, row 3 repeats 5. The correct one is:",
    "Sorry, that was wrong.",
    "Hold on \u2014 I see that this isn't right.",
    "Wait, no: two of them are the same. Corrected:",
    "Oops, I made a mistake.",
    "That does not work, ignore it; here is the fix:",
    "Please disregard the above solution.",
    "I take that back.",
    "Let me start over.",
)
CALLED_WRONG = ("That is wrong.", "Unfortunately, this solution is not valid.", "No, the answer above is incorrect.")
UPHELD = (
    "Wait, that is wrong? No, everything is fine.",
    "Sorry for the length.",
    "Wait, let me double-check: nothing is wrong.",
    "My first attempt was wrong, since it left one out.",
    "If this is wrong, tell me.",
    "Earlier I made a mistake, which is corrected here.",
    "This is not valid if the rules change.",
    "If there is no solution, it says so.",
)
ABOUT_OTHERS = ("My first attempt was wrong; the solution is:", "That is wrong, so rather:", "Wait, I made a mistake.")
FREE = ("sudoku", "tsp", "graph_coloring", "livecodebench")
SHAPES = {"sudoku": "rows", "tsp": "tight", "graph_coloring": "tight", "livecodebench": "code", "mathbench": "L"}


SURELY_TAKEN_BACK = (
    *("Wait, that is wrong", "Sorry, this is wrong", "Oops: it is wrong", "Woops: it is wrong", "Hold on, it is wrong"),
    *("My mistake, it is wrong", "Apologies, it is wrong", "I apologize: it is wrong", "I said 5, wait no"),
    *("Ignore that", "Disregard that", "Scratch that", "Forget that", "Discard that", "I take that back"),
    *("I see a mistake", "Let me start over", "We need to redo it", "I must try again", "I do not trust it"),
    *("Wait -", "* hmm, ", "_hm: ", "> hang on, ", "but\nwait, ", "Here is the fix", "Corrected answer: 6"),
    *("Fixed answer: 6", "Revised answer: 6"),
)
"""A withdrawal with each word that one may begin with."""
CALLED_WRONG_AFTER = (
    *("I have no solution", "I could not solve it", "I cannot find any answer", "There is no solution"),
    *("This graph has no solution", "The puzzle has no solution", "**No, it is wrong", "Hmm, it is wrong"),
    *("Actually, it is wrong", "Unfortunately, it is wrong", "But it is wrong", "However, it is wrong"),
    *(
        "No, it is wrong",
        "Which is wrong",
        "My answer is wrong",
        "That is fine, but it is wrong",
        "Is not right",
        "Was wrong",
    ),
)
"""The same of what takes an answer back only where it stands beside it."""


@pytest.fixture(scope="module", params=SHAPES)
def stated(request: pytest.FixtureRequest) -> tuple[str, Case, str]:
    """Return a table's name, its case, and the right answer as the task asks for it."""
    name = request.param
    case = CASES[name]()
    shape = case.shapes(case.right)[SHAPES[name]]
    if name == "mathbench":
        return name, case, json.dumps({"reasoning": "I first made a mistake. Wait, that is wrong.", "solution": shape})
    return name, case, f"```{'python' if name == 'livecodebench' else ''}\n{shape}\n```"


def error(case: Case, text: str) -> str:
    read = case.task.parse(case.problem, text)
    assert read.answer is None, text
    return str(read.error)


def test_an_answer_that_is_taken_back_is_none(stated: tuple[str, Case, str]) -> None:
    name, case, answer = stated
    for words in (*TAKEN_BACK, *(CALLED_WRONG if name in FREE else ())):
        for after in ("", "\n\n```\n5 3 4 x\n```", "\n5, 3, ?\n\nI stop here."):
            assert error(case, f"So:\n\n{answer}\n\n{words}{after}").startswith("withdrawn: "), (words, after)


@pytest.mark.parametrize("before", ["It is 5. ", "It is 5\n", "5\n  "])
def test_a_withdrawal_may_begin_with_each_of_its_words(before: str) -> None:
    for words in (*SURELY_TAKEN_BACK, *CALLED_WRONG_AFTER):
        for said in (words, words.lower(), words.upper()):
            assert corrections._ANY.search(f"{before}{said}.\n"), (before, said)
            assert (words in CALLED_WRONG_AFTER) or corrections._SURE.search(f"{before}{said}.\n"), (before, said)


def test_nothing_is_taken_back_where_there_is_no_answer(stated: tuple[str, Case, str]) -> None:
    _, case, _ = stated
    assert not error(case, "I tried this and that.\n\nSorry, that was wrong.").startswith("withdrawn")


def test_a_correction_that_can_be_read_counts(stated: tuple[str, Case, str]) -> None:
    name, case, answer = stated
    wrong = case.shapes(case.right).get({"livecodebench": "other"}.get(name, "wrong"), "")
    draft = answer.replace('"C"', '"A"') if name == "mathbench" else f"```\n{wrong}\n```"
    for words in (*TAKEN_BACK, *(CALLED_WRONG if name in FREE else ())):
        assert case.accepts(f"{draft}\n\n{words}\n\n{answer}"), words
        assert case.accepts(f"{draft}\n\n{words}\n\n{answer}\n\nThat is all."), words


def test_other_doubts_leave_the_answer(stated: tuple[str, Case, str]) -> None:
    _, case, answer = stated
    for words in UPHELD:
        assert case.accepts(f"{answer}\n\n{words}"), words
    for words in (*ABOUT_OTHERS, *TAKEN_BACK):
        assert case.accepts(f"{words}\n\n{answer}"), words
    assert case.accepts(answer)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is C. Wait, that is wrong.", None),
        ("The answer is C. Wait, that is wrong. The answer is A.", "A"),
        ("The answer is C. Option A has 12; that is wrong.", "C"),
        ('{"solution": "C"}\n\nWait, that is wrong: half of 12 is 6.', None),
        ('{"solution": "A"}\n\nWait, that is wrong. The answer is C.', "C"),
        ('{"solution": "C"}\n\nOption A: 12 dollars. This is wrong. Option B is wrong too.', "C"),
        ('{"solution": "C", "reasoning": "A? Wait, that is wrong."}', "C"),
    ],
)
def test_letters(text: str, answer: str | None) -> None:
    case = CASES["mathbench"]()
    assert case.task.parse(case.problem, text).answer == answer


def test_comments_of_a_program_take_nothing_back() -> None:
    case = CASES["livecodebench"]()
    code = f"def f(n):\n    # Wait, that is wrong: ignore it.\n    return n\n\n\n{case.right}"
    for text in (f"```python\n{code}\n```", code, json.dumps({"reasoning": "Wait, no.", "solution": code})):
        assert case.accepts(text, code)


@given(
    st.lists(st.sampled_from(["#", "##", " ", "//", "/", "`", "```", "~~", "~", "\n", "> ", "no", "\u00e9"])).map(
        "".join
    )
)
def test_code_and_comments_are_found_only_where_one_of_their_marks_is(text: str) -> None:
    marked = any(mark in text for mark in corrections._CODE_MARKS)
    assert marked or corrections._CODE.search(text) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer: Paris\n\nSorry, that was wrong.", None),
        ("Answer: Paris\n\nWait, that is wrong. It is elsewhere.", None),
        ("Answer: Paris\n\nWait, that is wrong.\n\nAnswer: Rome", "Rome"),
        ("Wait, that is wrong.\nAnswer: Rome", "Rome"),
        ("Answer: Rome\n\nParis was my first guess. That is wrong.", "Rome"),
    ],
)
def test_answers_to_questions(text: str, answer: str | None) -> None:
    loaded = load_task("search_qa", source="sample", limit=1)
    assert loaded.task.parse(loaded.problems[0], text).answer == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<verdict>RIGHT</verdict>\n\nI take that back.", None),
        ("<verdict>RIGHT</verdict>\n\nWait, I made a mistake. <verdict>WRONG</verdict>", "WRONG"),
        ("<verdict>WRONG</verdict>\n\nThat was wrong of her. It is wrong to lie.", "WRONG"),
        ("She said: wait, that is wrong.\n\n<verdict>RIGHT</verdict>", "RIGHT"),
    ],
)
def test_verdicts_on_deeds(text: str, answer: str | None) -> None:
    loaded = load_task("ethics", source="sample", limit=1)
    assert loaded.task.parse(loaded.problems[0], text).answer == answer
