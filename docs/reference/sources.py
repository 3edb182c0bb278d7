"""Readers of source text: the keys of YAML files with their lines and comments, and docstrings of fields."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"


class Place(NamedTuple):
    """A line of a file of the repository."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Key(NamedTuple):
    """A key of a YAML file."""

    value: str | None
    """As written; None for a key with keys below it."""
    comment: str
    """Where the file says `the same`, that of the key before it."""
    place: Place


class Field(NamedTuple):
    """A field as its class declares it."""

    doc: str
    """The docstring below it; empty where it has none."""
    place: Place


@cache
def read_yaml(file: Path) -> Mapping[str, Key]:
    """Return the keys of a YAML file of conf/ by their dotted names; {} where there is no such file."""
    if not file.is_file():
        return {}
    text = file.read_text()
    root = yaml.compose(text)
    return dict(_walk(root, "", file, text)) if isinstance(root, yaml.MappingNode) else {}


def _walk(node: yaml.MappingNode, above: str, file: Path, text: str) -> Iterator[tuple[str, Key]]:
    lines = text.splitlines()
    comment = ""
    for key, value in node.value:
        nested = isinstance(value, yaml.MappingNode) and not value.flow_style
        block = isinstance(value, yaml.CollectionNode) and not value.flow_style
        end = key.end_mark if block else value.end_mark
        written = None if nested else _write(value, text)
        place = Place(file.relative_to(ROOT).as_posix(), key.start_mark.line + 1)
        own = _read_comment(lines, key.start_mark, end)
        comment = comment if own == "the same" else own
        yield f"{above}{key.value}", Key(written, comment, place)
        if nested:
            yield from _walk(value, f"{above}{key.value}.", file, text)


def _write(value: yaml.Node, text: str) -> str:
    """Return a value as the file has it, or as a list on one line."""
    if isinstance(value, yaml.SequenceNode) and not value.flow_style:
        return f"[{', '.join(_write(item, text) for item in value.value)}]"
    return text[value.start_mark.index : value.end_mark.index]


def _read_comment(lines: list[str], start: yaml.Mark, end: yaml.Mark) -> str:
    """Return the comment behind a value and the indented ones below it, else those right above its key."""
    behind = re.fullmatch(r":?\s+#\s*(.*)", lines[end.line][end.column :])
    number, step = (end.line + 1, 1) if behind else (start.line - 1, -1)
    more: list[str] = []
    while 0 <= number < len(lines) and (found := re.fullmatch(r"( *)#\s?(.*)", lines[number])):
        if (len(found[1]) > start.column) != bool(behind):
            break
        more.append(found[2])
        number += step
    return " ".join([behind[1], *more] if behind else reversed(more)).strip()


@cache
def read_fields(owner: type) -> Mapping[str, Field]:
    """Return the fields that a class and its bases declare; docstrings come from the nearest class that has one."""
    found: dict[str, Field] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.partition(".")[0] == "evorun":
            for name, field in _read_own_fields(base).items():
                inherited = found[name].doc if name in found else ""
                found[name] = field._replace(doc=field.doc or inherited)
    return found


@cache
def _read_own_fields(owner: type) -> Mapping[str, Field]:
    lines, first = inspect.getsourcelines(owner)
    file = Path(inspect.getfile(owner)).relative_to(ROOT).as_posix()
    [body] = [one.body for one in ast.parse(textwrap.dedent("".join(lines))).body if isinstance(one, ast.ClassDef)]
    found = {}
    for statement, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            doc = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
            place = Place(file, first + statement.lineno - 1)
            found[statement.target.id] = Field(" ".join(doc.split()) if isinstance(doc, str) else "", place)
    return found


def read_docstrings(owner: type) -> Mapping[str, str]:
    """Return the docstrings below the assignments in a class's body, by name."""
    lines, _ = inspect.getsourcelines(owner)
    [body] = [one.body for one in ast.parse(textwrap.dedent("".join(lines))).body if isinstance(one, ast.ClassDef)]
    return {
        statement.targets[0].id: " ".join(below.value.value.split())
        for statement, below in pairwise(body)
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
