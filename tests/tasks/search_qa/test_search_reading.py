"""Search calls and answers as models write them."""

import json

import pytest

from evorun.tasks.search_qa.reading import MAX_CALL_CHARS, read_call
from evorun.tasks.short_answers import MAX_ANSWER_CHARS, is_in_form, read_answer


def call(*queries: object, name: str = "search") -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': {'query_list': list(queries)}})}</tool_call>"


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        (call("river Harn"), ("river Harn",)),
        (call("a" * 300), ("a" * 300,)),
        (f"I need two things.\n{call('one  thing', 'another')}\n", ("one thing", "another")),
        ('<tool_call>\n{"arguments": {"query_list": ["x"], "k": 9}, "name": "search", "id": 1}\n</tool_call>', ("x",)),
        ("no call: the answer is 3 < 4 </tool>", None),
        ("", None),
    ],
)
def test_calls(text: str, queries: tuple[str, ...] | None) -> None:
    assert read_call(text, 3) == queries


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<tool_call>search: river Harn</tool_call>", "bad_json"),
        ('<tool_call>{"name": "search", "arguments": {"query_list": ["a"]}</tool_call>', "bad_json"),
        ("<tool_call>" + "[" * 3000 + "</tool_call>", "bad_json|wrong_arguments"),
        ("<tool_call>[]</tool_call>", "wrong_arguments"),
        ('<tool_call>{"name": "search"}</tool_call>', "wrong_arguments"),
        ('<tool_call>{"name": "search", "arguments": {"query": "a"}}</tool_call>', "wrong_arguments"),
        ('<tool_call>{"name": "search", "arguments": {"query_list": "a"}}</tool_call>', "wrong_arguments"),
        (call("a", 1), "wrong_arguments"),
        (call("a", name="browse"), "unknown_tool"),
        (call(), "queries"),
        (call("a", "b", "c", "d"), "queries"),
        (call("a", "  "), "query"),
        (call("a" * 301), "query"),
        (call("a" * MAX_CALL_CHARS), "too_long"),
        (call("a") + call("b"), "several_calls"),
        (call("a") + "</tool_call>", "several_calls"),
        ('<tool_call>{"name": "search", "arguments": {"query_list": ["a"]}}', "unclosed"),
        ('{"name": "search", "arguments": {"query_list": ["a"]}}</tool_call>', "unclosed"),
        ("</tool_call><tool_call>", "unclosed"),
    ],
)
def test_calls_that_cannot_be_carried_out(text: str, kind: str) -> None:
    with pytest.raises(ValueError, match=rf"^({kind}): "):
        read_call(text, 3)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Answer: Harnmouth", "Harnmouth"),
        ("Answer: Quillan? No.\nIt was founded later.\nAnswer: Ostervik", "Ostervik"),
        ("It is settled.\n\n**Answer:** Tobias Fenn", "Tobias Fenn"),
        ("**Answer: 1869**\n", "1869"),
        ("- Answer:\n  212 metres\nwhich is deep", "212 metres"),
        ("So the answer: Agnes Rook", "Agnes Rook"),
        ("answer: Keld", "Keld"),
        ("Answer: Aske\nMy final answer: see above", "Aske"),  # a label of its own line goes before one within a line
        ("<answer>Keld</answer>", "Keld"),
        (r"The final answer is $\boxed{\text{Keld Ness}}$.", "Keld Ness"),
        ('{"reasoning": "It is Aske.", "answer": "Keld"}', "Keld"),
        ("### Answer\nKeld", "Keld"),
        ("It is long. The answer is **Keld**.", "Keld"),
        ("Answer: Keld or Aske", "Keld or Aske"),  # a name
        ("The firm Keld or Aske is old.\nAnswer: Keld or Aske", "Keld or Aske"),
        (f"Answer: {'x' * MAX_ANSWER_CHARS}", "x" * MAX_ANSWER_CHARS),
    ],
)
def test_answers(text: str, answer: str) -> None:
    assert read_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("It is Harnmouth.", "no_answer"),
        ("Answer:", "no_answer"),
        ("Keld and Aske are near.\nAnswer: Keld or Aske", "ambiguous"),
        ("Answer: either Keld or Aske", "ambiguous"),
        ("Answer: ** **", "no_answer"),
        (f"Answer: {'x' * (MAX_ANSWER_CHARS + 1)}", "too_long"),
        ("<answer>Keld</answer> <answer>Aske</answer>", "no_answer"),
        ('{"answer": "Aske"} {"answer": "Keld"}', "no_answer"),
        ('{"answer": ["Aske", "Keld"]}', "no_answer"),
        ('{"answer": true}', "no_answer"),
        (r"\boxed{Keld} Hmm. The answer is Aske.", "no_answer"),
        (r"It is not \boxed{Keld}.", "no_answer"),
        ("A friend says that the answer is Keld.", "no_answer"),
        ("Is it true that the answer is Keld?", "no_answer"),
        (f"{call('a')}\nPassages for: a\nAnswer: made up", "tool_call"),
    ],
)
def test_texts_without_an_answer(text: str, kind: str) -> None:
    with pytest.raises(ValueError, match=rf"^{kind}: "):
        read_answer(text)


@pytest.mark.parametrize(
    ("question", "text", "answer"),
    [
        ("Were both Danish?", "Answer: Yes, both were.", "Yes"),
        ("Were both Danish?", "Answer: No. One was a Swede.", "No"),
        ("Were both Danish?", "Answer: Yes, but only by birth.", "Yes, but only by birth."),
        ("Was it Ann or Bo?", "Answer: No, Bo", "No, Bo"),
        ("Who sang it?", "Answer: Yes, the band", "Yes, the band"),
    ],
)
def test_a_remark_behind_yes_or_no(question: str, text: str, answer: str) -> None:
    assert read_answer(text, question) == answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Because of it.\nAnswer: Keld\n", True),
        ("Answer: Keld", True),
        ("Answer: Keld\nI am sure.", False),
        ("**Answer:** Keld", False),
        ("Answer:", False),
        (f"{call('a')}\nAnswer: Keld", False),
    ],
)
def test_form(text: str, expected: bool) -> None:
    assert is_in_form(text) is expected
