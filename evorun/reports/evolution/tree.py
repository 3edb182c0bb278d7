"""The evolutionary tree of the candidates that serve all problems (E-SPL paper, figure 3)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evorun.reports.drawing import CARD, INK, Drawing, choose_width, make_drawing, open_figure
from evorun.reports.population import Population, parse_key
from evorun.runs.printable import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NODE = "prompt-"
"""Prefix of a node's element id, before the position of its candidate. The page's script finds nodes by it."""

_SIZES = {True: (9, 1.8), False: (6, 0.6)}
"""Of kept and of dropped nodes: the size of the mark and the width of its outline, in points."""
_SOLID: Any = "-"
_DASHED: Any = (0, (4, 2))
_MARK, _NAME_SIZE = 7.5, 9.5
"""Half the width of a mark with the page's ring around the chosen one, and the font size of a name, in points."""
_Place = tuple[float, float, str, str]
"""Offset from a node in points, and the horizontal and vertical alignment of a name."""
_Box = tuple[float, float, float, float]
"""Left, low, right, high."""
_GAP = _MARK + 2
_PLACES: Sequence[_Place] = (
    (0, _GAP, "center", "bottom"),
    (0, -_GAP, "center", "top"),
    (_GAP, 0, "left", "center"),
    (-_GAP, 0, "right", "center"),
    (_GAP / 2, 1.6 * _GAP, "left", "bottom"),
    (_GAP / 2, -1.6 * _GAP, "left", "top"),
    (-_GAP / 2, 1.6 * _GAP, "right", "bottom"),
    (-_GAP / 2, -1.6 * _GAP, "right", "top"),
)
"""Possible places of a name, the best first."""
_LEVELS = 12
"""Colours of ratings; a finer scale would be drawn as an image."""


def assign_lanes(parents: Sequence[Sequence[int]], room: Sequence[float]) -> list[float]:
    """Return a vertical position per node of a forest: leaves in a row, inner nodes in the middle of their children.

    parents: positions of each node's parents, all before it. The first is its parent in the tree, so that no two edges
    of the tree cross. room: the height of each node, used if it is a leaf.
    """
    children: list[list[int]] = [[] for _ in parents]
    for node, own in enumerate(parents):
        if own:
            children[own[0]].append(node)
    found, end = [0.0] * len(parents), 0.0
    waiting = [node for node, own in enumerate(parents) if not own][::-1]
    while waiting:  # depth first; a long lineage is deeper than Python's stack
        node = waiting.pop()
        waiting += children[node][::-1]
        if not children[node]:
            found[node] = end + room[node] / 2
            end += room[node]
    for node in reversed(range(len(parents))):  # children follow their parents
        if children[node]:
            found[node] = (found[children[node][0]] + found[children[node][-1]]) / 2
    return found


def draw_tree(population: Population, step: str) -> Drawing:
    """Draw the tree by step: ratings by colour, kept nodes larger, operators by line and shape.

    step: the word for the steps.
    """
    from matplotlib.ticker import MaxNLocator

    members, parents = population.members, population.parents
    # A node that was dropped without a rating needs no room for a name.
    ys = assign_lanes(parents, [0.4 if member.mean is None and not member.survivor else 1.0 for member in members])
    extent = max(ys) + 0.5
    columns = 1 + max(member.generation for member in members) - min(member.generation for member in members)
    width = min(max(10.4, 0.07 * columns), 40)  # inches: neighbours in a long lineage must not cover one another
    height = 1.5 + extent * min(0.24, max(0.12, 6 / extent))
    width = choose_width(width)
    with open_figure(width, height) as figure:
        axes = figure.subplots()
        points = [(float(member.generation), y) for member, y in zip(members, ys, strict=True)]
        _edges(axes, points, parents)
        colours = _nodes(axes, population, points)
        names: dict[int, list[str]] = {}
        for node, own in enumerate(parents):
            if not own:
                key = parse_key(members[node].id) if members[node].kind == "rubric" else ""
                names.setdefault(node, []).append(printable(key[:24]) or "root")
        if population.best is not None:
            names.setdefault(population.best, []).append("best")
        names.setdefault(population.latest, []).append("latest")
        # Up to the tick beyond the last step: an axis that ends before it looks cut off.
        ticks = MaxNLocator(integer=True, min_n_ticks=1).tick_values(*(end(x for x, _ in points) for end in (min, max)))
        ends = [max(ticks[0], points[0][0]), ticks[-1]]
        margin = 0.03 * max(ends[1] - ends[0], 1)
        axes.set_xticks([tick for tick in ticks if tick >= ends[0]])
        axes.set_xlim(ends[0] - margin, ends[1] + margin)
        axes.set_ylim(extent + 0.3, -0.7)
        axes.set_yticks([])
        axes.grid(visible=False)
        axes.set_xlabel(step)
        scale = 72 * 0.9 * width / (ends[1] - ends[0] + 2 * margin), 72 * (height - 1.2) / (extent + 1)
        _name(axes, {node: ", ".join(words) for node, words in names.items()}, points, scale)
        _legend(axes, population, columns=max(1, min(5, int(width / 1.8))))
        if colours is not None:
            bar = figure.colorbar(colours, ax=axes, fraction=0.02, pad=0.01, aspect=14, shrink=min(1.0, 2.2 / height))
            bar.set_label("rating")
            bar.outline.set_visible(False)
        return make_drawing(figure, "tree", f"Evolutionary tree of {population.kinds} by {step}")


