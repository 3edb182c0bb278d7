"""The tables of a comparison as LaTeX, read back by another reader of LaTeX."""

import re
from pathlib import Path

from comparison_fixture import write_method
from pylatexenc.latex2text import LatexNodes2Text
from pylatexenc.latexwalker import LatexEnvironmentNode, LatexWalker

from evorun.exports.latex import comparison_tables, render
from evorun.reports import text
from evorun.reports.comparison import compare
from evorun.reports.tables import Table, figure_columns, word_columns


def test_latex_escapes_every_cell() -> None:
    hostile = r"\input{x}%_&#$^~{}"
    table = Table([*word_columns("run"), *figure_columns("95 % interval")], [(hostile, "10 to 20 %")])
    lines = render(table).splitlines()
    assert lines[0] == r"\begin{tabular}{lr}"
    assert lines[2] == r"run & 95 \% interval \\"
    # another reader of LaTeX finds the text, not its commands
    cell, interval = lines[4].split(" & ")
    assert (read_latex(cell).replace("\u02c6", "^"), interval) == (hostile, r"10 to 20 \% \\")


def test_latex_aligns_figures_at_their_points() -> None:
    shown = ["0.0123", "3.7", "12.3", "347", "1.5 to 10.2", text.MISSING]
    table = Table(figure_columns("score"), [(cell,) for cell in shown])
    cells = [line.removesuffix(r" \\") for line in render(table).splitlines()[4:-2]]
    aligned = [
        "0.0123",
        r"3.70\phantom{00}",
        r"12.3\phantom{000}",
        r"347\phantom{.0000}",
        r"1.50\phantom{00} to 10.2",
        "--",
    ]
    assert cells == aligned


def test_latex_has_all_tables_of_the_comparison(tmp_path: Path) -> None:
    scores = {"length_score": [3.25] * 10}
    declared = [{"name": "accuracy", "low": 0, "high": 1, "rate": True}, {"name": "length_score", "low": 0, "high": 10}]
    runs = [
        write_method(tmp_path / name, right, method=name, scores=scores, declared=declared)
        for name, right in (("one_way", [True] * 8 + [False] * 2), ("an_other", [True] * 3 + [False] * 7))
    ]
    document = comparison_tables(compare(runs))
    nodes, _, _ = LatexWalker(document, tolerant_parsing=False).get_latex_nodes()
    found = [node for node in nodes if node.isNodeType(LatexEnvironmentNode)]
    labels = re.findall(r"\\label\{tab:(.*?)\}", document)
    assert [node.environmentname for node in found] == ["table"] * len(labels)
    assert labels == ["main", "scores", "search", "strata", "pairs", "score-pairs", "run-cost", "cost"]
    pairs = read_latex(document[document.index("tab:pairs") :])
    assert re.search(r"an_other\s+10\s+.50\.0 pp", pairs)


def test_each_caption_says_what_is_simulated(tmp_path: Path) -> None:
    runs = [
        write_method(tmp_path / method, [True, False] * 5, method=method, simulated=simulated)
        for method, simulated in (("one_way", True), ("an_other", True), ("a_real_one", False))
    ]
    for given, said in ((runs[:2], "All runs: simulated."), (runs, "Some runs: simulated."), (runs[2:] * 2, None)):
        document = comparison_tables(compare(given))
        captions = re.findall(r"\\caption\{(.*)\}", document)
        assert len(captions) == document.count(r"\begin{table}") > 2
        assert all(said in caption if said else "simulated" not in caption for caption in captions)


def read_latex(document: str) -> str:
    """Return what LaTeX would typeset."""
    return str(LatexNodes2Text(keep_comments=True).latex_to_text(document))
