"""Symbolic operators on programs: what they may change, shown by comparing syntax trees, over the sample's programs."""

import ast
import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evorun.runs.candidates import Response
from evorun.tasks.base import Problem
from evorun.tasks.capabilities import Diagnosis, Individual
from evorun.tasks.livecodebench import problems
from evorun.tasks.livecodebench.operators import crossover, mutate
from evorun.tasks.livecodebench.reading import MAX_SOURCE_BYTES
from evorun.tasks.livecodebench.task import LiveCodeBench

RECORDS = [json.loads(line) for line in problems.SAMPLE.read_bytes().splitlines()]
SAMPLE = [solution["code"] for record in RECORDS for solution in record["solutions"]]
HELPERS = """\
from __future__ import annotations
'''Text.'''
import sys, heapq
MOD = 10**9 + 7
limit = int(input())

def less(a, b):
    return a < b and a is not None and a not in (b, 1.5)

def solve(n, *rest, flag=True):
    total = -3
    for i in range(n):
        for j in range(2, len(rest) + 1, 3):
            total += i * j % MOD
    # a comment
    return total if less(n, 10) else f"{total:.6f}" + "x" * 3

print(solve(limit))
"""
OTHER_HELPERS = """\
import heapq
from math import *
import collections as c
MOD = 998244353
ROOT = 3
seen = set(input())

class Heap:
    def push(self, x):
        return heapq.heappush([], x)

def power(a):
    return pow(a, ROOT, MOD)

def unused():
    return 1

def solve(n):
    return c.deque([power(n)]) if seen else Heap().push(n)
"""
PROGRAMS = [*SAMPLE, HELPERS, OTHER_HELPERS]
MAX_CHARS = 6000

programs = st.sampled_from(PROGRAMS)
texts = st.one_of(
    st.sampled_from(
        [
            "",
            "print(",
            "x = '\x00'",
            "\ufeffprint(1)",
            "(" * 5000,
            "-" * 3000 + "1",
            "1+" * 20_000 + "1",
            "a" + ".b" * 20_000,
            "\ud800 = 1",
            f"x = {'9' * 6000}",
            "x = 1e999 - 1",
            "print(f\"{x!r:{'>'}{10}}\")",
            "match x:\n    case 1 | -2: pass\n    case {3: y}: pass",
            "# only a comment",
            "'only a docstring'",
            "def f(): return 1",
            "async def f():\n    return [i async for i in g(1)]",
            "def f(a, /, b=1, *, c=2): pass\ndef f(): pass",
            "class A:\n    class B:\n        def f(self): return 1\n    def f(self): return 2",
        ]
    ),
    st.text(max_size=60),
    programs,
)
seeds = st.integers(0, 2**32 - 1)
findings = st.lists(st.one_of(st.none(), st.integers(-5, 10**6), st.text(max_size=3)), max_size=3)


def individual(answer: str | None, fitness: float = 0.0, found: tuple[object, ...] = ()) -> Individual:
    response = Response(text=answer or "", answer=answer, memory="notes", reasoning="why")
    return Individual(response=response, fitness=fitness, errors=Diagnosis(findings=found))


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def differences(old: object, new: object) -> Iterator[tuple[object, object]]:
    """Yield the smallest parts in which two trees differ."""
    same_kind = type(old) is type(new)
    if isinstance(new, ast.BinOp) and isinstance(old, ast.expr) and ast.dump(new.left) == ast.dump(old):
        yield old, new  # one more or one less than before
    elif same_kind and isinstance(old, ast.AST):
        assert isinstance(new, ast.AST)
        for field in old._fields:
            pair = (getattr(old, field), getattr(new, field))
            if field == "value" and isinstance(old, ast.Constant):
                if repr(pair[0]) != repr(pair[1]):
                    yield old, new
            else:
                yield from differences(*pair)
    elif same_kind and isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for pair in zip(old, new, strict=True):
            yield from differences(*pair)
    elif not same_kind or old != new:
        yield old, new


def dump(node: ast.AST) -> str:
    return ast.dump(node)


