"""The names of lines at their right ends, where a reader looks for them."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from evorun.runs.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAME_SIZE = 8.5
"""Of the names of lines, in points."""
_LINE_HEIGHT = 1.2 * _NAME_SIZE / 72
"""In inches."""
_CHARACTERS, _LINES = 34, 2
"""Of a name: so many characters a line, and so many lines; tables have it whole."""


_LEADER: Mapping[str, Any] = {"arrowstyle": "-", "linewidth": 0.6, "alpha": 0.6, "shrinkA": 0}
_LED = 0.85
"""Of the axes' width: from ends before it a leader would cross the figure and look like data."""


class End(NamedTuple):
    """The right end of a line, where its name stands."""

    x: float
    y: float
    name: str
    style: Mapping[str, Any]
    """Matplotlib's settings of the line."""


def in_lines(name: str, characters: int = _CHARACTERS) -> str:
    """Break a name, which may be foreign, into the lines that it has beside or above a figure."""
    return "\n".join(wrap(printable(name), characters, max_lines=_LINES, placeholder=" …"))


def height_of_names(names: Sequence[str]) -> float:
    """Return the least height in inches of axes beside which names, each of so many lines, stand one below another."""
    return _LINE_HEIGHT * sum(name.count("\n") + 1.35 for name in names)


def name_ends(axes: "Axes", ends: Sequence[End], height: float) -> None:
    """Write the names of lines beside the axes, each with its mark, at the height of its end or as near as room allows.

    A thin leader joins a name to an end near it.

    height: of the axes, in inches. Call it when the limits are final.
    """
    if not ends:
        return
    low, high = axes.get_ylim()
    room = [_LINE_HEIGHT * (end.name.count("\n") + 1.35) / height for end in ends]
    wanted = [(end.y - low) / (high - low) for end in ends]
    order = sorted(range(len(ends)), key=lambda i: wanted[i])
    places, floor = dict.fromkeys(order, 0.0), 0.0
    for i in order:
        places[i] = max(wanted[i], floor + room[i] / 2)
        floor = places[i] + room[i] / 2
    ceiling = max(1.0, sum(room))
    for i in reversed(order):
        places[i] = min(places[i], ceiling - room[i] / 2)
        ceiling = places[i] - room[i] / 2
    across = axes.transAxes
    at = (axes.transData - across).transform([(end.x, end.y) for end in ends])
    for i, end in enumerate(ends):
        look = {**end.style, "alpha": 1.0, "linewidth": 0.7, "clip_on": False, "markersize": 4.5}
        if at[i][0] > _LED:
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
