"""Score against cost: the arms that no other one dominates, by brute force, and the axes of cost."""

import json
from pathlib import Path

import pytest
from comparison_fixture import write_method
from hypothesis import given
from hypothesis import strategies as st

from evorun.reports.comparison.comparison import compare
from evorun.reports.comparison.figures import make_figures
from evorun.reports.comparison.pareto import Place, find_front

PLACES = st.lists(st.builds(Place, st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12)


def dominates(one: Place, other: Place) -> bool:
    return one != other and one.cost <= other.cost and one.utility >= other.utility


@given(places=PLACES)
def test_the_front_holds_exactly_those_that_no_other_dominates(places: list[Place]) -> None:
    front = find_front(places)
    expected = [i for i, place in enumerate(places) if not any(dominates(other, place) for other in places)]
    assert sorted(front) == expected
    costs = [places[i].cost for i in front]
    assert costs == sorted(costs)


def test_a_comparison_is_drawn_against_price_and_sequential_tokens_where_all_runs_have_them(tmp_path: Path) -> None:
    rate = {"prompt": 1.0, "completion": 2.0, "date": "2026-01-02", "source": "a list"}
    cheap = write_method(tmp_path / "cheap", [True, False], prices={"policy": rate})
    dear = write_method(
        tmp_path / "dear", [True, True], method="best_of_n", calls={"generate": 9}, prices={"policy": rate}
    )
    for run in (cheap, dear):
        points = [json.loads(line) for line in (run / "metrics.jsonl").open()]
        priced = [point | {"price": point["tokens"] / 1e6, "sequential_tokens": 10.0} for point in points]
        (run / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in priced))
    compared = compare([cheap, dear])
    captions = [figure.caption for figures in make_figures(compared).curves.values() for figure in figures]
    assert captions == [
        "By generation",
        "Against model calls",
        "Against tokens",
        "Against price",
        "Against sequential tokens",
    ]
    assert [figure.caption for figure in make_figures(compared).finals][1] == "Accuracy against price, all arms"
    prices = [row.cost["total"].price for row in compared.rows]
    assert prices == [pytest.approx(9 * 120e-6), pytest.approx(120e-6)]  # a call: 100 tokens at 1, 10 at 2 dollars
    unpriced = write_method(tmp_path / "local", [True, True], method="few_shot")
    compared = compare([cheap, dear, unpriced])
    assert set(compared.axes) == {"step", "calls", "tokens"}
    assert [figure.caption for figure in make_figures(compared).finals][1] == "Accuracy against tokens, all arms"
    assert [row.cost["total"].price is None for row in compared.rows] == [False, True, False]
