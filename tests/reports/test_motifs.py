"""Discourse motifs: against graphs and their isomorphism, and files that parsers write."""

import csv
import io
import itertools
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import networkx as nx
import pytest
from parse_rubrics import write_trees
from rubric_fixture import write_rubric_run
from rubric_motifs import count_motifs, load_motifs, main
from rubric_trees import Unit, read_trees, tree_of_dis, trees_of_rs3

from evorun.errors import DataError
from evorun.reports.population import measure_rubrics
from evorun.runs.reading import read_records
from evorun.runs.schema import CandidateRecord

pytestmark = pytest.mark.usefixtures("drawn_figures")

RELATIONS = ("joint", "contrast", "elaboration", "cause")
MULTINUCLEAR = RELATIONS[:2]


def _drawn(rng: random.Random, relations: int) -> Unit:
    if not relations:
        return Unit()
    name = rng.choice(RELATIONS)
    first = rng.randrange(relations)
    parts = [_drawn(rng, first), _drawn(rng, relations - 1 - first)]
    return Unit(name, list(zip("NN" if name in MULTINUCLEAR else "NS", parts, strict=True)))


def _graph(relations: tuple[tuple[int, Unit, list[int]], ...]) -> nx.DiGraph:
    """Return the labelled graph of some relations, with all of their units."""
    graph = nx.DiGraph()
    for unit, tree, parts in relations:
        for part in parts:
            graph.add_edge(part, unit, label="/")
        nucleus, other = parts
        graph.add_edge(other, nucleus, label=tree.relation)
        if tree.parts[1][0] == "N":
            graph.add_edge(nucleus, other, label=tree.relation)
    return graph


def _alike(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return one["label"] == other["label"]


@pytest.mark.parametrize("seed", range(6))
def test_motifs_are_the_classes_of_isomorphic_connected_subgraphs(seed: int) -> None:
    tree, relations = _drawn(random.Random(seed), 9), []
    waiting, numbers = [(0, tree)], itertools.count(1)
    while waiting:
        unit, one = waiting.pop()
        if one.relation:
            parts = [next(numbers) for _ in one.parts]
            relations.append((unit, one, parts))
            waiting += zip(parts, (part for _, part in one.parts), strict=True)
    classes: list[tuple[nx.DiGraph, int]] = []
    for size in (1, 2, 3):
        for some in itertools.combinations(relations, size):
            graph = _graph(some)
            if nx.is_weakly_connected(graph) and graph.number_of_nodes() == 2 * size + 1:
                alike = lambda one, other: one["label"] == other["label"]  # noqa: E731
                same = next(
                    (i for i, (g, _) in enumerate(classes) if nx.is_isomorphic(g, graph, edge_match=alike)), None
                )
                if same is None:
                    classes.append((graph, 1))
                else:
                    classes[same] = classes[same][0], classes[same][1] + 1
    counted = count_motifs([tree])
    assert sorted(counted.values()) == sorted(n for _, n in classes)
    assert {name: n for name, n in counted.items() if "/" not in name} == Counter(
        one.relation for _, one, _ in relations
    )


RS3 = b"""<rst><header><relations><rel name="joint" type="multinuc"/></relations></header><body>
<segment id="1" parent="7" relname="joint">a</segment>
<segment id="2" parent="6" relname="span">b</segment>
<segment id="3" parent="2" relname="Elaboration">c</segment>
<segment id="4" parent="7" relname="joint">d</segment>
<segment id="5" parent="7" relname="attribution">e</segment>
<group id="6" type="span" parent="7" relname="joint"/>
<group id="7" type="multinuc"/>
</body></rst>"""
DIS = """( Root (span 1 5)
  ( Nucleus (span 1 4) (rel2par span)
    ( Nucleus (leaf 1) (rel2par joint) (text _!a (b) (!_) )
    ( Nucleus (span 2 3) (rel2par joint)
      ( Nucleus (leaf 2) (rel2par span) (text _!b!_) ) ( Satellite (leaf 3) (rel2par Elaboration) (text _!c)!_) ) )
    ( Nucleus (leaf 4) (rel2par joint) (text _!d!_) ) )
  ( Satellite (leaf 5) (rel2par attribution) (text _!e!_) ) )"""
EXPECTED = {
    "attribution": 1,
    "joint": 1,
    "elaboration": 1,
    "attribution /N joint": 1,
    "joint /N elaboration": 1,
    "attribution /N joint /N elaboration": 1,
}


def test_both_formats_say_the_same_of_the_same_tree() -> None:
    assert count_motifs(trees_of_rs3(RS3)) == EXPECTED
    assert count_motifs([tree_of_dis(DIS)]) == EXPECTED


def test_of_two_satellites_the_nearer_one_is_joined_first() -> None:
    body = (
        '<segment id="1" parent="3" relname="background"/><segment id="2" parent="3" relname="purpose"/>'
        '<segment id="3"/>'
    )
    (tree,) = trees_of_rs3(f"<rst>{body}</rst>".encode())
    assert (tree.relation, tree.parts[0][1].relation) == ("background", "purpose")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.rs3", b'<!DOCTYPE r [<!ENTITY a "b"><!ENTITY c "&a;&a;">]><r>&c;</r>', "document type"),
        ("a.rs3", b'<!DOCTYPE r SYSTEM "file:///etc/passwd"><r/>', "document type"),
        ("a.rs3", b"<r>", "no XML"),
        ("a.rs3", b"<r/>", "root"),
        ("a.rs3", b'<r><segment id="1"/><segment id="1"/></r>', "an id of its own"),
        ("a.rs3", b'<r><segment id="1" parent="2"/><segment id="2" parent="1"/></r>', "root"),
        ("a.rs3", b"<r>" + b'<segment id="1"/>' * 3000 + b"</r>", "2,000 units"),
        (
            "a.rs3",
            b"<r>" + b"".join(b'<group id="%d" parent="%d" relname="x"/>' % (i, i - 1) for i in range(1999)) + b"</r>",
            "deeply",
        ),
        ("a.dis", b"( Root ( Satellite (leaf 1) (rel2par x) ) )", "nucleus"),
        ("a.dis", b"( Root", "not closed"),
        ("a.dis", b"( Root ) )", "follows"),
        ("a.dis", b"( " * 100_000, "2,000 units"),
        ("a.dis", b"\xff", "decode"),
    ],
)
def test_what_is_no_tree_is_refused_with_the_reason(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said):
        read_trees(tmp_path / name)


