"""Graphs in the DIMACS format (.col): `p edge VERTICES EDGES`, then `e U V` for each edge, vertices counted from 1.

`c` lines are comments; `n` lines and those of related formats (`d`, `v`, `x`) say nothing about edges and are skipped.
Some public files list an edge in both directions, or count both. So repeated edges are merged, and the number of edges
in the `p` line is not checked. Some files have `p col` instead of `p edge`.
"""

from pathlib import Path

from evorun.errors import DataError
from evorun.tasks.graph_coloring.graph import Graph, make_graph

SUFFIX = ".col"
MAX_VERTICES = 1000
"""Maximum vertices (ours): larger graphs take minutes to colour, and hardly fit into a prompt."""
_MAX_BYTES = 64 * 2**20
_SKIPPED = frozenset("cndvx")


def graph_files(path: Path) -> list[Path]:
    """Return a folder's .col files by name, or the one file. Raises DataError when there is none."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"task.data: expected a DIMACS file or a folder with some, got '{path}'")
    found = sorted(file for file in path.iterdir() if file.suffix == SUFFIX and file.is_file())
    if not found:
        raise DataError(f"task.data: expected at least one file *{SUFFIX} in '{path}', found none")
    return found


def read_graph(path: Path) -> Graph:
    """Read a graph. Raises DataError naming file and line for anything else than the format."""
    vertices, edges = 0, []
    for number, line in enumerate(_text(path).splitlines(), 1):
        words, where = line.split(), f"{path}:{number}"
        if not words or words[0] in _SKIPPED:
            continue
        if words[0] == "p":
            if vertices:
                raise DataError(f"{where}: expected one line 'p edge VERTICES EDGES', found a second")
            numbers = [_number(word) for word in words[2:]]
            if len(words) not in (3, 4) or words[1] not in ("edge", "edges", "col") or None in numbers:
                raise DataError(f"{where}: expected 'p edge VERTICES EDGES', got '{' '.join(words)[:40]}'")
            vertices = numbers[0] or 0
            if not 1 <= vertices <= MAX_VERTICES:
                raise DataError(f"{where}: expected 1 to {MAX_VERTICES} vertices, got {words[2][:20]}")
        elif words[0] == "e":
            if not vertices:
                raise DataError(f"{where}: expected the line 'p edge VERTICES EDGES' before the first edge")
            ends = [_number(word) or 0 for word in words[1:]]
            if len(ends) != 2 or not all(1 <= end <= vertices for end in ends):
                raise DataError(
                    f"{where}: expected 'e U V' with vertices from 1 to {vertices}, got '{' '.join(words)[:40]}'"
                )
            if ends[0] == ends[1]:
                raise DataError(
                    f"{where}: vertex {words[1]} is joined to itself, so no colouring is right; remove this line"
                )
            edges.append((ends[0] - 1, ends[1] - 1))
        else:
            raise DataError(f"{where}: expected a line that begins with c, p or e, got '{line[:40]}'")
    if not vertices:
        raise DataError(f"{path}: expected a line 'p edge VERTICES EDGES' as in DIMACS files, found none")
    return make_graph(vertices, edges)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise DataError(f"{path}: expected a file of at most {_MAX_BYTES >> 20} MiB, got a larger one")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: expected a DIMACS file as text, got other bytes; convert .col.b files to .col first"
        ) from error


def _number(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 12 else None
