"""The keys of a plug-in's method or task, which has no YAML, with their types, defaults and docstrings."""

import ast
import contextlib
import inspect
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from itertools import pairwise
from typing import Any

from evorun.fields import FROM_TASK, WITHOUT_BUDGET

_HOLDS = {WITHOUT_BUDGET: " without a budget, null with one", FROM_TASK: " or the task's own"}
"""Where a default holds, by the mark of its field."""


def describe_keys(settings: type, names: list[str]) -> Iterator[str]:
    """Yield a line for each of these fields of a dataclass: `KEY: TYPE = DEFAULT (docstring)`.

    A field that is a dataclass itself comes last, as the keys below it (`sampling.max_tokens`).
    """
    defaults = {field.name: _get_default(field) for field in fields(settings) if field.name in names}
    groups = [name for name, default in defaults.items() if is_dataclass(default)]
    yield from _describe(settings, {name: default for name, default in defaults.items() if name not in groups})
    for name in groups:
        group = defaults[name]
        values = {f"{name}.{field.name}": getattr(group, field.name) for field in fields(group)}
        yield from _describe(type(group), values)


def _describe(owner: type, defaults: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each key; the last word of a key is the name of a field of the owner."""
    kinds, docs = typing.get_type_hints(owner), read_docstrings(owner)
    marks = {field.name: field.metadata for field in fields(owner)}
    for key, default in defaults.items():
        name = key.rpartition(".")[2]
        doc = docs.get(name)
        where = next((words for mark, words in _HOLDS.items() if mark in marks[name]), "")
        shown = "" if default is MISSING else f" = {default!r}{where}"
        yield f"{key}: {_format_type(kinds[name])}{shown}{f' ({doc})' if doc else ''}"


def _format_type(kind: Any) -> str:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " | ".join(_format_type(part) for part in typing.get_args(kind))
    if kind is types.NoneType:
        return "None"
    return kind.__name__ if isinstance(kind, type) else inspect.formatannotation(kind)


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
