"""How a model's program is run on a problem's tests."""

import ast
from functools import lru_cache

from evorun.sandbox.base import Check, Program
from evorun.tasks.base import Problem
from evorun.tasks.livecodebench.syntax import parsed


def check_of(problem: Problem) -> Check:
    """Return how outputs are compared: starter-code problems by value, the others line by line."""
    return "json" if problem.data["func_name"] else "lines"


def program_for(problem: Problem, source: str) -> Program:
    """Return the program as the sandbox is to run it.

    A problem without starter code takes a script. For one with starter code the benchmark calls the named method, while
    the paper's prompts (B.2.1) ask for a script even then, so both are accepted: a program that reads input and prints
    is run as a script, and what it prints is compared as a value; any other one that defines the method, or a function
    of that name, has it called.
    """
    name = problem.data["func_name"]
    return Program(source, _entry(source, name) if name else None)


@lru_cache(maxsize=4096)
def _entry(source: str, name: str) -> str | None:
    tree = parsed(source)
    if tree is None:
        return None
    nodes = list(ast.walk(tree))
    if _reads_input(nodes) and _prints(nodes):
        return None
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == "Solution":
            return f"Solution.{name}"
    return name if any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body) else None


def _reads_input(nodes: list[ast.AST]) -> bool:
    return any(
        _named(node, "input", "stdin", "fileinput")
        or (isinstance(node, ast.Call) and _named(node.func, "open") and _is_stdin(node.args[:1]))
        for node in nodes
    )


def _is_stdin(arguments: list[ast.expr]) -> bool:
    return any(isinstance(a, ast.Constant) and a.value in (0, "/dev/stdin") for a in arguments)


def _prints(nodes: list[ast.AST]) -> bool:
    return any(_named(node, "print", "stdout") for node in nodes)


def _named(node: ast.AST, *names: str) -> bool:
    """Say whether the node reads one of these names, bare or as an attribute (`input`, `sys.stdin`)."""
    if isinstance(node, ast.Name):
        return node.id in names and isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.Attribute) and node.attr in names
