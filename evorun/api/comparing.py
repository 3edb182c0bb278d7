"""Comparisons of runs for a script or a notebook: the tables and figures of `evorun report`, as objects."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from evorun.api.frames import BoundFrame, Columns, infer
from evorun.api.html import make_html_table
from evorun.api.loading import Place, load
from evorun.api.runs import Run
from evorun.errors import ConfigError
from evorun.reports import comparison as reports
from evorun.reports.comparison import notes, tables
from evorun.reports.comparison.figures import CaptionedFigure, make_figures
from evorun.reports.comparison.findings import describe_finding
from evorun.reports.comparison.study import StudyReport
from evorun.reports.drawing import drawings_of_width
from evorun.reports.tables import Table
from evorun.runs.printable import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure


class Figure:
    """A figure of a comparison; a notebook shows it by itself."""

    def __init__(self, captioned: CaptionedFigure, heading: str) -> None:
        self._drawing = captioned.drawing.with_caption()  # it is beside the figure here
        self.heading = heading
        """The subject, such as `Accuracy during the runs`; with its caption and note it says what is drawn."""
        self.caption = captioned.caption
        self.note = captioned.note

    @property
    def name(self) -> str:
        """The name that exported files have, without its ending."""
        return self._drawing.name

    @property
    def svg(self) -> str:
        """The figure as an SVG file, on white."""
        return self._drawing.svg

    @property
    def figure(self) -> "MatplotlibFigure":
        """The figure of Matplotlib, to change it."""
        return self._drawing.figure

    def save(self, path: str | PathLike[str]) -> None:
        """Write the figure to a file, whose ending is .svg, .pdf or .png. Raises ConfigError for another."""
        file = Path(path)
        if file.suffix == ".pdf":
            file.write_bytes(self._drawing.pdf())
        elif file.suffix == ".png":
            file.write_bytes(self._drawing.png())
        elif file.suffix == ".svg":
            file.write_text(self.svg, encoding="utf-8")
        else:
            raise ConfigError(f"{file}: expected a file that ends in .svg, .pdf or .png")

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return printable(f"<evorun figure {self.name}: {self.heading}, {self.caption}>")


class TableOf:
    """A method of a comparison that returns one of its tables as a data frame."""

    def __init__(self, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, compared: None, kind: type) -> "TableOf": ...
    @overload
    def __get__(self, compared: "Comparison", kind: type) -> BoundFrame: ...
    def __get__(self, compared: "Comparison | None", kind: type) -> Any:
        return self if compared is None else BoundFrame(lambda: compared.get_columns(self.name))


class Comparison:
    """Several runs side by side; a notebook shows its main tables by itself.

    Each table is called, as in `comparison.arms()`, and takes `format="polars"` for a frame of polars. The default is
    one of pandas.
    """

    def __init__(self, compared: reports.ComparedRuns) -> None:
        self._compared = compared

    @property
    def warnings(self) -> list[str]:
        """Warnings that a reader must know before comparing, a line each."""
        compared = self._compared
        return [*compared.warnings, *notes.list_cautions(compared)]

    @property
    def findings(self) -> list[str]:
        """A sentence on each comparison with a reference: what it shows."""
        return [describe_finding(pair) for pair in self._compared.pairs.main_pairs]

    @property
    def study(self) -> StudyReport | None:
        """The study file that states the runs, whether they kept to it, and what they answer; None without one."""
        return self._compared.study

    @property
    def notes(self) -> list[str]:
        """Explanations of the figures and the tests, a line each."""
        pairs = self._compared.pairs
        lines = [notes.pairs_heading(self._compared), notes.pairs_note(self._compared)] if pairs.pairs else []
        return [*lines, *notes.unpaired_lines(self._compared), *self._compared.remarks]

    arms = TableOf("arms")
    """One row for each method with its settings: means over its seeds, intervals and cost."""
    runs = TableOf("runs")
    """The same for each run."""
    strata = TableOf("strata")
    """The primary score of each method with its settings by stratum."""
    roles = TableOf("roles")
    """The mean cost per problem of each method with its settings by call role."""
    pairs = TableOf("pairs")
    """The differences from the reference on the same problems: intervals, p and p by Holm."""
    strata_pairs = TableOf("strata_pairs")
    """The same on the problems of each stratum alone, which is exploratory; empty without several strata."""

    level_pairs = TableOf("level_pairs")
    """The differences at each level of a setting that all methods ran at, and the last less the first."""

    def get_columns(self, name: str) -> Columns:
        """Return the columns of a table by name."""
        table = self._tables["arms" if name == "runs" and not self._compared.has_seeds else name]
        columns = zip(*table.rows, strict=True) if table.rows else [()] * len(table.headings)
        return {head: infer(list(cells)) for head, cells in zip(table.headings, columns, strict=True)}

    @cached_property
    def _tables(self) -> dict[str, Table]:
        return {table.name: table for table in tables.make_data_tables(self._compared)}

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """The figures by name."""
        return self.draw_figures()

    def draw_figures(self, width: float | None = None) -> dict[str, Figure]:
        """Return the figures by name, drawn at a width in inches such as a column's; None: their natural one.

        Raises ConfigError for a width at which no figure can be read.
        """
        with drawings_of_width(width):
            drawn = make_figures(self._compared)
        headed = [
            *(("Final scores", figure) for figure in (*drawn.finals, *drawn.other_finals)),
            *((heading, figure) for heading, figures in drawn.curves.items() for figure in figures),
            *(("Figures of the methods", figure) for figure in drawn.methods),
            *(("Training", figure) for figure in drawn.trained),
            *(("Rubrics", figure) for figure in drawn.rubrics),
        ]
        return {figure.drawing.name: Figure(figure, heading) for heading, figure in headed}

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page of the comparison, as `evorun report` does, and return its path. Raises RunDirectoryError."""
        return reports.write_comparison(self._compared, Path(path))

    def __repr__(self) -> str:
        return printable(f"<evorun.Comparison: {', '.join(row.name for row in self._compared.rows)}>")

    def _repr_html_(self) -> str:
        compared = self._compared
        main = tables.make_main_table(compared, compared.rows, [], compared.common_scores)
        pairs = tables.make_pairs_table(compared.pairs.main_pairs)
        shown = [make_html_table(table.headings, table.shown()) for table in (main, pairs) if table.rows]
        lines = make_html_table((), [(line,) for line in (*self.warnings, *self.findings, *self.notes)])
        return "".join([*shown, lines])


def compare(
    runs: Place | Sequence[Place],
    against: str | PathLike[str] | Run | None = None,
    score: str | None = None,
    names: Mapping[str, str] | None = None,
) -> Comparison:
    """Compare runs, each with the reference of its group: runs of the same task, model and seed.

    Args:
        runs: what `load` takes or returns; at least two runs.
        against: the reference: a run or its folder, or the name of a method or of a row. By default the best one.
            "all": every two methods are compared.
        score: the name of the score that ranks the runs and is tested. By default each task's primary one.
        names: other names for tables and figures, by the names of rows or methods. `against` may be one of them.

    Raises:
        RunDirectoryError: for a folder without runs.
        DataError: for a run that cannot be read.
        ConfigError: for fewer than two runs, where `against` is none of them or no two methods can be compared, for
            names of no row or of two, and where a run lacks the score.
    """
    loaded = load(runs)
    folders = [loaded.path] if isinstance(loaded, Run) else [run.path for run in loaded]
    if len(folders) < 2:
        raise ConfigError(f"expected two runs or more to compare, got {len(folders)}")
    reference = against.path if isinstance(against, Run) else against
    reference = str(reference) if isinstance(reference, PathLike) else reference
    return Comparison(reports.compare(folders, reference, score, names))
