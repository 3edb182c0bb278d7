"""A budget ends a run by calls or by generations; a run that calls have ended early says in which generation."""

import io
from pathlib import Path

from building import composed, simulated_run
from evorun.reports import print_summary, write_report
from evorun.runner.settings import check
from evorun.runs.terminal import Terminal
from warm_process import no_figures

LYRIA = (
    *("method=lyria", "method.population=6", "method.generations=8", "engine.skill=0.2"),
    *("task=sudoku", "task.box=2", "task.empty_cells=10", "task.instances=2"),
)


def summary_of(run: Path) -> str:
    output = io.StringIO()
    print_summary(run, Terminal(file=output, width=400))
    return output.getvalue()


def test_lyria_at_equal_calls_says_which_generation_it_came_to(tmp_path: Path) -> None:
    calls = int(check(composed("engine=simulated", *LYRIA)).method.config.expected_calls())
    run = simulated_run(tmp_path / "run", *LYRIA, f"budget.calls_per_problem={calls}")
    results = run.json("results.json")
    ended = [one["problem"] for one in run.records("predictions") if one["stop"] == "budget"]
    last = [max(step["step"] for step in run.records("steps") if step["problem"] == name) for name in ended]
    assert ended, "repeats that are replaced cost more calls than appendix A expects"
    assert min(last) < 8
    assert results["planned_steps"] == 8
    assert results["reached"]["budget"] == {
        "problems": len(ended), "fewest": min(last), "mean": sum(last) / len(last), "most": max(last)
    }  # fmt: skip
    said = f"The budget ended {len(ended)} of 2 problems early: in generation "
    assert said in summary_of(run.path)
    with no_figures():
        assert said in write_report(run.path).read_text()


def test_a_budget_of_generations_ends_a_run_without_a_limit_on_calls(tmp_path: Path) -> None:
    run = simulated_run(tmp_path / "run", *LYRIA, "budget.generations=2", "method.fitness_threshold=100")
    steps = run.records("steps")
    assert max(step["step"] for step in steps) == run.json("results.json")["planned_steps"] == 2
    assert {one["stop"] for one in run.records("predictions")} == {"generations"}
    assert "The budget ended" not in summary_of(run.path)


def test_a_run_says_that_its_budget_cut_the_last_step_of_some_problems(tmp_path: Path) -> None:
    """One retry of an unreadable text takes the call that another problem has left for its last draw."""
    words = ("method=self_consistency", "method.samples=5", "method.retries=1", "engine.malformed=0.2")
    run = simulated_run(
        tmp_path / "run", *words, "task=arithmetic", "task.test_problems=8", "budget.calls_per_problem=6"
    )
    stops = [one["stop"] for one in run.records("predictions")]
    assert set(stops) == {"budget", "generations"}
    own = stops.count("generations")
    said = f"The budget ended {8 - own} of 8 problems early: self_consistency ended {own} by itself."
    assert said in summary_of(run.path)
