"""The keys of a plug-in's method or task, which has no YAML, with their types, defaults and docstrings."""

import ast
import contextlib
import inspect
import textwrap
import typing
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from itertools import pairwise
from typing import Any


def describe_keys(settings: type, names: list[str]) -> Iterator[str]:
    """Yield a line for each of these fields of a dataclass: `KEY: TYPE = DEFAULT (docstring)`."""
    types, docs = typing.get_type_hints(settings), read_docstrings(settings)
    for field in fields(settings):
        if field.name in names:
            kind = types[field.name]
            type_name = kind.__name__ if isinstance(kind, type) else inspect.formatannotation(kind)
            default, doc = _get_default(field), docs.get(field.name)
            shown = "" if default is MISSING or is_dataclass(default) else f" = {default!r}"
            yield f"{field.name}: {type_name}{shown}{f' ({doc})' if doc else ''}"


def _get_default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def read_docstrings(owner: type) -> dict[str, str]:
    """Return the first sentence of the docstring below each field of a class and its bases, where there is one."""
    found: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        with contextlib.suppress(OSError, TypeError, SyntaxError):  # a class without a source
            [node] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            body = node.body if isinstance(node, ast.ClassDef) else []
            for field, below in pairwise(body):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    match below:
                        case ast.Expr(value=ast.Constant(value=str(doc))):
                            found[field.target.id] = " ".join(doc.split()).partition(". ")[0].rstrip(".")
    return found
