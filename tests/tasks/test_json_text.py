"""The JSON object that a reply was asked for, amid whatever else has braces in it."""

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evorun.tasks import json_text
from evorun.tasks.json_text import find_object, find_valid_object, read_object

ASKED = '{"reasoning": "r", "solution": "A"}'
BROKEN = (
    '{"reasoning": "r", "solution": "A",}',
    "{'reasoning': 'r', 'solution': 'A'}",
    '{reasoning: "r", solution: "A"}',
    '{"reasoning": "r" "solution": "A"}',
    "{\u201creasoning\u201d: \u201cr\u201d, \u201csolution\u201d: \u201cA\u201d}",
)
AROUND = (
    "",
    "```json\n{}\n```",
    "Since \\frac{{1}}{{2}} of it:\n{}",
    "{}\n\nas \\frac{{1}}{{2}} of {{98, 100}} and \\boxed{{B}}",
    'It takes {{98, 100}} and {{x: x > 1}}.\n{}\nFor a 5" pipe {{x | x > 3}}.',
    'Reply with {{"reasoning": "...", "solution": "..."}}, so:\n\n{}',
    'At first {{"reasoning": "draft", "solution": "B"}}\n\nWait:\n\n{}',
    'At first {{"reasoning": "cut off, "solution": "B\n\nAgain:\n\n{}',
    "def f():\n    return {{'a': {{}}}}\n\n{}",
    "{{{}}}",
    "[{}]",
    '{{"result": {}, "n": 3}}',
)


@pytest.mark.parametrize("frame", AROUND)
@pytest.mark.parametrize("text", [ASKED, ASKED.replace("solution", "Solution"), *BROKEN])
def test_an_object_is_read_whatever_stands_around_it(frame: str, text: str) -> None:
    found = read_object(frame.format(text) if frame else text, "solution")
    assert found is not None
    assert (found["reasoning"], found["solution"]) == ("r", "A")


@pytest.mark.parametrize(
    ("text", "solution"),
    [
        ('{"steps": [{"solution": "B"}], "solution": "A"}', "A"),  # the outer one
        ('{"steps": [{"solution": "B"}], "solution": "A",}', "A"),
        ('{"reasoning": "\\( x \\)", "steps": [{"solution": "B"}], "solution": "A"}', "A"),
        ('{"reasoning": "I was asked for {"solution": "B"} here", "solution": "A"}', "A"),
        ('{"reasoning": "in \\(x\\)\n\n{1, 2}", "solution": "A"}\nso {1}', "A"),
        ('{"reasoning": "a } and a { and \\( x \\)", "solution": "A"}', "A"),
        ('{"solution": "B"}\n{"reasoning": "\\( x \\)", "solution": "A"}', "A"),  # the later one, nearly JSON
        ('{"solution": "A"}\n{"note": "\\( x \\)"} {"reaso', "A"),
        ('[{"solution": "B"}, {"solution": "A"}]', "A"),
        ('{"reasoning": "r", "solution": "A', "A"),
        ('{"reasoning": "r"} The answer is {A}', None),
        ("\\frac{1}{2} of {98, 100}", None),
        ("", None),
    ],
)
def test_the_last_object_with_the_key_counts_and_the_outer_one(text: str, solution: str | None) -> None:
    assert (read_object(text, "solution") or {}).get("solution") == solution


def test_the_place_of_an_object_is_told() -> None:
    text = f"So {ASKED[:-1]},}} and {{1}}"
    found = find_object(text, "solution")
    assert found is not None
    assert text[found.start : found.end] == f"{ASKED[:-1]},}}"


def test_only_what_is_json_is_taken_strictly() -> None:
    found = find_valid_object(f"{ASKED} and {BROKEN[0]}", "solution")
    assert found is not None
    assert (found.start, found.end) == (0, len(ASKED))
    assert find_valid_object(BROKEN[0], "solution") is find_valid_object(ASKED[:-1], "solution") is None


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=settings.default.max_examples // 2)  # nested values take long to draw
@given(values, st.sampled_from([None, 2]), st.booleans())
def test_a_reply_that_is_only_json_is_always_read(value: object, indent: int | None, ascii_only: bool) -> None:
    text = json.dumps({"reasoning": "{", "solution": value}, indent=indent, ensure_ascii=ascii_only)
    assert read_object(text, "solution") == json.loads(text)


@pytest.mark.timeout(600)  # quadratic time would take hours
@pytest.mark.parametrize("piece", ["{", '{"', '{"a":', '{"a": x', '{"a": "', '{"a\\', "{a:", '"\\', '{"a": [', "{'a"])
def test_a_hundred_thousand_braces_do_not_hide_the_object_nor_take_long(piece: str) -> None:
    started = time.thread_time()
    found = read_object(f"{piece * 100_000}\n\n{ASKED}", "solution")
    assert time.thread_time() - started < 10
    if piece in ("{", '"\\'):
        assert found == json.loads(ASKED)


def test_a_few_last_objects_are_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    repaired: list[str] = []
    monkeypatch.setattr(json_text, "_repair", repaired.append)
    read_object('{"a": 1,} ' * 10_000, "solution")
    assert repaired
    assert sum(map(len, repaired)) <= json_text.MAX_REPAIR_CHARS