def is_a_mutation(old: object, new: object) -> bool:
    """Say whether the pair is one of the changes that mutation is documented to make."""
    if isinstance(old, ast.Constant | ast.UnaryOp):
        value, number = (ast.literal_eval(ast.unparse(node)) for node in (new, old))  # type: ignore[arg-type]
        assert isinstance(number, int | float)
        return not isinstance(number, bool) and value in (number + 1, number - 1, number * 2, 0)
    if isinstance(old, ast.operator):
        arithmetic = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
        return isinstance(old, arithmetic) and isinstance(new, arithmetic)
    if isinstance(old, ast.cmpop):
        families = [{"Lt", "LtE", "Gt", "GtE", "Eq", "NotEq"}, {"Is", "IsNot"}, {"In", "NotIn"}]
        return any({type(old).__name__, type(new).__name__} <= family for family in families)
    assert isinstance(old, ast.AST)
    by_one = isinstance(new, ast.BinOp) and isinstance(new.op, ast.Add | ast.Sub) and dump(new.left) == dump(old)
    return by_one and dump(new.right) == dump(ast.Constant(1))  # type: ignore[attr-defined]


@given(programs, seeds)
def test_a_mutant_differs_from_its_program_in_one_place(source: str, seed: int) -> None:
    child = mutate(individual(source), rng(seed), MAX_CHARS)
    assert child.answer is not None
    if child.answer == source:
        assert not any(
            isinstance(node, ast.BinOp | ast.Compare) or getattr(node, "value", "") in range(9)
            for node in ast.walk(ast.parse(source))
        )
        return
    old, new = ast.parse(source), ast.parse(child.answer)
    [(before, after)] = list(differences(old, new))
    assert is_a_mutation(before, after), (ast.dump(before), ast.dump(after))  # type: ignore[arg-type]
    if isinstance(after, ast.BinOp) and not isinstance(before, ast.Constant):
        ranges = [n for n in ast.walk(old) if isinstance(n, ast.Call) and ast.unparse(n.func) == "range"]
        assert before in [argument for call in ranges for argument in call.args[:2]]


@pytest.mark.nightly
def test_every_documented_kind_of_change_is_made() -> None:
    old = ast.parse(HELPERS)
    seen = set()
    for seed in range(300):
        answer = mutate(individual(HELPERS), rng(seed), MAX_CHARS).answer
        [(before, after)] = differences(old, ast.parse(str(answer)))
        seen.add(f"{ast.unparse(before) or type(before).__name__} -> {ast.unparse(after) or type(after).__name__}")  # type: ignore[arg-type]
    assert {"10 -> 11", "10 -> 9", "10 -> 20", "10 -> 0", "1.5 -> 0.0", "7 -> 14"} <= seen
    assert {"Lt -> GtE", "Lt -> Eq", "IsNot -> Is", "NotIn -> In"} <= seen
    assert {"Add -> FloorDiv", "Mult -> Mod", "n -> n + 1", "n -> n - 1", "2 -> 1"} <= seen
    assert not [change for change in seen if change.startswith(("True", "'", "Pow", "len"))]


def test_the_step_of_a_range_is_no_bound() -> None:
    source = "for i in range(a, b, c):\n    pass"
    children = {str(mutate(individual(source), rng(seed), MAX_CHARS).answer) for seed in range(60)}
    assert children == {source.replace(f"{name},", f"{name} {sign} 1,") for name in "ab" for sign in "+-"}


def parts(source: str) -> tuple[dict[str, str], list[str]]:
    """Return functions and methods by name, and what stands at the top beside functions, each as a dump."""
    tree = ast.parse(source)
    functions, rest = {}, []
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef):
            functions[statement.name] = dump(statement)
        elif isinstance(statement, ast.ClassDef):
            methods = [one for one in statement.body if isinstance(one, ast.FunctionDef)]
            functions |= {f"{statement.name}.{one.name}": dump(one) for one in methods}
            statement.body = [one for one in statement.body if one not in methods]
            rest.append(dump(statement))
        else:
            rest.append(dump(statement))
    return functions, rest


