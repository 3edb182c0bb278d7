"""Whole runs on the sample with simulated models: searches go through the journal, and methods see them."""

import json
from collections import Counter
from pathlib import Path

import pytest

import evorun
from building import simulated_run
from evorun.cli.status_table import status_line
from evorun.errors import ConfigError
from evorun.reports.browser import load_browser
from evorun.reports.overview import load_outcome
from evorun.reports.run_tables import make_cost_table
from evorun.runs.job_states import look_at
from evorun.runs.reading import read_steps_without_texts
from evorun.tasks.search_qa.retrieval.bm25 import Bm25
from evorun.testing.runs import COMPLETED
from evorun_process import evorun_here

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


@pytest.mark.nightly
def test_tool_calls_are_counted_in_all_costs_and_alike_on_a_resume(tmp_path: Path) -> None:
    words = (*TASK, "method=best_of_n", "method.samples=3", "method.rounds=1")
    done = simulated_run(tmp_path / "run", *words)
    said = [result for key, _, result, usage, _ in done.effects() if usage is None and "-tools|" in key]
    used = sum(result != b"[]" for result in said)
    assert 9 <= used < len(said)  # a response's last turn uses no tool
    cost = done.json("results.json")["cost"]
    assert (cost["generate"]["tool_calls"], cost["total"]["tool_calls"]) == (used, used)
    assert "tool_calls" not in cost["judge"]
    assert sum(one["cost"]["generate"]["tool_calls"] for one in done.records("predictions")) == used
    run = evorun.load(tmp_path / "run")
    assert run.calls().groupby("role")["tool_calls"].sum().to_dict() == {"generate": used, "judge": 0}
    assert run.costs().set_index("role")["tool_calls"].to_dict() == {"generate": used, "judge": 0, "total": used}
    status = look_at(tmp_path / "run", "run")
    assert status.tool_calls == used
    assert f"{used} tool calls" in status_line(status)
    assert make_cost_table(load_outcome(tmp_path / "run")).fields[:3] == ("role", "calls", "tool_calls")
    other = simulated_run(tmp_path / "other", *TASK, "method=zero_shot").json("results.json")["cost"]["total"]
    arms = evorun.compare(tmp_path).arms().set_index("run")["tool_calls_per_problem"]
    expected = {"best_of_n": used / 3, "zero_shot": other["tool_calls"] / 3}
    assert arms.to_dict() == pytest.approx(expected)
    # The end of the run is cut off, as by a kill.
    (tmp_path / "run" / "results.json").unlink()
    before, calls = done.files(), cost["total"]["calls"]
    again = evorun_here("engine=simulated", "evorun.progress=off", *words, "hydra.run.dir=run", cwd=tmp_path)
    assert f"{calls} calls and {used} tool calls came from the journal, 0 and 0 are new" in again.stdout
    assert done.files() == before


def test_a_report_shows_a_candidates_turns_and_the_tools_answers(tmp_path: Path) -> None:
    run = simulated_run(tmp_path / "run", *TASK, "method=best_of_n", "method.samples=2", "method.rounds=1")
    counts = Counter(one["problem"] for one in run.records("candidates"))
    steps, measure = read_steps_without_texts(tmp_path / "run"), load_outcome(tmp_path / "run").primary
    browser = load_browser(tmp_path / "run", [], steps, counts, measure)
    shown = [one for problem in browser for one in json.loads(problem.packed.json)["candidates"]]
    assert len(shown) == 6
    for candidate in shown:
        assert candidate["transcript"].startswith("assistant: ")
        assert "<tool_call>" in candidate["transcript"]
        assert "\n\ntool: Passages for: " in candidate["transcript"]
    (tmp_path / "run" / "journal.sqlite").unlink()
    browser = load_browser(tmp_path / "run", [], steps, counts, measure)
    assert "transcript" not in json.loads(browser[0].packed.json)["candidates"][0]


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
