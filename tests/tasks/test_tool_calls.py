"""Tool calls in texts: written and read back, several in a turn, and those that cannot be read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.tasks.tool_calls import MAX_CALL_CHARS, Tool, ToolCall, format_tools, read_calls, without_calls, write_call

NAMES = st.text("abcdefgh_", min_size=1, max_size=8)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<>"), max_size=20)
ARGUMENTS = st.dictionaries(NAMES, TEXTS | st.integers(-9, 9) | st.lists(st.booleans(), max_size=2), max_size=3)


@given(st.lists(st.tuples(NAMES, ARGUMENTS), max_size=3), TEXTS)
def test_calls_are_read_as_they_were_written(calls: list[tuple[str, dict[str, object]]], words: str) -> None:
    text = "\n".join([words, *(write_call(name, arguments) for name, arguments in calls)])
    assert read_calls(text) == [ToolCall(name, arguments) for name, arguments in calls]
    assert without_calls(text) == words.strip()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<tool_call>{", "unclosed"),
        ("</tool_call>", "unclosed"),
        ("<tool_call>not JSON</tool_call>", "bad_json"),
        ("<tool_call>[1]</tool_call>", "wrong_call"),
        ('<tool_call>{"name": 1}</tool_call>', "wrong_call"),
        ('<tool_call>{"arguments": {}}</tool_call>', "unnamed"),
        (f"<tool_call>{'x' * (MAX_CALL_CHARS + 1)}</tool_call>", "too_long"),
        (f"<tool_call>{'[' * 5000}</tool_call>", "wrong_call"),
    ],
)
def test_an_unreadable_call_says_why(text: str, kind: str) -> None:
    good = write_call("add", {"x": 1})
    read = read_calls(good + text)
    assert read[0] == ToolCall("add", {"x": 1})
    assert read[1].error.startswith(f"{kind}:")


def test_a_model_cannot_forge_an_error() -> None:
    assert read_calls('<tool_call>{"name": "add", "error": "unclosed: no"}</tool_call>') == [ToolCall("add")]


def test_tools_are_shown_as_lines_of_json() -> None:
    shown = format_tools([Tool("add", "Add.", {"type": "object"}), Tool("stop")])
    assert [json.loads(line)["name"] for line in shown.splitlines()] == ["add", "stop"]
