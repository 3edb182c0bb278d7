"""The common parts of all figures: style, axes, names of lines, SVG for pages, and SVG, PDF and PNG files.

On a page, colours and fonts are the page's, so that a figure follows its light or dark scheme; files use the light one.
"""

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from html import escape
from textwrap import shorten, wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from evorun.errors import ConfigError
from evorun.reports.text import sentence
from evorun.runs.printable import printable
from evorun.runs.scores import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# The style sheets' colours in the light scheme. Matplotlib knows no custom properties: on a page each becomes the
# property that has its value there.
INK, GRID, SERIES, CARD, GREY = "#5a626c", "#dcdfe3", "#0b62a4", "#ffffff", "#8a919a"
RUNS = ("#5b8df8", "#7e0000", "#347147", "#945aa2", "#c18433", "#2923a6", "#61204f")
"""A colour for each of several methods; grey is for axes and what is beaten."""
PROPERTIES = {INK: "--muted", GRID: "--grid", SERIES: "--series", CARD: "--card", GREY: "--floor"} | {
    colour: f"--run-{index}" for index, colour in enumerate(RUNS)
}

_mark: ContextVar[str] = ContextVar("mark", default="")
_width: ContextVar[float | None] = ContextVar("width", default=None)
MIN_WIDTH, MAX_WIDTH = 2.5, 20.0
"""Of a figure drawn for a given place, in inches: labels fit above the one, and no page is as wide as the other."""
_MIN_BESIDE = 6.0
"""Minimum width in inches of a figure whose lines have their names beside the axes, not above them (ours)."""
_MIN_PANEL = 2.6
"""Minimum width in inches of one of several panels, where a figure is drawn for a given place (ours)."""
_MARK_SIZE, _MARK_HEIGHT = 9.5, 0.22
"""Of the mark of a figure: in points, and the height of its line in inches."""

_PAGE = 10.4
"""Width of a page in inches of a figure."""
_LEGEND_SIZE = 8.5
"""Of the names in a legend, in points."""
_CAPTION_SIZE, _CAPTION_LINE, _CAPTION_INDENT = 8, 11, 7
"""Of a caption in a file, in points: size, height of a line, and distance from the left edge."""
_VIEW_BOX = re.compile(r'width="(?P<width>[\d.]+)pt" height="(?P<height>[\d.]+)pt" viewBox="[^"]*"')
"""The size of a figure in an SVG file of Matplotlib."""

_STYLE: Any = {
    "text.parse_math": False,  # a stratum's name may hold dollar signs
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "ytick.major.size": 0,
    "font.size": 9.5,
    "font.sans-serif": ["DejaVu Sans"],  # each text of an SVG names them all
    "figure.facecolor": "none",
    "lines.linewidth": 2,
    "lines.markersize": 4.5,
}
_PAPER_STYLE: Any = {"font.size": 8.5, "axes.titlesize": 8.5}
"""Changes of it where a figure has a given width: in a column of a paper."""


def or_nan(value: float | None) -> float:
    """Return NaN for a missing value, which leaves a gap in a line."""
    return float("nan") if value is None else value


def score_axis(axes: "Axes", score: Score) -> None:
    """Show a score's whole range on the vertical axis, a rate's as percentages; leave an unbounded one alone."""
    if score.rate:
        unit_axis(axes)
    elif score.low is not None and score.high is not None:
        margin = 0.02 * (score.high - score.low)
        axes.set_ylim(score.low - margin, score.high + margin)


def unit_axis(axes: "Axes") -> None:
    """Make the vertical axis one of fractions, shown as percentages."""
    axes.set_ylim(-0.02, 1.02)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])


def integer_axis(axes: "Axes") -> None:
    """Put the horizontal axis's ticks on whole numbers."""
    from matplotlib.ticker import MaxNLocator

    bins: Any = 10 if _width.get() is None else "auto"  # the default, or as many as there is room for
    axes.xaxis.set_major_locator(MaxNLocator(nbins=bins, integer=True, min_n_ticks=1))


