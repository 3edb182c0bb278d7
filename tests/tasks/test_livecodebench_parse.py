"""Parsing: which program is read out of a completion, and that no text whatever makes it raise."""

import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evorun.tasks.base import Problem
from evorun.tasks.livecodebench.task import LiveCodeBench

TASK = LiveCodeBench()
PROBLEM = Problem(
    id="p",
    stratum="easy",
    data={"title": "", "question": "?", "starter_code": "", "func_name": None, "public_tests": (), "kind": "stdin"},
)
CODE = 'n = int(input())\nprint({"odd": 1, "even": 0}["odd" if n % 2 else "even"], end="\\n")'
FENCED = f"```python\n{CODE}\n```"


def reply(solution: object, **more: object) -> str:
    return msgspec.json.encode(
        {"reasoning": "Because.", "evolving_memory": "n = 0", "solution": solution, **more}
    ).decode()


def answer(text: str) -> str | None:
    return TASK.parse(PROBLEM, text).answer


@pytest.mark.parametrize(
    "solution",
    [
        CODE,
        FENCED,
        f"```\n{CODE}\n```",
        f"```py\n{CODE}\n```",
        f"```Python3\r\n{CODE}\n```\n",
        f"````python\n{CODE}\n````",
        f"`python\n{CODE}\n`",
        f"Here it is:\n{FENCED}\nIt prints the parity.",
        f"First try:\n```python\nprint(0)\n```\nBetter:\n{FENCED}",
        f"```python\n{CODE}",
    ],
)
def test_fences_are_stripped(solution: str) -> None:
    assert str(answer(reply(solution))).strip("\n") == CODE


def test_ticks_inside_a_program_stay() -> None:
    source = "print('`a`', '```')\n# ``` not a fence\nprint(1)"
    assert answer(reply(source)) == source


def test_all_fields_are_read() -> None:
    response = TASK.parse(PROBLEM, reply(FENCED))
    assert (response.answer, response.reasoning, response.memory, response.error) == (CODE, "Because.", "n = 0", None)


def test_the_memory_is_cut_to_500_characters() -> None:
    assert TASK.parse(PROBLEM, reply(CODE, evolving_memory="m" * 900)).memory == "m" * 500
    assert TASK.parse(PROBLEM, reply(CODE, evolving_memory=["a", "list"])).memory == ""


@pytest.mark.parametrize(
    "text",
    [
        f"Let me think.</think>\n{reply(FENCED)}",
        f"```json\n{reply(CODE)}\n```",
        reply(FENCED)[:-1] + ",}",  # a comma too many
        reply(FENCED)[:-1],  # cut off
        '{"reasoning": "raw line breaks", "solution": "' + FENCED.replace('"', "'") + '"}',
    ],
)
def test_near_json_is_repaired(text: str) -> None:
    found = answer(text)
    assert found is not None
    assert "n = int(input())" in found
    compile(found, "program", "exec")


@pytest.mark.parametrize(
    "source", [CODE, 's = "x, y"\nprint(s, ": ", "z")', 'x = {"a": 1}\nprint(x["a"], "}")', 'print("a", "b")']
)
def test_a_block_that_is_python_beats_a_repair_that_is_not(source: str) -> None:
    text = '{"reasoning": "It says "hello".", "solution": "```python\n' + source + '\n```"}'  # nothing is escaped
    assert answer(text) == source


def test_a_text_without_json_counts_by_its_last_python_block() -> None:
    response = TASK.parse(PROBLEM, f"Sort first.\n```python\nprint(0)\n```\nNo, like this:\n{FENCED}\nDone.")
    assert response.answer == CODE
    assert "Sort first." in response.reasoning
    assert CODE not in response.reasoning


def test_a_program_with_braces_is_not_taken_for_the_reply() -> None:
    source = "known = {'a': 1, 'solution': 2}\nprint(known[input()])"
    assert answer(f"A table will do.\n```python\n{source}\n```") == source


@pytest.mark.parametrize("source", ["print(1", "def f(:\n    pass", "just words", "x = '\x00'"])
def test_a_program_that_does_not_compile_is_an_answer(source: str) -> None:
    assert answer(reply(source)) == source


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "empty"),
        (" \n\t ", "empty"),
        ("I would sort them.", "no_json"),
        ("```\nprint(1)\n```", "no_json"),  # a block of what?
        ("[1, 2]", "no_json"),
        ('{"reasoning": "none"}', "no_solution"),
        (reply(""), "no_solution"),
        (reply("```python\n\n```"), "no_solution"),
        (reply(42), "no_solution"),
        (reply(None), "no_solution"),
        (reply(["print(1)"]), "no_solution"),
        (reply("#" * 70_000), "too_long"),
        ("```python\n" + "#" * 70_000 + "\n```", "too_long"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, kind: str) -> None:
    response = TASK.parse(PROBLEM, text)
    assert response.answer is None
    assert str(response.error).startswith(f"{kind}: ")


def test_lone_surrogates_do_not_reach_the_program() -> None:
    found = answer('{"reasoning": "r", "solution": "print(\'\\ud800\')"}')
    assert found is not None
    found.encode()


fragments = st.sampled_from(
    [
        "```python\n",
        "```",
        "`",
        "\n",
        '{"solution": "',
        '"}',
        "print(1)",
        "\\n",
        "\\",
        '"',
        "{",
        "}",
        "\ud800",
        "\x00",
        "é",
    ]
)


@settings(deadline=None)
@given(st.one_of(st.text(), st.lists(fragments).map("".join)))
def test_no_text_raises(text: str) -> None:
    response = TASK.parse(PROBLEM, text)
    assert (response.answer is None) == (response.error is not None)
    msgspec.json.encode(response)
    if response.answer is not None:
        TASK.signature(PROBLEM, response)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1))
def test_a_plain_program_comes_back_as_it_is(source: str) -> None:
    text = msgspec.json.encode({"reasoning": "", "solution": source}).decode()
    if "`" not in source and source.strip():
        assert answer(text) == source


@pytest.mark.parametrize(
    "piece", ["`", "```python\n", "\n", " ", "(", "-", "a.b", "{", "```\n", '"', "\\", "\n    ", "`python\n"]
)
def test_long_repetitions_are_read_quickly(piece: str) -> None:
    text = piece * (60_000 // len(piece))
    started = time.process_time()
    for candidate in (text, reply(text), f"```python\n{text}", '{"solution": "' + text):
        TASK.parse(PROBLEM, candidate)
    assert time.process_time() - started < 2
