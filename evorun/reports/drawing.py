"""The common parts of all figures: the page's colours and fonts, axes of scores and generations, inline SVG.

Colours and fonts are the page's, so that a figure follows its light or dark scheme.
"""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from evorun.runs.scores import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Matplotlib knows no custom properties: it draws with these placeholders, which become properties of the page's style
# sheet in the SVG.
INK, GRID, SERIES, CARD = "#010101", "#020202", "#030303", "#050505"
RUNS = tuple(f"#04{index:02x}04" for index in range(8))
"""A colour for each of several runs."""
_PROPERTIES = {INK: "var(--muted)", GRID: "var(--grid)", SERIES: "var(--series)", CARD: "var(--card)"} | {
    colour: f"var(--run-{index})" for index, colour in enumerate(RUNS)
}

_STYLE: Any = {
    "svg.fonttype": "none",
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
    "figure.facecolor": "none",
    "lines.linewidth": 2,
    "lines.markersize": 4.5,
}

XAxis = Literal["step", "calls", "tokens"]
X_LABELS: dict[XAxis, str] = {"step": "generation", "calls": "calls per problem", "tokens": "tokens per problem"}


def number(value: float | None) -> float:
    """Return NaN for a missing value: it leaves a gap in a line."""
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

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


@contextmanager
def figure_of(width: float, height: float) -> Iterator["Figure"]:
    """Yield a figure of the given size in inches that pyplot does not know of."""
    import matplotlib
    from matplotlib.figure import Figure

    # a Figure of its own, since pyplot would keep a reference to it until the process ends
    with matplotlib.rc_context(_STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def svg_of(figure: "Figure", name: str, label: str) -> str:
    """Return an SVG element with a text alternative, the same for the same data."""
    import matplotlib

    buffer = io.StringIO()
    # A salt of its own for each figure keeps ids apart when several share a page.
    with matplotlib.rc_context({"svg.hashsalt": f"evorun-{name}"}), warnings.catch_warnings():
        # The browser sets the text, in its own fonts; Matplotlib's font only measures it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        # laid out once: saving a figure with a layout engine would draw it twice
        if layout := figure.get_layout_engine():
            layout.execute(figure)
            figure.set_layout_engine("none")
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(["Date", "Creator", "Format", "Type"]))
    text = buffer.getvalue()
    svg = text[text.index("<svg") :]
    # without width and height the page's style sheet decides the size
    role = f'role="img" aria-label="{escape(label)}"'
    svg = re.sub(r'^<svg\b[^>]*?viewBox="([^"]*)"[^>]*>', lambda head: f'<svg viewBox="{head[1]}" {role}>', svg)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL).replace("xlink:href", "href")
    for colour, custom_property in _PROPERTIES.items():
        svg = svg.replace(colour, custom_property)
    return svg