def _name(
    axes: "Axes", names: Mapping[int, str], points: Sequence[tuple[float, float]], scale: tuple[float, float]
) -> None:
    """Write names beside their nodes, if possible where they cover no mark and no other name.

    scale: approximate points of the figure per unit of each axis.
    """
    places = [(x * scale[0], -y * scale[1]) for x, y in points]  # upwards, as offsets are
    taken = [(x - _MARK, y - _MARK, x + _MARK, y + _MARK) for x, y in places]
    for node, name in names.items():
        size = 0.62 * _NAME_SIZE * len(name), 1.2 * _NAME_SIZE
        boxes = {place: _box(places[node], size, place) for place in _PLACES}
        best = min(boxes, key=lambda place: sum(_overlap(boxes[place], other) for other in taken))
        taken.append(boxes[best])
        dx, dy, across, along = best
        axes.annotate(name, points[node], (dx, dy), textcoords="offset points", ha=across, va=along, color=INK)


def _box(at: tuple[float, float], size: tuple[float, float], place: _Place) -> _Box:
    """Return the box of a name of the given size at a place beside a node."""
    (x, y), (wide, high), (dx, dy, across, along) = at, size, place
    left = x + dx - {"left": 0, "center": wide / 2, "right": wide}[across]
    low = y + dy - {"bottom": 0, "center": high / 2, "top": high}[along]
    return left, low, left + wide, low + high


def _overlap(first: _Box, second: _Box) -> float:
    """Return the common area of two boxes."""
    across = min(first[2], second[2]) - max(first[0], second[0])
    along = min(first[3], second[3]) - max(first[1], second[1])
    return max(across, 0.0) * max(along, 0.0)


def _edges(axes: "Axes", points: Sequence[tuple[float, float]], parents: Sequence[Sequence[int]]) -> None:
    """Draw a line from each parent: solid from a single parent, dashed from several, thin except from the first."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    codes = [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4]
    for node, own in enumerate(parents):
        for order, parent in enumerate(own):
            (x0, y0), (x1, y1) = points[parent], points[node]
            middle = (x0 + x1) / 2
            axes.add_patch(
                PathPatch(
                    Path([(x0, y0), (middle, y0), (middle, y1), (x1, y1)], codes),
                    fill=False,
                    edgecolor=INK,
                    linewidth=1.2 if order == 0 else 0.7,
                    linestyle=_SOLID if len(own) == 1 else _DASHED,
                    zorder=1,
                )
            )


def _nodes(axes: "Axes", population: Population, points: Sequence[tuple[float, float]]) -> Any:
    """Draw each node as a separate element and return the scale of their colours; None without ratings."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    means = [member.mean for member in population.members if member.mean is not None]
    scale: Any = (
        ScalarMappable(Normalize(min(means), max(means)), colormaps["viridis"].resampled(_LEVELS)) if means else None
    )
    for index, (member, (x, y)) in enumerate(zip(population.members, points, strict=True)):
        axes.plot(
            [x],
            [y],
            marker=_marker(len(population.parents[index])),
            markersize=_SIZES[member.survivor][0],
            markerfacecolor=CARD if member.mean is None or scale is None else scale.to_rgba(member.mean),
            markeredgecolor=INK,
            markeredgewidth=_SIZES[member.survivor][1],
            linestyle="none",
            gid=f"{NODE}{index}",
        )
    return scale


def _marker(parents: int) -> str:
    return "s" if parents == 0 else "o" if parents == 1 else "D"


def _legend(axes: "Axes", population: Population, columns: int) -> None:
    from matplotlib.lines import Line2D

    made = list(zip(population.members, population.parents, strict=True))
    nodes: Any = {"markerfacecolor": CARD, "markeredgecolor": INK, "color": INK, "linewidth": 1.2}
    lines = {"root": Line2D([], [], marker="s", linestyle="none", markersize=8, **nodes)}
    for parents, style in ((1, _SOLID), (2, _DASHED)):
        names = dict.fromkeys(member.operator for member, own in made if own and (len(own) > 1) == (parents > 1))
        if names:
            shown = printable(", ".join(names))[:40]
            lines[shown] = Line2D([], [], marker=_marker(parents), linestyle=style, markersize=7, **nodes)
    for name, (size, edge) in _SIZES.items():
        label = "kept" if name else "dropped"
        lines[label] = Line2D([], [], marker="o", linestyle="none", markersize=size, markeredgewidth=edge, **nodes)
    place: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1)}
    axes.legend(lines.values(), lines.keys(), ncols=columns, frameon=False, borderpad=0, **place)
