"""Reads figures back from a page as a reader does: positions by the ticks beside them, series by their lines."""

import re
from dataclasses import dataclass, field
from html import escape
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

SVG = "{http://www.w3.org/2000/svg}"
UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "m": 1e-3, "µ": 1e-6, "%": 0.01}
_NUMBERED = re.compile(r"matplotlib\.axis_\d+")
_NUMBER = re.compile(r"([-\u2212]?[\d.]+)\s*(\D?)")
Series = list[tuple[float, float]]


@dataclass
class Panel:
    """A pair of axes."""

    x: str
    """The label of the horizontal axis; so is `y`."""
    y: str
    title: str
    lines: list[Series] = field(default_factory=list)
    """In units of the axes; a mark alone is a line of one point."""
    bars: list[tuple[float, float, float, float]] = field(default_factory=list)
    """Intervals: the ends of straight lines, x and y of the one, then of the other."""
    areas: list[Series] = field(default_factory=list)
    """Outlines of bands."""
    patches: list[Series] = field(default_factory=list)
    """Bars of values, and the frame."""
    named: dict[str, Series] = field(default_factory=dict)
    """Those with an id of their own."""


def panels_of(html: str, label: str) -> list[Panel]:
    """Return the panels of the page's figure with that text alternative."""
    (svg,) = re.findall(rf'<svg [^>]*aria-label="{re.escape(escape(label))}".*?</svg>', html, re.DOTALL)
    root = ET.fromstring(svg.replace("<svg ", f'<svg xmlns="{SVG[1:-1]}" ', 1))
    axes = [g for g in root.iter(f"{SVG}g") if re.fullmatch(r"axes_\d+", g.get("id", ""))]
    # of panels that share an axis, the lowest one has the labels of the horizontal one, the first those of the other
    shared = {"x": _axis(axes[-1], "x")[1], "y": _axis(axes[0], "y")[1]}
    return [_panel(group, shared) for group in axes]


def _panel(group: ET.Element, shared: dict[str, Any]) -> Panel:
    scales, labels = {}, {}
    for name in "xy":
        labels[name], own = _axis(group, name)
        scales[name] = own or shared[name] or float  # an axis of names has no numbers at all
    titles = [t.text or "" for g in group if g.get("id", "").startswith("text") for t in g.iter(f"{SVG}text")]
    panel = Panel(labels["x"], labels["y"], titles[0] if titles else "")
    for part in group:
        name = part.get("id", "")
        points = _vertices(part)
        if points is None or name.startswith(("matplotlib", "legend", "text")):
            continue
        if name.startswith("patch"):
            panel.patches.append([(scales["x"](x), scales["y"](y)) for x, y in points])
            continue
        series = [(scales["x"](x), scales["y"](y)) for x, y in points]
        panel.named[name] = series
        if name.startswith("LineCollection"):
            ends = [[(scales["x"](x), scales["y"](y)) for x, y in line] for line in _outlines(part)]
            panel.bars += [(*line[0], *line[-1]) for line in ends]
        elif re.fullmatch(r".*-band|FillBetween.*|PolyCollection.*", name):
            panel.areas += [[(scales["x"](x), scales["y"](y)) for x, y in area] for area in _outlines(part)]
        else:
            panel.lines.append(series)
    return panel


def _outlines(part: ET.Element) -> list[Any]:
    """Return the vertices of each path, in its place: one that is defined once is used where it belongs."""
    defined = {name: path for defs in part.iter(f"{SVG}defs") for path in defs if (name := path.get("id"))}
    found = [_points(path) for path in part.iter(f"{SVG}path") if path.get("id") not in defined]
    for use in part.iter(f"{SVG}use"):
        path = defined[use.get("{http://www.w3.org/1999/xlink}href", use.get("href", "")).removeprefix("#")]
        found.append(_points(path) + [float(use.get(axis, 0)) for axis in "xy"])
    return found


def _points(path: ET.Element) -> Any:
    return np.array([float(v) for v in re.findall(r"-?[\d.]+", path.get("d", ""))]).reshape(-1, 2)


def _axis(group: ET.Element, name: str) -> tuple[str, Any]:
    """Return an axis's label, and the map from positions to values; None without labelled ticks."""
    odd = name == "x"
    axis = next(g for g in group if _NUMBERED.match(g.get("id", "")) and int(g.get("id", "")[-1]) % 2 == odd)
    ticks = []
    for tick in axis:
        text = "".join(text.text or "" for text in tick.iter(f"{SVG}text"))
        if tick.get("id", "").startswith(f"{name}tick") and text and _place(tick):
            ticks.append((_place(tick)["xy".index(name)], text))
    if not all(_NUMBER.fullmatch(text.strip()) for _, text in ticks):  # names stand at 0, 1, 2, ...
        ticks = [(place, str(number)) for number, (place, _) in enumerate(ticks)]
    label = [text.text or "" for g in axis if g.get("id", "").startswith("text") for text in g.iter(f"{SVG}text")]
    return "".join(label), _scale([(place, _value(text)) for place, text in ticks]) if ticks else None


def _place(tick: ET.Element) -> Any:
    """Return where a tick stands, by its grid line or its mark."""
    for path in tick.iter(f"{SVG}path"):
        if not any(path is inner for defs in tick.iter(f"{SVG}defs") for inner in defs):
            x, y = re.findall(r"-?[\d.]+", path.get("d", ""))[:2]
            return float(x), float(y)
    mark = next(tick.iter(f"{SVG}use"), None)
    return None if mark is None else (float(mark.get("x", 0)), float(mark.get("y", 0)))


def _value(text: str) -> float:
    found = _NUMBER.fullmatch(text.strip())
    assert found, text
    return float(found[1].replace("\u2212", "-")) * UNITS[found[2]]


def _scale(ticks: list[tuple[float, float]]) -> Any:
    """Return the map from positions to values that all ticks are on: straight, or straight in the logarithm."""
    positions, values = np.array(sorted(ticks)).T
    straight = np.polynomial.Polynomial.fit(positions, values, 1) if len(ticks) > 1 else None
    if straight is not None and np.allclose(straight(positions), values, atol=1e-3 * np.ptp(values)):
        return lambda at: float(straight(at))
    if straight is None:
        return lambda at: float(values[0]) if abs(at - positions[0]) < 1e-6 else float("nan")
    logs = np.polynomial.Polynomial.fit(positions, np.log(values), 1)
    assert np.allclose(logs(positions), np.log(values), atol=1e-3), ticks
    return lambda at: float(np.exp(logs(at)))


def _vertices(part: ET.Element) -> Any:
    defined = {id(inner) for defs in part.iter(f"{SVG}defs") for inner in defs}
    for path in part.iter(f"{SVG}path"):
        if id(path) not in defined:
            return _points(path)
    marks = [(float(use.get("x", 0)), float(use.get("y", 0))) for use in part.iter(f"{SVG}use")]
    return np.array(marks) if marks else None
