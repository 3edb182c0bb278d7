"""Programs: when two are the same one, and how one is run."""

import time

import pytest

from evorun.runs.candidates import Response
from evorun.tasks.base import Problem
from evorun.tasks.livecodebench.programs import program_for
from evorun.tasks.livecodebench.signature import signature
from evorun.tasks.livecodebench.task import LiveCodeBench

BASE = """\
import sys

def total(values):
    return sum(values)

print(total(map(int, sys.stdin.read().split())))
"""
SAME = {
    "comments": "# sums up\n" + BASE.replace("return", "# here\n    return"),
    "blank lines and indentation": BASE.replace("    return", "\n\n  return"),
    "quotes and brackets": BASE.replace("sum(values)", "(sum(values))"),
    "docstrings": '"""A program."""\n' + BASE.replace("    return", '    """Sum."""\n    return'),
    "line continuation": BASE.replace("(values):", "(\n    values\n):"),
    "no line break at the end": BASE.strip(),
}
OTHER = {
    "a name": BASE.replace("values", "numbers"),
    "a constant": BASE.replace("sum(values)", "sum(values, 0)"),
    "an import": "import os\n" + BASE,
    "order": BASE.replace("import sys\n\n", "") + "import sys\n",
    "a text that is used": BASE.replace("return sum", "x = 'Sum.'\n    return sum"),
}


@pytest.mark.parametrize("change", SAME)
def test_appearance_does_not_change_the_signature(change: str) -> None:
    assert SAME[change] != BASE
    assert signature(SAME[change]) == signature(BASE)


def test_other_programs_have_other_signatures() -> None:
    every = {name: signature(source) for name, source in {"base": BASE, **OTHER}.items()}
    assert len(set(every.values())) == len(every)


def test_texts_that_are_no_python_go_by_their_words() -> None:
    assert signature("print(1") == signature("  print(1\n")
    assert signature("print(1") != signature("print(2")
    assert signature("x = '\x00'") == signature("x =  '\x00'")


@pytest.mark.parametrize(
    "source", ["-" * 60_000 + "1", "(" * 60_000, "1+" * 30_000 + "1", "a" + ".b" * 30_000, "\ud800"]
)
def test_deep_nesting_is_no_error(source: str) -> None:
    started = time.process_time()
    assert signature(source) == signature(source)
    assert time.process_time() - started < 2


def test_the_task_tells_the_same_program() -> None:
    task = LiveCodeBench()
    problem = Problem(id="p", stratum="easy", data={})
    signatures = {task.signature(problem, Response(text=text, answer=text)) for text in (BASE, *SAME.values())}
    assert len(signatures) == 1


# --- how a program is run ---

CLASS = "class Solution:\n    def solve(self, a: List[int]) -> int:\n        return max(a)\n"


def entry(source: str, func_name: str | None = "solve") -> str | None:
    problem = Problem(id="p", stratum="easy", data={"func_name": func_name})
    program = program_for(problem, source)
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
        "json.loads(input())",
        "json.loads(sys.stdin.readline())",
        "json.loads(stdin.read())",
        "json.loads(open(0).read())",
        "json.loads(open('/dev/stdin').read())",
        "json.loads(next(fileinput.input()))",
    ],
)
@pytest.mark.parametrize("guard", ["", "if __name__ == '__main__':\n    "])
def test_a_program_that_reads_and_prints_is_a_script(read: str, guard: str) -> None:
    assert entry(f"{CLASS}\n{guard}print(Solution().solve({read}))") is None


@pytest.mark.parametrize(
    "source", ["print(max(json.loads(input())))", "def other(a): return a", "print(1", "x = open('f')"]
)
def test_what_defines_nothing_to_call_is_a_script(source: str) -> None:
    assert entry(source) is None


def test_problems_without_starter_code_take_scripts() -> None:
    assert entry(CLASS, None) is None
