"""Reads trees of rhetorical structure that a parser has made: rs3 files, and the bracketed files of RST-DT (.dis).

A parser's file is foreign: what is no such file is refused with the reason, and XML with a document type, which could
name entities, is never parsed on.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.parsers import expat

from evorun.errors import DataError
from evorun.runs.files import read_regular
from evorun.runs.paths import display

MOST_BYTES = 8_000_000
MOST_UNITS = 2_000
"""Segments and groups at most (ours): a rubric of 2,000 words has some hundreds, and motifs are of pairs of units."""
_SPAN = "span"
_BRACKETS = 4
"""Of a unit in a .dis file: itself, its span or leaf, its relation, its text."""


@dataclass(frozen=True)
class Unit:
    """A discourse unit: a segment, which has no relation, or several units that a relation joins."""

    relation: str = ""
    parts: Sequence[tuple[str, "Unit"]] = ()
    """Role of each (N: nucleus, S: satellite) and the unit, the nucleus of a satellite first."""


def read_trees(path: Path) -> list[Unit]:
    """Read a file by its ending, .rs3 or .dis. Raises DataError."""
    try:
        content = read_regular(path)
        if len(content) > MOST_BYTES:
            raise ValueError(f"expected at most {MOST_BYTES:,} bytes, got {len(content):,}")
        return trees_of_rs3(content) if path.suffix == ".rs3" else [tree_of_dis(content.decode("utf-8"))]
    except (OSError, ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise DataError(f"{display(path)}: expected a tree of rhetorical structure: {reason}") from error


# --- rs3 ---


def trees_of_rs3(content: bytes) -> list[Unit]:
    """Return the trees of an rs3 file, mostly one. Raises ValueError.

    A satellite hangs on its nucleus; a nucleus hangs on a group, with the relation `span`, or that of a multinuclear
    group. Of several satellites of a nucleus, the nearer ones are joined first.
    """
    nodes: list[dict[str, str]] = []

    def refuse(*_: Any) -> None:
        raise ValueError("it has a document type, which is not read")

    def keep(name: str, attributes: dict[str, str]) -> None:
        if name in ("segment", "group"):
            if len(nodes) == MOST_UNITS:
                raise ValueError(f"more than {MOST_UNITS:,} units")
            nodes.append({**attributes, "tag": name})

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = keep
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise ValueError(f"it is no XML: {error}") from error
    by_id = {node.get("id", ""): node for node in nodes}
    if len(by_id) < len(nodes) or "" in by_id:
        raise ValueError("each segment and group needs an id of its own")
    children: dict[str, list[str]] = defaultdict(list)
    roots = []
    for name, node in by_id.items():
        if (parent := node.get("parent", "")) in by_id:
            children[parent].append(name)
        else:
            roots.append(name)
    order = {name: place for place, name in enumerate(by_id)}
    trees = [_unit_of(name, by_id, children, order) for name in roots]
    if not trees:
        raise ValueError("no unit without a parent, which would be its root")
    return trees


def _unit_of(
    name: str, nodes: Mapping[str, Mapping[str, str]], children: Mapping[str, Sequence[str]], order: Mapping[str, int]
) -> Unit:
    node, own = nodes[name], children.get(name, ())
    relations = {child: relation_name(nodes[child].get("relname", "")) for child in own}
    multinuclear = node.get("type") == "multinuc"
    # of a multinuclear group most children are its nuclei, which share a relation
    shared = max(list(relations.values()), key=list(relations.values()).count, default="") if multinuclear else _SPAN
    nuclei = [child for child in own if relations[child] in (shared, _SPAN)]
    parts = [("N", _unit_of(child, nodes, children, order)) for child in nuclei]
    unit = Unit() if not parts else parts[0][1] if len(parts) == 1 else Unit(shared, parts)
    satellites = [child for child in own if child not in nuclei]
    for child in sorted(satellites, key=lambda satellite: (abs(order[satellite] - order[name]), order[satellite])):
        unit = Unit(relations[child], [("N", unit), ("S", _unit_of(child, nodes, children, order))])
    return unit


def relation_name(written: str) -> str:
    """Return a relation's name as motifs have it: in small letters, one kind of hyphen."""
    return written.strip().lower().replace("_", "-")


# --- .dis ---


def tree_of_dis(text: str) -> Unit:
    """Return the tree of a bracketed file: ( Root (span 1 2) ( Nucleus (leaf 1) (rel2par span) (text _!...!_) ) ...).

    Raises ValueError.
    """
    # texts may hold brackets
    pieces = [piece.partition("!_")[2] if number else piece for number, piece in enumerate(text.split("_!"))]
    tokens = iter(" ".join(pieces).replace("(", " ( ").replace(")", " ) ").split())
    if next(tokens, None) != "(":
        raise ValueError("it does not begin with a bracket")
    tree = _bracket(tokens)
    if next(tokens, None) is not None:
        raise ValueError("something follows its last bracket")
    return _unit_in(tree)


def _bracket(tokens: Iterator[str]) -> list[Any]:
    """Return what stands in a bracket that has been opened: words, and lists of what stands in inner ones."""
    stack: list[list[Any]] = [[]]
    opened = 0
    for token in tokens:
        if token == "(":  # noqa: S105 - a bracket
            inner: list[Any] = []
            opened += 1
            if opened > _BRACKETS * MOST_UNITS:
                raise ValueError(f"more than {MOST_UNITS:,} units")
            stack[-1].append(inner)
            stack.append(inner)
        elif token == ")":  # noqa: S105
            done = stack.pop()
            if not stack:
                return done
        else:
            stack[-1].append(token)
    raise ValueError("a bracket is not closed")


def _unit_in(node: list[Any]) -> Unit:
    parts = [child for child in node if isinstance(child, list) and child and child[0] in ("Nucleus", "Satellite")]
    relations = [next((item[1] for item in part if item[:1] == ["rel2par"] and len(item) > 1), "") for part in parts]
    read = [(part[0][0], relation_name(str(name)), part) for part, name in zip(parts, relations, strict=True)]
    nuclei = [("N", _unit_in(part)) for role, _, part in read if role == "N"]
    shared = next((name for role, name, _ in read if role == "N" and name != _SPAN), _SPAN)
    if parts and not nuclei:
        raise ValueError("a unit without a nucleus")
    unit = Unit() if not nuclei else nuclei[0][1] if len(nuclei) == 1 else Unit(shared, nuclei)
    for role, name, part in read:
        if role == "S":
            unit = Unit(name, [("N", unit), ("S", _unit_in(part))])
    return unit
