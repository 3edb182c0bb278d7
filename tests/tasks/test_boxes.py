"""The last boxed answer, against a parser that counts braces character by character."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.tasks.boxes import is_in_form, last_boxed

COMMANDS = ("\\boxed", "\\fbox")
PIECES = ["\\boxed{", "\\fbox{", "\\boxed {", "{", "}", "\\{", "\\}", "\\\\ ", "5", "x", " ", "$", "\\frac", "\n"]


def closing(text: str, at: int) -> int | None:
    """Return where the group that opens before `at` has ended."""
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == "{":
            inner = closing(text, at + 1)
            if inner is None:
                return None
            at = inner
        elif text[at] == "}":
            return at + 1
        else:
            at += 1
    return None


def reference(text: str) -> str | None:
    """Find every box by itself, drop those inside others, and take the last one, unless one is cut off after it."""
    finished, unfinished, at = [], [], 0
    while at < len(text):
        command = next((one for one in COMMANDS if text.startswith(one, at)), None)
        if command is None:
            at += 2 if text[at] == "\\" else 1
            continue
        opening = text.index("{", at)
        end = closing(text, opening + 1)
        if end is None:
            unfinished.append(at)
        else:
            finished.append((at, end, text[opening + 1 : end - 1].strip()))
        at += len(command)
    outer = [one for one in finished if not any(other[0] < one[0] < other[1] for other in finished)]
    if not outer or any(start >= outer[-1][1] for start in unfinished):
        return None
    content = outer[-1][2]
    inside = next((one for one in COMMANDS if content.startswith(one)), None)
    if inside is not None:
        opening = content.index("{")
        if closing(content, opening + 1) == len(content):
            return reference(content)
    return content


@given(st.lists(st.sampled_from(PIECES), max_size=24).map("".join))
def test_agrees_with_counting_braces(text: str) -> None:
    assert last_boxed(text) == reference(text)


@given(st.text(alphabet="\\boxedf{}5 $.", max_size=60))
def test_never_raises(text: str) -> None:
    last_boxed(text)
    is_in_form(text)


def test_what_counts() -> None:
    for text, content in [
        (r"\boxed{5}", "5"),
        (r"\boxed{3} then \boxed{4 and \boxed{5}", "5"),
        (r"\boxed{3} then \boxed, and \boxed{5}", "5"),
        (r"first \boxed{4}, then \boxed{5}, done 6.", "5"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x : x > 0 \right\}}", r"\left\{ x : x > 0 \right\}"),
        (r"\fbox{7}", "7"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"\boxed{x = \fbox{7}}", r"x = \fbox{7}"),
        ("$\\boxed\n{8}$", "8"),
        (r"so \boxed 5.", "5"),
        (r"so $\boxed 42$", "42"),
        (r"so \boxed5", "5"),
        (r"\\boxed{9}", "9"),
        (r"\\\boxed{9}", "9"),
        (r"\boxed{3} and then \boxed{", None),
        (r"\boxed{3} and then \boxed", None),
        (r"\boxed{3", None),
        (r"\boxed{3 and \boxed{5}", "5"),
        (r"\boxed{3} \boxedness 4", "3"),
        (r"boxed{3}", "3"),
        ("\x08oxed{3}", "3"),
        (r"unboxed{3}", None),
        (r"} \boxed{3}", "3"),
        (r"{ \boxed{3}", "3"),
        (r"\boxed{}", ""),
        ("", None),
    ]:
        assert last_boxed(text) == content


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"It is $\boxed{5}$.", True),
        (r"It is \boxed{5}." + "\n", True),
        (r"It is \boxed{5}, I think", False),
        (r"It is \boxed{4} or \boxed{5}", False),
        ("It is 5", False),
    ],
)
def test_the_form_asked_for(text: str, expected: bool) -> None:
    assert is_in_form(text) == expected


@pytest.mark.nightly
@pytest.mark.timeout(600)  # quadratic time would take hours
def test_long_texts_are_read_in_linear_time() -> None:
    openings, boxes = "\\boxed{" * 20_000, "\\boxed{5}" * 20_000
    for text in (openings, "\\" * 200_000, boxes, openings + "}" * 20_000, "{" * 200_000):
        last_boxed(text)
