"""The figure of several generators: each model's responses, chosen or not, against the price of its calls."""

from pathlib import Path

import msgspec
import pytest

from building import simulated_run
from evorun.reports.generators import draw_generators
from evorun.reports.html import render_report
from evorun.runs.aggregates import AGGREGATES, Aggregates
from evorun.runs.schema import Metric, RoleCost
from evorun.runs.scores import ACCURACY


def test_each_model_stands_at_its_accuracy_and_price_or_its_tokens() -> None:
    figures = {"generate.0": Metric(0.25, (0.1, 0.4), 8), "generate.1": Metric(0.75, None, 4)}
    cost = {
        "generate.0": RoleCost(10, 60, 40, seconds=None, price=0.5),
        "generate.1": RoleCost(4, 60, 20, seconds=None, price=1.0),
    }
    names = {"generate.0": "small", "generate.1": "large"}

    def points() -> tuple[str, list[tuple[str, float, float]]]:
        drawn = draw_generators(figures, cost, names, ACCURACY)
        assert drawn is not None
        [axes] = drawn.figure.axes
        return axes.get_xlabel(), [
            (str(line.get_label()), float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in axes.get_lines()
        ]

    assert points() == ("price per call", [("small", 0.05, 0.25), ("large", 0.25, 0.75)])
    cost["generate.1"] = msgspec.structs.replace(cost["generate.1"], price=None)  # one price is unknown
    assert points() == ("tokens per call", [("small", 10, 0.25), ("large", 20, 0.75)])
    assert draw_generators({"generate.0": figures["generate.0"]}, cost, names, ACCURACY) is None


def test_a_run_counts_the_responses_of_each_generator(tmp_path: Path) -> None:
    words = ("method=ab_mcts", "task=mathbench", "task.source=sample", "task.limit=4", "method.nodes=6")
    run = simulated_run(
        tmp_path / "run",
        *words,
        "generator=[qwen2_5_7b,policy]",
        "generator_engine=[{name:simulated,skill:0.3},policy]",
    )
    counted = msgspec.json.decode((run.path / AGGREGATES).read_bytes(), type=Aggregates).by_generator
    for role in ("generate.0", "generate.1"):
        right = [record["correct"] for record in run.records("candidates") if f"|{role}|" in (record["call"] or "")]
        assert counted[role].value == pytest.approx(sum(map(bool, right)) / len(right))
        assert counted[role].n == len(right)
    assert "Responses of each model against their cost" in render_report(run.path)
