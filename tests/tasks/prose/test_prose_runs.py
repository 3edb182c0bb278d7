"""Whole runs with simulated models: what is rewarded, what is graded, and who gets to see what is right."""

import re
from pathlib import Path

import pytest

from building import composed, load_task, simulated_run
from evorun.errors import ConfigError
from evorun.runner.settings import check
from evorun.simulation.reviewing import ITEMS, META_ROLES
from evorun.tasks.billsum.rouge import MEASURES
from evorun.testing.runs import COMPLETED

MPO = (
    *("method=mpo", "method.steps=2", "method.problems_per_step=3", "method.refine_every=1"),
    *("method.refine_samples=2", "method.eval_samples=1", "task.source=sample", "task.limit=1"),
)


def test_references_are_for_grades_alone(tmp_path: Path) -> None:
    """The simulated model knows them, the random one does not: what it is shown is all that could hold one."""
    run = simulated_run(tmp_path / "run", *MPO, "task=billsum", "model=random")
    assert run.outcome == COMPLETED
    asked = {request.hints["role"] for request in run.asked}
    assert {"score", *META_ROLES} - {ITEMS} <= asked  # items are those of method=rler
    shown = "\n".join(message["content"] for request in run.asked for message in request.messages)
    references = load_task("billsum", source="sample", split="train").answers.values()
    assert "School Orchard Act" in shown
    assert not any(reference[:60] in shown for reference in references)
    assert run.json("manifest.json")["regime"] == "problem_only"
    metrics = run.json("results.json")["metrics"]
    assert set(MEASURES) <= metrics.keys()
    assert 0 < metrics["rouge1"]["value"] < 1


@pytest.mark.parametrize(("settings", "told"), [((), True), (("model=random",), False)])
def test_a_run_says_where_a_simulated_model_is_worse_than_random(
    settings: tuple[str, ...], told: bool, tmp_path: Path
) -> None:
    few = ("method=zero_shot", "task=billsum", "task.source=sample", "engine.skill=0.1")
    simulated_run(tmp_path / "run", *few, *settings)
    log = (tmp_path / "run" / "evorun.log").read_text()
    assert bool(re.search(r"simulated answers score [.\d]+ \(rouge1\) .* those of model=random [.\d]+", log)) is told


@pytest.mark.parametrize("method", ["gepa", "espl", "ppo"])
def test_no_method_learns_from_an_opinion_that_is_kept_for_results(method: str) -> None:
    with pytest.raises(ConfigError, match=r"(task=essay|judge's opinion).*(rubric|another task)"):
        check(composed(f"method={method}", "task=essay", "task.source=sample", "engine=simulated"))


def test_an_opinion_costs_no_method_anything(tmp_path: Path) -> None:
    run = simulated_run(tmp_path / "run", *MPO, "task=essay")
    results = run.json("results.json")
    spent = sum(cost["calls"] for role, cost in results["cost"].items() if role not in ("gold", "total"))
    assert results["cost"]["total"]["calls"] == spent
    assert results["cost"]["gold"]["calls"] > 0
    assert 0 <= results["metrics"]["rubric"]["value"] <= 1
    assert run.json("manifest.json")["regime"] == "problem_only"