@given(programs, programs, seeds)
def test_a_child_has_one_function_of_the_second_and_what_that_needs(first: str, second: str, seed: int) -> None:
    child = crossover(individual(first), individual(second), rng(seed), MAX_CHARS)
    (mine, my_rest), (theirs, _) = parts(first), parts(second)
    there = {dump(statement) for statement in ast.parse(second).body}
    different = {name for name in mine if name in theirs and mine[name] != theirs[name]}
    insertable = {name for name in theirs if "." not in name} - set(mine)
    if child.answer == first:
        assert not different
        assert not insertable
        return
    got, rest = parts(str(child.answer))
    added = [dump(s) for s in ast.parse(str(child.answer)).body if dump(s) not in map(dump, ast.parse(first).body)]
    changed = {name for name in mine if got[name] != mine[name]}
    if different:
        assert len(changed) == 1
        assert changed <= different
    else:
        assert not changed
        assert set(got) & insertable
    assert all(got[name] == theirs[name] for name in set(got) - set(mine) | changed)
    assert [part for part in rest if part in my_rest] == my_rest
    assert all(part in there for part in added if "ClassDef" not in part)
    assert all(rest.count(part) == my_rest.count(part) for part in my_rest)


def test_names_inside_functions_are_no_definitions() -> None:
    first = "class Solution:\n    def f(self, x):\n        helper = x\n        return x\n"
    second = (
        "def helper(y):\n    x = y\n    return x\n\nclass Solution:\n    def f(self, x):\n        return helper(x)\n"
    )
    child = crossover(individual(first), individual(second), rng(0), MAX_CHARS).answer
    assert dump(ast.parse(str(child))) == dump(ast.parse(second))


def test_methods_of_the_same_name_are_swapped_in_the_samples_own_pairs() -> None:
    pairs = [[s["code"] for s in record["solutions"]] for record in RECORDS if record["func_name"]]
    assert len(pairs) > 5
    for first, second in pairs:
        (mine, _), (theirs, _) = parts(first), parts(second)
        [name] = [name for name in mine if mine[name] != theirs.get(name, mine[name])]
        got, _ = parts(str(crossover(individual(first), individual(second), rng(0), MAX_CHARS).answer))
        assert got[name] == theirs[name]


def test_what_a_new_function_reads_comes_along() -> None:
    child = crossover(individual("limit = int(input())\nprint(limit)\n"), individual(OTHER_HELPERS), rng(3), MAX_CHARS)
    children = {
        str(crossover(individual("n = 1\nprint(n)"), individual(OTHER_HELPERS), rng(s), MAX_CHARS).answer)
        for s in range(30)
    }
    expected_power = "MOD = 998244353\nROOT = 3\n\ndef power(a):\n    return pow(a, ROOT, MOD)\nn = 1\nprint(n)"
    assert expected_power in children
    assert "def unused():\n    return 1\nn = 1\nprint(n)" in children
    [solve] = [one for one in children if "def solve" in one]
    assert "import heapq" in solve  # through the class that it uses
    assert "import collections as c" in solve
    assert "class Heap" in solve
    assert "def power" in solve
    assert "seen = " not in solve  # runs a call: no mere definition
    assert child.answer is not None


def test_what_the_first_program_binds_itself_stays_its_own() -> None:
    for seed in range(20):
        child = str(crossover(individual(HELPERS), individual(OTHER_HELPERS), rng(seed), MAX_CHARS).answer)
        assert child.count("MOD = ") == 1
        assert "10 ** 9 + 7" in child
        assert all(part in child for part in ("import collections as c", "class Heap", "def power", "ROOT = 3"))
        assert child.startswith("from __future__ import annotations")
        compile(child, "child", "exec")


# --- where errors guide ---

