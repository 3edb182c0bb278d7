"""Figures and tables of reports as files of their own, read back by other programs."""

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest
from comparison_fixture import write_method
from matplotlib.figure import Figure

from evorun.errors import ConfigError, RunDirectoryError
from evorun.reports import drawing
from evorun.reports.axes import PER_PROBLEM_AXES
from evorun.reports.html import make_report
from evorun.reports.page import export, own_file
from evorun.reports.plots import RunPlots
from evorun.reports.tables import make_data_table
from evorun.runs.schema import MetricPoint
from evorun.runs.scores import ACCURACY

pytestmark = pytest.mark.usefixtures("drawn_figures")


def _drawing() -> drawing.Drawing:
    points = [MetricPoint(step, "accuracy", step / 4, (step / 8, step / 3), 9, step, step) for step in range(4)]
    drawn = RunPlots(PER_PROBLEM_AXES, 9).score(ACCURACY, points, "step")
    assert drawn is not None
    return drawn


@pytest.mark.nightly
@pytest.mark.usefixtures("drawn_files")
def test_an_exported_figure_stands_alone_in_the_colours_of_the_light_page(tmp_path: Path) -> None:
    export(tmp_path / "new" / "folder", [_drawing().with_caption("of one seed, 0")], [])
    captions = (tmp_path / "new" / "folder" / "captions.csv").read_text().splitlines()
    assert captions == ["figure,caption", 'accuracy-step,"Of one seed, 0."']
    svg = (tmp_path / "new" / "folder" / "accuracy-step.svg").read_text()
    root = ElementTree.fromstring(svg)
    assert {"width", "height", "viewBox"} <= set(root.attrib)
    assert "var(" not in svg
    assert drawing.SERIES in svg
    assert (tmp_path / "new" / "folder" / "accuracy-step.pdf").read_bytes().startswith(b"%PDF-")


@pytest.mark.nightly
@pytest.mark.usefixtures("drawn_files")
def test_a_caption_stands_below_an_exported_figure_line_by_line() -> None:
    plain = _drawing()
    said = plain.with_caption("by generation", "", "Bands are 95 % intervals of <accuracy> over problems " * 3)
    bare, root = (ElementTree.fromstring(one.svg) for one in (plain, said))
    ends = float(bare.get("viewBox", "").split()[3])
    below = [text for text in root.iter("{http://www.w3.org/2000/svg}text") if float(text.get("y", 0)) > ends]
    assert " ".join(text.text or "" for text in below) == said.caption
    assert said.caption.startswith("By generation. Bands are 95 % intervals of <accuracy> over")
    assert len(below) > 1
    assert float(root.get("viewBox", "").split()[3]) > max(float(text.get("y", 0)) for text in below)
    heights = [int.from_bytes(one.png()[20:24], "big") for one in (plain, said)]
    assert heights[0] < heights[1]
    assert said.png() == said.png()  # the figure itself keeps no caption


def test_an_exported_figure_of_a_run_has_the_caption_that_its_page_gives_it(
    tmp_path: Path, draw_only: Callable[..., None]
) -> None:
    draw_only("accuracy-step")
    run = write_method(tmp_path / "run", [True, False, True], method="duel_evolve", steps=2, simulated=True)
    (figure,) = [path for path in make_report(run).export(tmp_path / "files") if path.name == "accuracy-step.svg"]
    words = " ".join(ElementTree.fromstring(figure.read_text()).itertext())
    assert "By generation. Best candidate of each generation, with 95 % intervals" in words
    assert "simulated" in words.split()


def test_no_file_is_replaced_unasked(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("mine")
    table = make_data_table("mine", ("n",), [(1,)])
    with pytest.raises(ConfigError, match=r"--export: .*mine.csv exists; --overwrite replaces it"):
        export(tmp_path, [_drawing()], [table])
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("mine.csv", "mine")]
    export(tmp_path, [], [table], overwrite=True)
    assert (tmp_path / "mine.csv").read_text() != "mine"


def test_a_figure_on_a_page_follows_the_style_sheet_whose_light_colours_are_the_files() -> None:
    sheet = own_file("report.css") + own_file("comparison/comparison.css")
    light = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^}]*\})*[^}]*\}", "", sheet)
    declared = dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6});", light))
    assert {name: declared[name] for name in drawing.PROPERTIES.values()} == {
        name: colour for colour, name in drawing.PROPERTIES.items()
    }
    inline = _drawing().inline
    assert "var(--series)" in inline
    assert not re.search(r"(fill|stroke): #(?!000000)", inline)


def test_a_table_is_read_back_unrounded_and_starts_no_formula(tmp_path: Path) -> None:
    rows = [("=cmd|'/c calc'!A1", 1 / 3, None), ('a "quoted", one', -0.5, 7), ("two\nlines", 0.0, 1)]
    (path,) = export(tmp_path, [], [make_data_table("../scores: <b>", ("stratum", "mean", "n"), rows)])
    assert path == tmp_path / "___scores___b_.csv"
    head, *read = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))
    assert head == ["stratum", "mean", "n"]
    assert [float(row[1]) for row in read] == [1 / 3, -0.5, 0.0]
    assert [row[2] for row in read] == ["", "7", "1"]
    assert [row[0] for row in read] == ["'=cmd|'/c calc'!A1", 'a "quoted", one', "two\nlines"]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match=r"cannot make the folder .*file/inside"):
        export(tmp_path / "file" / "inside", [], [])


def test_a_drawing_is_drawn_once_and_as_matplotlib_saves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    draw = Figure.draw
    monkeypatch.setattr(Figure, "draw", lambda self, renderer: (drawn.append(self), draw(self, renderer))[1])
    with drawing.open_figure(4, 2) as figure:
        figure.subplots().plot([0, 1], [0, 1], label="a line")
        made = drawing.make_drawing(figure, "line", "a line")
        assert drawn == [figure]
        saved = io.StringIO()
        with matplotlib.rc_context({"svg.hashsalt": "evorun-line", "svg.fonttype": "none"}):
            figure.savefig(saved, format="svg")
    assert made.svg.partition("<defs>")[2] == saved.getvalue().partition("<defs>")[2]
