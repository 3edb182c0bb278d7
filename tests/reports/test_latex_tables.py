"""The tables of a comparison as LaTeX, read back by another reader of LaTeX."""

import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from comparison_fixture import edit_manifest, write_method
from pylatexenc.latex2text import LatexNodes2Text
from pylatexenc.latexwalker import LatexEnvironmentNode, LatexWalker

from evorun.cli.export import export_runs
from evorun.errors import ConfigError
from evorun.exports.latex import comparison_tables, render
from evorun.reports import text
from evorun.reports.comparison import compare
from evorun.reports.comparison.tables import make_strata_table
from evorun.reports.tables import Table, figure_columns, word_columns
from evorun.runs.schema import Metric
from evorun.runs.scores import ACCURACY
from evorun.runs.terminal import Terminal


def test_latex_escapes_every_cell() -> None:
    hostile = r"\input{x}%_&#$^~{}"
    table = Table([*word_columns("run"), *figure_columns("95 % interval")], [(hostile, "10 to 20 %")])
    [tabular] = render(table)
    lines = tabular.splitlines()
    assert lines[0] == r"\begin{tabular}{@{}lr@{}}"
    assert lines[2:4] == [r" & 95 \% \tabularnewline", r"run & interval \tabularnewline"]
    # another reader of LaTeX finds the text, not its commands
    cell, interval = lines[5].split(" & ")
    assert (read_latex(cell).replace("\u02c6", "^"), interval) == (hostile, r"10 to 20 \% \tabularnewline")


def test_latex_aligns_figures_at_their_points() -> None:
    shown = ["0.0123", "3.70", "12.3", "347", "1.50 to 10.2", text.MISSING]
    table = Table(figure_columns("score"), [(cell,) for cell in shown])
    [tabular] = render(table)
    cells = [line.removesuffix(r" \tabularnewline") for line in tabular.splitlines()[4:-2]]
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
    scores = {"length_score": [3.25] * 9 + [4.0]}
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
    assert [label for label in labels if not label.endswith("-2")] == [
        "main",
        "scores",
        "search",
        "strata",
        "pairs",
        "score-pairs",
        "strata-pairs",
        "run-cost",
        "cost",
    ]
    pairs = read_latex(document[document.index("tab:pairs") :])
    assert re.search(r"an_other\s+10\s+.50\.0 pp", pairs)


def test_columns_that_do_not_fit_a_page_follow_beside_the_names() -> None:
    name = "duel_evolve, engine.judge_skill=0.9 from step 1, method.temperature=0.3"
    headings = [f"figure {letter}" for letter in "ABCDEFGH"]
    figures = [f"{number}.0 to 99.9 %" for number in range(8)]
    table = Table([*word_columns("run"), *figure_columns(*headings, "empty")], [[name, *figures, text.MISSING]])
    tabulars = render(table)
    assert len(tabulars) > 1
    assert sum(tabular.count("figure") for tabular in tabulars) == 8
    for figure in figures:
        assert sum(tabular.count(figure.replace("%", r"\%")) for tabular in tabulars) == 1
    assert "empty" not in "".join(tabulars)
    for tabular in tabulars:
        assert read_latex(tabular.replace(r"\allowbreak{}", "").replace(r"\raggedright ", "")).count(name) == 1


def test_each_part_of_a_table_names_its_rows_by_all_their_names() -> None:
    references = ["gepa, model=a_model_of_some_size", "zero_shot, model=a_model_of_some_size"]
    rows = [
        [reference, f"duel_evolve, engine.judge_skill=0.{i}, task.limit=60"] for reference in references for i in (1, 2)
    ]
    columns = [*word_columns("reference", "run"), *figure_columns(*(f"figure {letter}" for letter in "ABCDEF"))]
    table = Table(columns, [[*row, *["10.0 to 99.9 %"] * 6] for row in rows], grouped=1)
    tabulars = [read_latex(part.replace(r"\allowbreak{}", "").replace(r"\raggedright ", "")) for part in render(table)]
    assert len(tabulars) > 1
    for part in tabulars:
        assert [part.count(run) for run in ("judge_skill=0.1", "judge_skill=0.2", *references)] == [2, 2, 1, 1]


def test_captions_of_parts_say_what_each_holds(tmp_path: Path) -> None:
    runs = [
        write_method(tmp_path / f"{method}{seed}", [True] * right + [False] * (10 - right), method=method, seed=seed)
        for method, right in (("one_way_of_many_that_there_are", 8), ("an_other", 3))
        for seed in (0, 1)
    ]
    edit_manifest(runs[0], resumes=1, seconds=1000)
    edit_manifest(runs[1], seconds=30)
    document = comparison_tables(compare(runs))
    captions = [
        read_latex(caption).replace("\\allowbreak", "") for caption in re.findall(r"\\caption\{(.*)\}", document)
    ]
    parts = [caption for caption in captions if caption.startswith("Accuracy and cost (")]
    assert len(parts) > 1
    assert ["tokens per problem" in part for part in parts] == [False] * (len(parts) - 1) + [True]
    assert any(caption.startswith("Cost of whole runs, means over seeds.") for caption in captions)
    costs = document[document.index("tab:run-cost") :]
    assert re.search(r"one.*30\.0.*s", costs)  # the other run was resumed
    assert "\\paragraph{Study.}" not in document


