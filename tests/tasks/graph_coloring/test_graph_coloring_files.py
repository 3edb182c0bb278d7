"""DIMACS files: real graphs come back as they are, and hostile files are refused in one line."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from building import load_task, task_config
from evorun.errors import ConfigError, DataError
from evorun.tasks.graph_coloring.files import read_graph

REPOSITORY = Path(__file__).resolve().parents[3]
TEST_DATA = Path(os.environ.get("EVORUN_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
DIMACS = TEST_DATA / "puzzles" / "graph_coloring.jsonl"
SMALL = {"dimacs/myciel3", "dimacs/myciel4", "dimacs/queen6_6", "dimacs/huck"}
TRIANGLE = "c a triangle\np edge 3 3\ne 1 2\ne 2 3\ne 1 3\n"


def written(folder: Path, text: str | bytes, name: str = "graph.col") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def in_dimacs_form(record: dict[str, Any]) -> str:
    """As public files are: each edge in both directions, and counted twice."""
    lines = [f"c FILE: {record['id']}", f"p edge {record['n']} {2 * len(record['edges'])}"]
    for u, v in record["edges"]:
        lines += [f"e {u + 1} {v + 1}", f"e {v + 1} {u + 1}"]
    return "\n".join(lines) + "\n"


@pytest.mark.skipif(not DIMACS.exists(), reason="needs the DIMACS graphs; set EVORUN_TEST_DATA")
def test_real_graphs_come_back_as_they_are_and_load_with_their_chromatic_numbers(tmp_path: Path) -> None:
    records = {record["id"]: record for record in map(json.loads, DIMACS.read_text().splitlines())}
    for name, record in records.items():
        of = read_graph(written(tmp_path, in_dimacs_form(record), "any.txt"))
        assert of.vertices == record["n"]
        assert sorted(of.edges) == sorted((min(e), max(e)) for e in record["edges"])
        if name in SMALL:
            written(tmp_path, in_dimacs_form(record), f"{name.removeprefix('dimacs/')}.col")
    loaded = load_task("graph_coloring", data=str(tmp_path), colors=None)
    assert [problem.id for problem in loaded.problems] == ["huck", "myciel3", "myciel4", "queen6_6"]
    assert [problem.data["colors"] for problem in loaded.problems] == [11, 4, 5, 7]
    assert [problem.stratum for problem in loaded.problems][1] == "11 vertices"
    assert loaded.provenance.source == "stand_in"


def test_one_file_is_one_problem_in_as_many_colours_as_asked_for(tmp_path: Path) -> None:
    loaded = load_task("graph_coloring", data=str(written(tmp_path, TRIANGLE)), colors=2)
    (problem,) = loaded.problems
    assert problem.data == {"vertices": 3, "colors": 2, "edges": ((0, 1), (0, 2), (1, 2))}
    assert problem.id == "graph"


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        (TRIANGLE, ((0, 1), (0, 2), (1, 2))),
        (b"\xef\xbb\xbf" + TRIANGLE.encode(), ((0, 1), (0, 2), (1, 2))),
        (TRIANGLE.replace("\n", "\r\n"), ((0, 1), (0, 2), (1, 2))),
        ("p col 3 1\nn 1 5\n\n  e 3 1  \nx 1 2\nd 1 2 3\n", ((0, 2),)),
        ("p edge 3 99\ne 1 2\ne 2 1\ne 1 2\n", ((0, 1),)),
        ("p edges 3\n", ()),
    ],
)
def test_forms_that_files_have(tmp_path: Path, text: str | bytes, edges: tuple[tuple[int, int], ...]) -> None:
    assert read_graph(written(tmp_path, text)) == (3, edges)


def test_hostile_files_are_refused_in_one_line(tmp_path: Path) -> None:
    for text, complaint in [
        ("", "expected a line 'p edge VERTICES EDGES' as in DIMACS files, found none"),
        ("\n \nc nothing\n", "found none"),
        (b"\x00\xff\xfe\x80" * 50, "got other bytes; convert .col.b"),
        (b"\x00" * 50, ":1: expected a line that begins with c, p or e"),
        ("<html>\n", ":1: expected a line that begins with c, p or e, got '<html>'"),
        ("e 1 2\np edge 3 1\n", ":1: expected the line 'p edge VERTICES EDGES' before the first edge"),
        ("p edge 3 1\np edge 3 1\n", ":2: expected one line"),
        ("p edge 3 1\ne 1 4\n", ":2: expected 'e U V' with vertices from 1 to 3, got 'e 1 4'"),
        ("p edge 3 1\ne 0 1\n", ":2: expected 'e U V'"),
        ("p edge 3 1\ne -1 1\n", ":2: expected 'e U V'"),
        ("p edge 3 1\ne 1\n", ":2: expected 'e U V'"),
        ("p edge 3 1\ne 1 2 3\n", ":2: expected 'e U V'"),
        ("p edge 3 1\ne a b\n", ":2: expected 'e U V'"),
        ("p edge 3 1\ne 2 2\n", ":2: vertex 2 is joined to itself, so no colouring is right; remove this line"),
        ("p edge 0 0\n", ":1: expected 1 to 1000 vertices, got 0"),
        ("p edge 1001 0\n", "expected 1 to 1000 vertices, got 1001"),
        (f"p edge {'9' * 11} 0\n", "got 99999999999"),
        (f"p edge {'9' * 5000} 0\n", "expected 'p edge VERTICES EDGES', got 'p edge 999"),
        ("p cnf 3 2\n1 2 0\n", ":1: expected 'p edge VERTICES EDGES', got 'p cnf 3 2'"),
        ("p edge\n", ":1: expected 'p edge VERTICES EDGES'"),
        ("p\n", ":1: expected 'p edge VERTICES EDGES'"),
        ("p edge three 2\n", ":1: expected 'p edge VERTICES EDGES'"),
    ]:
        with pytest.raises(DataError) as refused:
            read_graph(written(tmp_path, text))
        message = str(refused.value)
        assert complaint in message
        assert "graph.col" in message
        assert len(message.splitlines()) == 1
        assert len(message) < 300 + len(str(tmp_path))


def test_a_huge_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "huge.col"
    with path.open("wb") as file:
        file.truncate(2**33)
    with pytest.raises(DataError, match="at most 64 MiB, got a larger one"):
        read_graph(path)


def test_places_without_graphs(tmp_path: Path) -> None:
    for data, complaint in ((tmp_path / "absent", "a DIMACS file or a folder"), (tmp_path, "at least one file")):
        with pytest.raises(DataError, match=complaint):
            load_task("graph_coloring", data=str(data))
    path = written(tmp_path, TRIANGLE)
    with pytest.raises(ConfigError, match=r"task\.split"):
        load_task("graph_coloring", data=str(path), split="training")
    with pytest.raises(ConfigError, match=r"task\.colorable_only: .*omit one of the two"):
        task_config("graph_coloring", data=str(path), colorable_only=True)