def cost_axis(axes: "Axes", *, in_dollars: bool) -> None:
    """Label the horizontal axis's ticks with dollars, or with counts in k (thousands) and M (millions)."""
    from matplotlib.ticker import EngFormatter

    axes.xaxis.set_major_formatter("${x:g}" if in_dollars else EngFormatter(sep=" "))


def percent_axis(axes: "Axes") -> None:
    """Label the vertical axis's ticks, which are fractions, with percentages."""
    from matplotlib.ticker import PercentFormatter

    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))


def legend_above(axes: "Axes", panels: int = 1) -> None:
    """Name the lines above the axes, where no line runs through a name, in a figure that is higher by as much.

    panels: those that share the figure's width.
    """
    figure = axes.get_figure(root=True)
    handles, names = axes.get_legend_handles_labels()
    if figure is None or not names:
        return
    # in points: beside the numbers of the vertical axis; a line's sample, and the longest name
    room, sample, character = 72 * figure.get_figwidth() / fit_columns(panels) - 60, 42, 0.6 * _LEGEND_SIZE
    if _width.get() is not None:
        names = ["\n".join(wrap(" ".join(name.split()), max(int((room - sample) / character), 8))) for name in names]
    across = sample + character * max(len(line) for name in names for line in name.split("\n"))
    columns = min(max(int(room / across), 1), len(names))
    rows = -(-len(names) // columns) * (1 + max(name.count("\n") for name in names))
    figure.set_figheight(figure.get_figheight() + 1.4 * _LEGEND_SIZE / 72 * rows)
    place: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderpad": 0}
    axes.legend(handles, names, ncols=columns, frameon=False, fontsize=_LEGEND_SIZE, **place)


def draw_interval(axes: "Axes", x: float, ci95: tuple[float | None, float | None] | None, colour: str) -> None:
    """Draw a vertical interval at a place; nothing without both ends."""
    low, high = ci95 or (None, None)
    if low is not None and high is not None:
        axes.vlines(x, low, high, color=colour, alpha=0.45, linewidth=1.8)


def make_panels(figure: "Figure", number: int, columns: int = 3, **settings: Any) -> list["Axes"]:
    """Return axes side by side, at most `columns` in a row. settings: those of Matplotlib's `subplots`."""
    rows = count_rows(number, columns)
    grid = figure.subplots(rows, min(number, fit_columns(columns)), squeeze=False, **settings)
    for axes in grid.flat[number:]:
        axes.remove()
    return list(grid.flat[:number])


def count_rows(number: int, columns: int = 3) -> int:
    """Return the number of rows of a grid of panels."""
    return -(-number // fit_columns(columns))


def fit_columns(columns: int) -> int:
    """Return the number of panels in a row: fewer than wanted where a figure's given width has no room for them."""
    width = _width.get()
    return columns if width is None else max(1, min(columns, int(width / _MIN_PANEL)))


def choose_width(natural: float) -> float:
    """Return the width in inches of the next figure: the given one (`drawings_of_width`), else its natural one."""
    return _width.get() or natural


@contextmanager
def drawings_of_width(width: float | None) -> Iterator[None]:
    """Draw each figure meanwhile at a width in inches, such as a column's, and without its caption; None: as usual.

    Raises ConfigError for a width at which no figure can be read.
    """
    if width is not None and not MIN_WIDTH <= width <= MAX_WIDTH:
        raise ConfigError(f"width: expected inches from {MIN_WIDTH:g} to {MAX_WIDTH:g}, got {width:g}")
    token = _width.set(width)
    try:
        yield
    finally:
        _width.reset(token)


@contextmanager
def open_figure(width: float, height: float) -> Iterator["Figure"]:
    """Yield a figure that pyplot does not know, of the given size in inches; the width is `choose_width`'s."""
    import matplotlib
    from matplotlib.figure import Figure

    style = _STYLE if _width.get() is None else {**_STYLE, **_PAPER_STYLE}
    # a Figure of its own, since pyplot would keep a reference to it until the process ends
    with matplotlib.rc_context(style):
        yield Figure(figsize=(choose_width(width), height), layout="constrained")


@contextmanager
def marked_drawings(mark: str) -> Iterator[None]:
    """Write words such as "simulated" in the corner of each figure drawn meanwhile; no words, no mark."""
    token = _mark.set(mark)
    try:
        yield
    finally:
        _mark.reset(token)


@dataclass(frozen=True)
class Drawing:
    """A figure, drawn once: for a page, and for files of its own."""

    name: str
    """The files' name, without its ending."""
    inline: str
    """An SVG element with a text alternative, in the colours and fonts of the page around it."""
    bare: str
    """The same as a file that stands alone, on white, without its caption."""
    figure: "Figure"
    caption: str = ""
    """Stands below it in files; a page has it above, and a paper sets it itself."""
    points: Sequence[tuple[Any, ...]] = ()
    """Rows of the points that it shows, for a file; empty where tables have them."""
    has_given_width: bool = False
    """True where its files have exactly that width, and the caption is not in them."""

    def with_caption(self, *sentences: str) -> "Drawing":
        """Return the drawing with a caption of the sentences that are not empty."""
        said = [sentence(printable(part)).rstrip(".") + "." for part in sentences if part]
        return replace(self, caption=" ".join(said))

    @property
    def natural_width(self) -> int:
        """The width in rem below which a figure wider than a page cannot be read; 0 for others."""
        width = self.figure.get_figwidth()
        return int(3.6 * width) if width > _PAGE else 0

    @property
    def svg(self) -> str:
        """The same as a file that stands alone, on white, with its caption."""
        size, lines = _VIEW_BOX.search(self.bare), self._wrap_caption()
        if not lines or size is None:
            return self.bare
        width, height = float(size["width"]), float(size["height"])
        taller = f"{height + _CAPTION_LINE * (len(lines) + 0.5):g}"
        texts = "".join(
            f'<text x="{_CAPTION_INDENT}" y="{height + _CAPTION_LINE * number:g}" font-size="{_CAPTION_SIZE}" '
            f'font-family="DejaVu Sans, sans-serif" fill="{INK}">{escape(line)}</text>'
            for number, line in enumerate(lines, 1)
        )
        head = f'width="{width:g}pt" height="{taller}pt" viewBox="0 0 {width:g} {taller}"'
        drawn = self.bare.rstrip().removesuffix("</svg>").replace(size[0], head, 1)
        return f"{drawn}{texts}</svg>\n"

    def pdf(self) -> bytes:
        """Return the same as a PDF file, with the fonts that it needs."""
        settings = {"pdf.fonttype": 42}  # TrueType: journals refuse Matplotlib's own choice, Type 3
        return self._save("pdf", settings, dict.fromkeys(["Creator", "Producer", "CreationDate"]))

    def png(self) -> bytes:
        """Return the same as a PNG picture, on white, at 200 dots per inch."""
        return self._save("png", {"savefig.dpi": 200, "savefig.facecolor": "white"}, {"Software": None})

    def _save(self, format: str, settings: Mapping[str, Any], metadata: dict[str, Any]) -> bytes:
        buffer = io.BytesIO()
        lines = self._wrap_caption()
        left = _CAPTION_INDENT / 72 / self.figure.get_figwidth()
        said = self.figure.text(left, 0, "\n".join(lines), va="top", fontsize=_CAPTION_SIZE, color=INK)
        around = {"savefig.bbox": "tight", "savefig.pad_inches": 0.05} if lines else {}
        _save(self.figure, buffer, format, {**settings, **around}, metadata)
        said.remove()
        return buffer.getvalue()

    def _wrap_caption(self) -> list[str]:
        if self.has_given_width:
            return []
        return wrap(self.caption, int(72 * self.figure.get_figwidth() / (0.55 * _CAPTION_SIZE)))


def make_drawing(figure: "Figure", name: str, label: str) -> Drawing:
    """Return the drawing of a finished figure, the same for the same data; `label` is its text alternative.

    A figure without a label is a part of another one and has no mark.
    """
    has_given_width = _width.get() is not None
    if has_given_width:
        _wrap_labels(figure)
    if label and (mark := _mark.get()):
        if has_given_width:
            mark = "\n".join(wrap(mark, int(72 * figure.get_figwidth() / (0.6 * _MARK_SIZE))))
        figure.set_figheight(figure.get_figheight() + _MARK_HEIGHT * (1 + mark.count("\n")))
        figure.suptitle(mark, x=0.995, ha="right", fontsize=_MARK_SIZE, style="italic")
    buffer = io.StringIO()
    # a salt of its own for each figure keeps ids apart when several share a page
    settings = {"svg.hashsalt": f"evorun-{name}", "svg.fonttype": "none"}
    _save(figure, buffer, "svg", settings, dict.fromkeys(["Date", "Creator", "Format", "Type"]))
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    head = re.compile(r'^<svg\b[^>]*?viewBox="([^"]*)"[^>]*>')
    paper = '<rect width="100%" height="100%" fill="#ffffff"/>'
    alone = head.sub(lambda found: f"{found[0]}<title>{escape(label)}</title>{paper}", text)
    # without width and height the page's style sheet decides the size
    named = f'role="img" aria-label="{escape(label)}"'
    inline = head.sub(lambda found: f'<svg viewBox="{found[1]}" {named}>', text).replace("xlink:href", "href")
    inline = re.sub(
        r"\b(fill|stroke): (#[0-9a-f]{6})",
        lambda found: f"{found[1]}: var({PROPERTIES[found[2]]})" if found[2] in PROPERTIES else found[0],
        inline,
    )
    return Drawing(name, inline, alone, figure, has_given_width=has_given_width)


def _wrap_labels(figure: "Figure") -> None:
    """Break the labels of axes and the titles of panels into lines that their axes have room for."""
    for axes in figure.axes:
        if (spec := axes.get_subplotspec()) is None:  # a scale of colours
            continue
        rows, columns = spec.get_gridspec().nrows, spec.get_gridspec().ncols
        across, along = figure.get_figwidth() / columns - 0.6, figure.get_figheight() / rows - 0.6
        for place in ("left", "center"):
            axes.set_title(_wrap_lines(axes.get_title(loc=place), across), loc=place)
        axes.set_xlabel(_wrap_lines(axes.get_xlabel(), across))
        axes.set_ylabel(_wrap_lines(axes.get_ylabel(), along))


def _wrap_lines(text: str, inches: float) -> str:
    """Break each line of a label where it would be longer than so many inches."""
    characters = max(int(72 * inches / (0.6 * _PAPER_STYLE["font.size"])), 8)
    return "\n".join(line for whole in text.split("\n") for line in wrap(whole, characters) or [""])


def finish_drawing(axes: "Axes", name: str, title: str, labels: tuple[str, str], *, integers: bool = True) -> Drawing:
    """Label the axes of a figure, name its lines, and return the drawing.

    labels: of the horizontal and the vertical axis. integers: whether the horizontal one has whole numbers only.
    """
    if integers:
        integer_axis(axes)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    legend_above(axes)
    figure = axes.get_figure(root=True)
    assert figure is not None  # noqa: S101 - axes outside any figure cannot be drawn on
    return make_drawing(figure, name, title)


def _save(figure: "Figure", buffer: Any, format: str, settings: Any, metadata: dict[str, Any]) -> None:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # on a page the browser sets the text, in its own fonts; Matplotlib's font only measures it
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        # laid out once: saving a figure with a layout engine would draw it twice
        if layout := figure.get_layout_engine():
            layout.execute(figure)
            figure.set_layout_engine("none")
        if format == "svg":
            canvas: Any = FigureCanvasSVG(figure)
            canvas.print_svg(buffer, metadata=metadata)  # savefig would draw it twice
        else:
            figure.savefig(buffer, format=format, metadata=metadata)


_NAME_SIZE = 8.5
"""Of the names of lines, in points."""
_LINE_HEIGHT = 1.2 * _NAME_SIZE / 72
"""In inches."""
_MAX_CHARACTERS, _MAX_LINES = 34, 2
"""Maximum characters per line of a name, and lines; tables show the whole name."""
_LEADER: Mapping[str, Any] = {"arrowstyle": "-", "linewidth": 0.6, "alpha": 0.6, "shrinkA": 0}
_MIN_LEADER_X = 0.85
"""Share of the axes' width: a leader from an end before it would cross the figure and look like data."""


class LineEnd(NamedTuple):
    """The right end of a line, where its name stands."""

    x: float
    y: float
    name: str
    style: Mapping[str, Any]
    """Matplotlib's settings of the line."""


def wrap_name(name: str, characters: int = _MAX_CHARACTERS) -> str:
    """Break a name, which may be foreign, into the lines that it has beside or above a figure."""
    return "\n".join(wrap(printable(name), characters, max_lines=_MAX_LINES, placeholder=" …"))


def fit_name(name: str, natural: float, characters: int, beside: int) -> str:
    """Return a name for a line of a figure: shortened, or broken into lines where the figure has a given width.

    natural: the figure's width in inches. characters: the most at that width. beside: those of a text on the same line.
    """
    if _width.get() is None:
        return shorten(name, characters, placeholder=" …")
    room = 72 * (choose_width(natural) - 0.4) / (0.6 * _PAPER_STYLE["font.size"])
    return "\n".join(wrap(name, max(int(room) - beside, 8)))


def compute_names_height(names: Sequence[str]) -> float:
    """Return the minimum height in inches of axes beside which these names stand one below another."""
    return _LINE_HEIGHT * sum(name.count("\n") + 1.35 for name in names)


def names_stand_beside(natural: float) -> bool:
    """Tell whether a figure of that natural width in inches has room for the names of lines beside its axes."""
    return choose_width(natural) >= _MIN_BESIDE


def label_line_ends(axes: "Axes", ends: Sequence[LineEnd], height: float) -> None:
    """Write each line's name beside the axes, with its mark, as near to the height of its end as the room allows.

    A thin leader joins a name to an end near it. height: of the axes, in inches. Call this when the limits are final.
    In a narrow figure the names stand above the axes.
    """
    figure = axes.get_figure(root=True)
    if figure is not None and not names_stand_beside(figure.get_figwidth()):
        for end in ends:
            axes.plot([], [], label=end.name, **end.style)
        legend_above(axes)
        return
    if not ends:
        return
    low, high = axes.get_ylim()
    room = [_LINE_HEIGHT * (end.name.count("\n") + 1.35) / height for end in ends]
    wanted = [(end.y - low) / (high - low) for end in ends]
    order = sorted(range(len(ends)), key=lambda i: (wanted[i], -i))  # of equal ones the first is the highest
    places, bottom = dict.fromkeys(order, 0.0), 0.0
    for i in order:
        places[i] = max(wanted[i], bottom + room[i] / 2)
        bottom = places[i] + room[i] / 2
    top = max(1.0, sum(room))
    for i in reversed(order):
        places[i] = min(places[i], top - room[i] / 2)
        top = places[i] - room[i] / 2
    across = axes.transAxes
    at = (axes.transData - across).transform([(end.x, end.y) for end in ends])
    for i, end in enumerate(ends):
        look = {**end.style, "alpha": 1.0, "linewidth": 0.7, "clip_on": False, "markersize": 4.5}
        if at[i][0] > _MIN_LEADER_X:
            axes.annotate(
                "",
                (end.x, end.y),
                (1.02, places[i]),
                textcoords=across,
                annotation_clip=False,
                arrowprops={**_LEADER, "color": end.style["color"]},
            )
        axes.plot([1.02, 1.05, 1.08], [places[i]] * 3, transform=across, markevery=[1], **look)
        axes.text(1.1, places[i], end.name, transform=across, va="center", fontsize=_NAME_SIZE, linespacing=1.0)
