"""When two programs are the same one (AST-based signatures, Duel-Evolve A.1)."""

import ast
from hashlib import blake2b

from evorun.tasks.livecodebench.syntax import parsed

_BODIES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def signature(source: str) -> str:
    """Return a digest that programs share when they differ in comments, layout, docstrings or grouping brackets only.

    Names count (ours: the paper leaves that open), so renaming a variable makes another program. A text that does not
    parse goes by its words.
    """
    tree = parsed(source)
    try:
        shape = ast.dump(_without_docstrings(tree)) if tree else _words(source)
    except RecursionError:
        shape = _words(source)
    return blake2b(shape.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, _BODIES) and node.body and _is_text(node.body[0]):
            del node.body[0]
    return tree


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _words(source: str) -> str:
    return " ".join(source.split())