def test_the_versions_that_have_trees_are_counted_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_rubric_run(tmp_path / "run")
    trees = run / "artifacts" / "rst"
    trees.mkdir(parents=True)
    (trees / "rubric#0.rs3").write_bytes(RS3)
    (trees / "rubric#1.dis").write_bytes(b"broken")
    (trees / "rubric#3.dis").write_text(DIS.replace("joint", "$<script>$"))
    main([str(run), "--output", str(tmp_path / "figure.svg")])
    printed = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(printed.out)))
    assert Counter(row["version"] for row in rows) == {"initial": 6, "last": 6}
    assert {row["motif"]: (int(row["count"]), row["share"]) for row in rows[:6]} == dict.fromkeys(
        EXPECTED, (1, "0.1667")
    )
    (fault,) = printed.err.splitlines()
    assert "rubric#1.dis" in fault
    drawn = (tmp_path / "figure.svg").read_text()
    assert "<script>" not in drawn
    assert "elaboration" in drawn


def test_without_trees_the_script_says_how_to_make_them(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"expected trees .*parse_rubrics\.py makes them"):
        main([str(write_rubric_run(tmp_path / "run"))])


def test_the_script_leaves_trees_of_the_first_the_second_and_the_last_rubric(tmp_path: Path) -> None:
    run, parsed = write_rubric_run(tmp_path / "run"), []

    class Tree:
        def to_rs3(self, file: str) -> None:
            Path(file).write_bytes(RS3)

    def parse(text: str) -> dict[str, list[Tree]]:
        parsed.append(text)
        return {"rst": [Tree()]}

    files = write_trees(run, parse)
    assert [file.name for file in files] == ["rubric#0.rs3", "rubric#1.rs3", "rubric#3.rs3"]
    assert parsed[0] == "Judge how the text hangs together."
    assert "<item>" not in parsed[1]
    assert "Criterion 0\n- 5: The claim is argued for." in parsed[1]
    assert len(load_motifs(run, measure_rubrics(read_records(run / "candidates.jsonl", CandidateRecord)))[0]) == 3
