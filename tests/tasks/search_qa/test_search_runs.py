"""Whole runs on the sample with simulated models: searches go through the journal, and methods see them."""

import json
from pathlib import Path

import pytest

from building import simulated_run
from evorun.errors import ConfigError
from evorun.tasks.search_qa.retrieval.bm25 import Bm25
from evorun.testing.runs import COMPLETED

TASK = ("task=search_qa", "task.source=sample", "task.limit=3")


def test_a_resumed_run_searches_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = simulated_run(tmp_path / "run", *TASK, "method=self_consistency", "method.samples=3")
    assert done.outcome == COMPLETED
    tools = [json.loads(result) for key, _, result, usage, _ in done.effects() if usage is None and "-tools|" in key]
    assert sum(bool(answers) for answers in tools) >= 9  # at least one search a response
    assert any("Passages for: " in answers[0]["content"] for answers in tools if answers)
    # The end of the run is cut off, as by a kill, and run again where no search works.
    (tmp_path / "run" / "results.json").unlink()
    monkeypatch.setattr(Bm25, "find", None)
    again = simulated_run(tmp_path / "run", *TASK, "method=self_consistency", "method.samples=3")
    assert (again.outcome, again.asked) == (COMPLETED, [])
    assert again.files() == done.files()


def test_gepas_reflection_sees_what_was_searched_and_found(tmp_path: Path) -> None:
    run = simulated_run(tmp_path / "run", *TASK, "method=gepa", "method.generations=2", "method.minibatch=2")
    reflections = [request for request in run.asked if request.hints.get("role") == "reflect"]
    assert reflections
    for request in reflections:
        shown = request.messages[-1]["content"]
        assert '<tool_call>{"name":"search"' in shown
        assert "Passages for: " in shown
        assert "\nAnswer: " in shown


def test_a_budget_below_one_response_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^budget: expected at least 5 calls per problem, .* got 4; raise"):
        simulated_run(tmp_path / "run", *TASK, "method=zero_shot", "budget.calls_per_problem=4")


def test_a_share_of_the_budget_pays_for_responses_of_several_turns(tmp_path: Path) -> None:
    run = simulated_run(tmp_path / "run", *TASK, "method=best_of_n", "budget.calls_per_problem=60", "method.rounds=0")
    spent = [one["cost"]["generate"]["calls"] for one in run.records("predictions")]
    # A fifth of 60 calls: two responses at least, whose turns fit.
    assert all(4 <= calls <= 12 for calls in spent)


def test_a_model_that_answers_at_random_runs_on_it(tmp_path: Path) -> None:
    run = simulated_run(tmp_path / "run", *TASK, "method=zero_shot", "model=random")
    assert run.outcome == COMPLETED
    assert run.json("results.json")["metrics"]["format"]["value"] == 1.0
