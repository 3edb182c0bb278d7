"""Reading: the program in a completion, that no text whatever raises, when two programs are one, and how one is run."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evorun.runs.candidates import Response
from evorun.tasks.base import Problem
from evorun.tasks.capabilities import Diagnosis
from evorun.tasks.excerpts import excerpt
from evorun.tasks.livecodebench.programs import make_program, signature, syntax_error
from evorun.tasks.livecodebench.task import LiveCodeBench

TASK = LiveCodeBench()
PROBLEM = Problem(id="p", stratum="easy", data={"question": "?", "func_name": None})
CODE = 'n = int(input())\nprint({"odd": 1, "even": 0}["odd" if n % 2 else "even"], end="\\n")'
FENCED = f"```python\n{CODE}\n```"


def reply(solution: object, **more: object) -> str:
    return msgspec.json.encode(
        {"reasoning": "Because.", "evolving_memory": "n = 0", "solution": solution, **more}
    ).decode()


def answer(text: str) -> str | None:
    return TASK.parse(PROBLEM, text).answer


def indented(text: str) -> str:
    return "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True))


@pytest.mark.parametrize(
    "frame", ["Of {98, 100} take \\frac{n}{2}:\n#", "#\nIt takes \\frac{n}{2} of {98, 100} steps."]
)
def test_braces_in_the_prose_do_not_hide_the_object(frame: str) -> None:
    response = TASK.parse(PROBLEM, frame.replace("#", reply(CODE)))
    assert (response.answer, response.reasoning, response.memory) == (CODE, "Because.", "n = 0")


def test_fences_are_stripped() -> None:
    for solution in [
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
    ]:
        assert str(answer(reply(solution))).strip("\n") == CODE


def test_ticks_inside_a_program_stay() -> None:
    source = "print('`a`', '```')\n# ``` not a fence\nprint(1)"
    assert answer(reply(source)) == source


def test_all_fields_are_read_and_the_memory_is_cut() -> None:
    response = TASK.parse(PROBLEM, reply(FENCED))
    assert (response.answer, response.reasoning, response.memory, response.error) == (CODE, "Because.", "n = 0", None)
    assert TASK.parse(PROBLEM, reply(CODE, evolving_memory="m" * 900)).memory == excerpt("m" * 900, 500)
    assert TASK.parse(PROBLEM, reply(CODE, evolving_memory=["a", "list"])).memory == ""
    unread = TASK.parse(PROBLEM, reply(42))
    assert (unread.reasoning, unread.memory) == ("", "n = 0")


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


def test_indented_blocks_are_read_where_there_is_no_other_program() -> None:
    parts = CODE.replace("\n", "\n\n")
    assert answer(f"Here it is:\n\n{indented(CODE)}\n\nIt prints the parity.") == CODE
    assert answer(f"First\n\n    print(0)\n\nis wrong for 2, so:\n\n{indented(parts)}") == parts
    assert answer(f"{FENCED}\n\nIt is called as\n\n    print(f(1))\n\nin a test.") == CODE
    assert answer(f"def f(n):\n\n{indented(CODE)}\n\nf(1)") == f"def f(n):\n\n{indented(CODE)}\n\nf(1)"
    for text in ("Its output:\n\n    Case 3\n\nfor 3.", "Its output:\n\n    3\n", "a paragraph\n    print(0)\ngoes on"):
        assert answer(text) is None


def test_prose_behind_a_program_without_a_fence_is_no_part_of_it() -> None:
    assert answer(f"Code:\n{CODE}\n\nExplanation: it prints the parity.\n\n**Note:** as asked.") == CODE
    assert answer(f"Code:\n{CODE}\n\nwhile True\n    cut o") is None


def test_a_block_that_tries_the_program_out_is_not_the_program() -> None:
    assert answer(f"{FENCED}\n\nA test:\n```python\nassert solve(1) == 'odd'\n```") == CODE
    assert answer(f"```python\nprint(input())\n```\nThat fails the first test:\n{FENCED}") == CODE


def test_an_empty_block_is_no_program() -> None:
    assert answer(f"{FENCED}\n\nNothing follows:\n```python\n\n```") == CODE


def test_programs_that_are_supposed_or_denied_are_none() -> None:
    for lead in ("If the numbers were sorted, the program would be", "A wrong program is:"):
        assert answer(f"{lead}\n{FENCED}\nI have no other.") is None
    for lead in ("If I understand it, this would be the program:", "A wrong program prints 0. Mine:"):
        assert answer(f"{lead}\n{FENCED}") == CODE


def test_a_text_without_json_counts_by_its_last_python_block() -> None:
    response = TASK.parse(PROBLEM, f"Sort first.\n```python\nprint(0)\n```\nNo, like this:\n{FENCED}\nDone.")
    assert (response.answer, response.memory) == (CODE, "")
    assert response.reasoning == "Sort first.\n\nNo, like this:\n\nDone."
    braces = "known = {'a': 1, 'solution': 2}\nprint(known[input()])"
    assert answer(f"A table will do.\n```python\n{braces}\n```") == braces


@pytest.mark.parametrize("source", ["print(1", "def f(:\n    pass", "just words", "x = '\x00'"])
def test_a_program_that_does_not_compile_is_an_answer(source: str) -> None:
    assert answer(reply(source)) == source


def test_what_cannot_be_read_says_why() -> None:
    for text, kind in [
        (" \n\t ", "empty"),
        ("I would sort them.", "no_json"),
        ("[1, 2]", "no_json"),
        ('{"reasoning": "none"}', "no_solution"),
        (reply(""), "no_solution"),
        (reply("```python\n\n```"), "no_solution"),
        (reply(42), "no_solution"),
        (reply([1, 2]), "no_solution"),
        (reply("#" * 70_000), "too_long"),
        ("```python\n" + "#" * 70_000 + "\n```", "too_long"),
    ]:
        response = TASK.parse(PROBLEM, text)
        assert response.answer is None
        assert str(response.error).startswith(f"{kind}: ")


def test_lone_surrogates_do_not_reach_the_program() -> None:
    found = answer('{"reasoning": "r", "solution": "print(\'\\ud800\')"}')
    assert found is not None
    found.encode()


fragments = st.sampled_from(
    ["```python\n", "```", "`", "\n", '{"solution": "', '"}', "print(1)", "\\n", "\\", '"', "{", "}", "\ud800", "\x00"]
)


@given(st.one_of(st.text(), st.lists(fragments).map("".join)))
def test_no_text_raises(text: str) -> None:
    response = TASK.parse(PROBLEM, text)
    assert (response.answer is None) == (response.error is not None)
    msgspec.json.encode(response)
    if response.answer is not None:
        TASK.signature(PROBLEM, response)


@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1))
def test_a_plain_program_comes_back_as_it_is(source: str) -> None:
    if "`" not in source and "~~~" not in source and source.strip():
        assert answer(reply(source)) == source


@pytest.mark.nightly
@pytest.mark.timeout(600)  # quadratic time would take hours
def test_long_repetitions_are_read_in_linear_time() -> None:
    for piece in ("`", "```python\n", "\n", " ", "(", "-", "a.b", "{", "```\n", '"', "\\", "\n    ", "`python\n"):
        text = piece * (10_000 // len(piece))
        for candidate in (text, reply(text), f"```python\n{text}", '{"solution": "' + text):
            TASK.parse(PROBLEM, candidate)


def test_a_detectors_errors_are_read_with_the_lines_that_they_name() -> None:
    text = json.dumps(
        {"reasoning": "r", "errors": ["line 3: off\nby one", "Lines 12 to 14 loop", "no place", "line 3: x"]}
    )
    found = TASK.parse_errors(PROBLEM, text, 3)
    assert found == Diagnosis(text="- line 3: off by one\n- Lines 12 to 14 loop\n- no place", findings=(3, 12, None))
    assert TASK.parse_errors(PROBLEM, '{"reasoning": "", "errors": []}', 3) == Diagnosis()
    assert TASK.parse_errors(PROBLEM, "all is well", 3) is None


# --- syntax and identity ---


@pytest.mark.parametrize("source", ["x = '\x00'", "\ud800", "(" * 300, "x = 1\n y = 2", "\t\tif", "é = ²"])
def test_texts_that_are_no_python_say_why_on_one_line(source: str) -> None:
    error = syntax_error(source)
    assert error is not None
    assert error.startswith("syntax error")
    assert "\n" not in error


def test_deep_programs_are_not_called_broken() -> None:
    assert syntax_error("1+" * 30_000 + "1") is None
    assert syntax_error("x = '\\d'") is None


BASE = """\
import sys

