"""Score against cost: the arms that no other one beats in both, joined by a line."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from evorun.reports.comparison.comparison import Panel
from evorun.reports.comparison.plots import Style
from evorun.reports.comparison.rows import make_row
from evorun.reports.drawing import (
    GREY,
    Drawing,
    cost_axis,
    draw_interval,
    legend_above,
    make_drawing,
    open_figure,
    percent_axis,
    wrap_name,
)
from evorun.reports.text import label, name_score
from evorun.runs.printable import printable


class Place(NamedTuple):
    """An arm by its cost and its score."""

    cost: float
    utility: float
    """Greater is better."""


def find_front(places: Sequence[Place]) -> list[int]:
    """Return the places that no other one dominates, the cheapest first; of equal ones all.

    One dominates another that is no cheaper and no better, and worse in at least one of them.
    """
    order = sorted(range(len(places)), key=lambda index: (places[index].cost, -places[index].utility))
    front: list[int] = []
    for index in order:
        best = places[front[-1]] if front else None
        if best is None or places[index].utility > best.utility or places[index] == best:
            front.append(index)
    return front


def draw_front(panel: Panel, styles: Mapping[str, Style], name: str) -> tuple[str, Drawing] | None:
    """Draw each arm's final primary score against its price, else its tokens, per problem; return it with its caption.

    None below two arms, random baselines aside.
    """
    score = panel.primary
    rows = [(arm, make_row(arm)) for arm in panel.arms if not arm.is_baseline]
    known = [(arm, row) for arm, row in rows if row.get_metric(score.name).value is not None and "total" in row.cost]
    if len(known) < 2:
        return None
    totals = [row.cost["total"] for _, row in known]
    prices = [total.price for total in totals if total.price is not None]
    priced = len(prices) == len(totals)
    costs = prices if priced else [total.tokens for total in totals]
    metrics = [row.get_metric(score.name) for _, row in known]
    values = [metric.value for metric in metrics if metric.value is not None]
    front = find_front([Place(cost, score.utility(value)) for cost, value in zip(costs, values, strict=True)])
    with open_figure(6.6, 3.4) as figure:
        axes = figure.subplots()
        axes.plot([costs[i] for i in front], [values[i] for i in front], color=GREY, linewidth=1.2, zorder=1)
        for index, (arm, row) in enumerate(known):
            style = dict(styles[arm.name]) | {"linestyle": "none"}
            if index not in front:
                style["color"] = GREY
            draw_interval(axes, costs[index], row.get_interval(score.name), str(style["color"]))
            axes.plot(costs[index], values[index], **style, label=wrap_name(arm.label))
        axes.set_xlim(left=0, right=max(costs) * 1.05 or 1)
        cost_axis(axes, in_dollars=priced)
        if score.rate:
            percent_axis(axes)
        what = "price" if priced else "tokens"
        axes.set_xlabel(f"{what} per problem")
        axes.set_ylabel(label(score))
        legend_above(axes)
        title = f"{name_score(score).capitalize()} on {printable(panel.task)} against {what}: arms that none dominates"
        return f"Against {what}, all arms", make_drawing(figure, name, title)