TWO = "def f(a):\n    return a + 1\n\n\ndef g(a):\n    return a + 2\n\nprint(f(3), g(4))\n"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((2,), {"1", "+"}),
        ((6, None), {"2", "+"}),
        ((8,), {"3", "4"}),
        ((2, 8), {"1", "+", "3", "4"}),
        ((), {"1", "2", "3", "4", "+"}),
        ((None, "line 2"), {"1", "2", "3", "4", "+"}),
        ((-1,), {"3", "4"}),
    ],
)
def test_mutation_changes_the_function_that_a_runtime_error_ended_in(
    found: tuple[object, ...], expected: set[str]
) -> None:
    touched = set()
    for seed in range(40):
        child = mutate(individual(TWO, found=found), rng(seed), MAX_CHARS)
        [(before, _)] = differences(ast.parse(TWO), ast.parse(str(child.answer)))
        touched.add(ast.unparse(before) or "+")  # type: ignore[arg-type]
    assert touched == expected


@pytest.mark.parametrize(
    ("found", "other_found", "expected"),
    [((2,), (), {"f"}), ((6,), (), {"g"}), ((2, 6), (2,), {"g"}), ((), (), {"f", "g"}), ((2,), (2,), {"f", "g"})],
)
def test_crossover_replaces_a_function_that_fails_in_the_first_only(
    found: tuple[int, ...], other_found: tuple[int, ...], expected: set[str]
) -> None:
    other = TWO.replace("a + 1", "a * 10").replace("a + 2", "a * 20")
    replaced = set()
    for seed in range(20):
        child = crossover(
            individual(TWO, found=found), individual(other, found=other_found), rng(seed), MAX_CHARS
        ).answer
        replaced.add("f" if "a * 10" in str(child) else "g")
    assert replaced == expected


# --- what they leave alone ---


def test_unreadable_and_right_programs() -> None:
    good, bad, broken = individual("x = 1"), individual(None), individual("x = (")
    right = individual("x = 2", fitness=100)
    for one, other, expected in [
        *((bad, good, good), (good, bad, good), (broken, good, good), (good, broken, good)),
        *((bad, bad, bad), (broken, broken, broken), (right, good, right), (good, right, right)),
    ]:
        assert crossover(one, other, rng(0), MAX_CHARS) is expected.response
    for one in (bad, broken, right, individual(""), individual("print(input())")):
        assert mutate(one, rng(0), MAX_CHARS) is one.response
    assert crossover(good, individual("y = 1"), rng(0), MAX_CHARS) is good.response


@settings(max_examples=10)  # some texts take long
@given(texts, texts, seeds, findings, st.floats(0, 100), st.integers(1, 8000))
def test_whatever_the_programs_are_they_come_out_readable_bounded_and_the_same_each_time(
    first: str, second: str, seed: int, found: list[object], fitness: float, max_chars: int
) -> None:
    one, other = individual(first, fitness, tuple(found)), individual(second, 0, tuple(found))
    for operate in (lambda: crossover(one, other, rng(seed), max_chars), lambda: mutate(one, rng(seed), max_chars)):
        child = operate()
        assert operate() == child
        if child is one.response or child is other.response:
            continue
        assert child.answer is not None
        ast.parse(child.answer)
        assert len(child.answer) <= max(max_chars, len(first))
        assert (child.memory, child.reasoning, child.feedback, child.error) == ("notes", "", None, None)
        read = LiveCodeBench().parse(PROBLEM, child.text) if "```" not in child.answer else child
        assert read.answer == child.answer


PROBLEM = Problem(id="p", stratum="easy", data={})


def test_children_do_not_grow_beyond_the_bound() -> None:
    many = "\n".join(f"def f{i}():\n    return {i}" for i in range(400))
    one = individual("x = 1")
    assert crossover(one, individual(many), rng(0), 20) is one.response
    assert len(str(crossover(one, individual(many), rng(0), 60).answer)) <= 60
    # 64 kB hold whatever the bound is: beyond them a program would not be read
    long = individual(f"x = '{'é' * (MAX_SOURCE_BYTES // 2 - 8)}'\ny = 1")
    assert crossover(long, individual(many), rng(0), 10**6) is long.response
    huge = individual(f"x = {2**300}")
    assert mutate(huge, rng(0), MAX_CHARS) is huge.response
    current = individual("x = 3")
    for seed in range(300):
        current = Individual(response=mutate(current, rng(seed), MAX_CHARS), fitness=0, errors=Diagnosis())
    assert len(str(current.response.answer)) < 90
