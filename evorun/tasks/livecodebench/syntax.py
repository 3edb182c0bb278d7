"""Parsing programs that a model wrote; parsing runs nothing of them."""

import ast
import warnings


def parsed(source: str) -> ast.Module | None:
    """Return a program's syntax tree, or None for a text that is no Python, or too deeply nested; never raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about invalid escapes: the program's business, not the user's
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