def total(values):
    return sum(values)

print(total(map(int, sys.stdin.read().split())))
"""


@pytest.mark.parametrize(
    "same",
    [
        "# sums up\n" + BASE.replace("return", "# here\n    return"),
        BASE.replace("    return", "\n\n  return"),
        BASE.replace("sum(values)", "(sum(values))"),
        '"""A program."""\n' + BASE.replace("    return", '    """Sum."""\n    return'),
        BASE.replace("(values):", "(\n    values\n):"),
        BASE.strip(),
    ],
)
def test_appearance_does_not_change_the_signature(same: str) -> None:
    assert same != BASE
    assert TASK.signature(PROBLEM, Response(text="", answer=same)) == signature(BASE)


def test_other_programs_have_other_signatures() -> None:
    every = [
        BASE,
        BASE.replace("values", "numbers"),
        BASE.replace("sum(values)", "sum(values, 0)"),
        "import os\n" + BASE,
        BASE.replace("import sys\n\n", "") + "import sys\n",
        BASE.replace("return sum", "x = 'Sum.'\n    return sum"),  # a text that is used
    ]
    assert len(set(map(signature, every))) == len(every)


def test_texts_that_are_no_python_go_by_their_words() -> None:
    assert signature("print(1") == signature("  print(1\n")
    assert signature("print(1") != signature("print(2")
    assert signature("x = '\x00'") == signature("x =  '\x00'")


@pytest.mark.parametrize(
    "source", ["-" * 60_000 + "1", "(" * 60_000, "1+" * 30_000 + "1", "a" + ".b" * 30_000, "\ud800"]
)
def test_deep_nesting_is_no_error(source: str) -> None:
    assert signature(source) == signature(source)


# --- how a program is run ---

CLASS = "class Solution:\n    def solve(self, a: List[int]) -> int:\n        return max(a)\n"


def entry(source: str, func_name: str | None = "solve") -> str | None:
    problem = Problem(id="p", stratum="easy", data={"func_name": func_name})
    program = make_program(problem, source)
    assert program.source == source
    return program.entry


@pytest.mark.parametrize(
    "source",
    [
        CLASS,
        CLASS + "\nprint(Solution().solve([1]))",  # tries itself out, but reads nothing
        "import sys\ninput = sys.stdin.readline\n" + CLASS,  # a habit, never used
        CLASS + "\nif __name__ == '__main__':\n    assert Solution().solve([1]) == 1",
        "class Base:\n    def solve(self, a): return 1\nclass Solution(Base):\n    pass",
    ],
)
def test_a_class_is_called(source: str) -> None:
    assert entry(source) == "Solution.solve"


def test_a_bare_function_is_called() -> None:
    assert entry("def solve(a):\n    return max(a)") == "solve"


@pytest.mark.parametrize(
    "read",
    [
        "input()",
        "sys.stdin.readline()",
        "stdin.read()",
        "open(0).read()",
        "open('/dev/stdin').read()",
        "next(fileinput.input())",
    ],
)
def test_a_program_that_reads_and_prints_is_a_script(read: str) -> None:
    assert entry(f"{CLASS}\nprint(Solution().solve(json.loads({read})))") is None


@pytest.mark.parametrize(
    "source",
    [
        f"{CLASS}\nif __name__ == '__main__':\n    print(Solution().solve(json.loads(input())))",
        "print(max(json.loads(input())))",
        "def other(a): return a",
        "print(1",
        "x = open('f')",
    ],
)
def test_what_defines_nothing_to_call_or_guards_its_call_is_a_script(source: str) -> None:
    assert entry(source) is None


def test_problems_without_starter_code_take_scripts() -> None:
    assert entry(CLASS, None) is None