def test_the_main_table_has_the_score_and_the_reference_that_are_chosen(tmp_path: Path) -> None:
    declared = [{"name": "accuracy", "low": 0, "high": 1, "rate": True}, {"name": "length_score", "low": 0, "high": 10}]
    lengths = [float(number) for number in range(10)]
    for name, longer in (("one_way", 0.0), ("an_other", 0.5)):
        scores = {"length_score": [length + longer for length in lengths]}
        write_method(tmp_path / "runs" / name, [True, *[False] * 9], method=name, scores=scores, declared=declared)
    words = [str(tmp_path / "runs"), "format=latex", f"output={tmp_path / 'table.tex'}"]
    assert export_runs([*words, "score=length_score", "against=one_way"], Terminal(quiet=True)) == 0
    document = (tmp_path / "table.tex").read_text()
    captions = re.findall(r"\\caption\{(.*?)[.(]", document)
    assert (captions[0], captions[-1]) == ("Length score and cost ", "Cost per problem, by role")
    assert r"Against one\_\allowbreak{}way, on the same problems" in captions


PDFLATEX = shutil.which("pdflatex")


@pytest.mark.skipif(PDFLATEX is None, reason="no pdflatex on the PATH")
def test_latex_sets_all_tables_within_a_page(tmp_path: Path) -> None:
    runs = [
        write_method(tmp_path / f"{method}_{seed}", right[seed:] + right[:seed], method=method, config={"seed": seed})
        for method in ("a_method_whose_name_is_as_long_as_names_of_methods_become", "another_one")
        for seed, right in enumerate([[True] * 7 + [False] * 3, [False, True] * 5])
    ]
    (tmp_path / "tables.tex").write_text(comparison_tables(compare(runs)))
    (tmp_path / "paper.tex").write_text(
        r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{booktabs}\begin{document}\input{tables.tex}\end{document}"
    )
    done = subprocess.run(
        [str(PDFLATEX), "-interaction=nonstopmode", "-halt-on-error", "paper.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
    assert "Output written" in done.stdout
    assert "Overfull" not in done.stdout


def test_a_caption_is_short_and_the_notes_are_comments(tmp_path: Path) -> None:
    runs = [
        write_method(tmp_path / method, right, method=method)
        for method, right in (("one_way", [True] * 8 + [False] * 2), ("an_other", [True] * 3 + [False] * 7))
    ]
    document = comparison_tables(compare(runs))
    captions = re.findall(r"\\caption\{(.*)\}", document)
    assert max(len(re.findall(r"\.( |$)", caption)) for caption in captions) <= 3
    comments = [line for line in document.splitlines() if line.startswith("% ")]
    assert any("McNemar" in line for line in comments)
    assert not any("McNemar" in caption for caption in captions)


def test_strata_have_an_interval_in_each_cell_or_in_none() -> None:
    rate, few = Metric(0.5, (0.2, 0.8), 4), Metric(0.25, None, 4)
    for metrics, said in (([rate, few], ["50.0 % [20.0 to 80.0 %]", "25.0 % [\u2013]"]), ([few, few], ["25.0 %"] * 2)):
        row = SimpleNamespace(name="a", primary=ACCURACY, by_stratum=dict(zip("xy", metrics, strict=True)))
        compared = SimpleNamespace(strata=["x", "y"], primaries=[ACCURACY])
        [cells] = make_strata_table(cast(Any, compared), cast(Any, [row]), with_intervals=True).rows
        assert cells[1:] == said


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


def test_tables_and_columns_are_chosen_and_a_score_has_its_interval_beside_it(tmp_path: Path) -> None:
    seeds = (0, 1, 2)
    runs = [
        write_method(tmp_path / f"{name}{seed}", [i < right + seed for i in range(12)], method=name, seed=seed)
        for name, right in (("one_way", 7), ("an_other", 3))
        for seed in seeds
    ]
    compared = compare(runs)
    chosen = comparison_tables(compared, ["pairs", "arms"], ["accuracy+interval", "difference", "p", "calls"])
    assert re.findall(r"\\label\{tab:(.*?)\}", chosen) == ["pairs", "main"]
    by_label = re.split(r"\\label", chosen)[1:]
    heads = [re.sub(r"\s+", " ", part.split(r"\toprule")[1].split(r"\midrule")[0]) for part in by_label]
    assert [len(head.split(r"\tabularnewline")[0].split("&")) for head in heads] == [3, 3]  # run and the two it has
    assert re.search(r"one\S*way & 66\.7 \\% \([\d.]+ to [\d.]+ \\%\) & 1 ", by_label[1])
    for piece in re.split(r"\\begin\{table\}", comparison_tables(compared))[1:]:
        if re.search(r"\\label\{tab:(main|pairs)", piece) and re.search(
            r"accuracy|difference", piece.split("midrule")[0]
        ):
            assert "interval" in piece.split(r"\midrule")[0].split(r"\toprule")[1]
    with pytest.raises(ConfigError, match=r"tables: expected some of arms, .*pairs.*, got final"):
        comparison_tables(compared, ["final"])
    with pytest.raises(ConfigError, match=r"columns: expected words of some of run; .*accuracy.*; got price"):
        comparison_tables(compared, ["arms"], ["price"])
