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


def syntax_error(source: str) -> str | None:
    """Return where and why a text is no Python; None for one that is, or that is only too deeply nested. Never raises.

    A byte order mark is no error: the sandbox takes it away.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source.removeprefix("\ufeff"))
    except SyntaxError as error:
        return f"syntax error in line {error.lineno}: {error.msg}"
    except ValueError as error:  # a null byte, or a character that is none
        return f"syntax error: {error}"
    except (RecursionError, MemoryError):
        return None
    return None
