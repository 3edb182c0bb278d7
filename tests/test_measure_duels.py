"""The script that prints the tables of Duel-Evolve's studies: which arms it pairs, and what it counts in a run."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from building import simulated_run


@pytest.fixture(name="script")
def _script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "scripts"))
    return importlib.import_module("measure_duels")


def cells(table: str) -> dict[str, dict[str, str]]:
    """Return a Markdown table's cells by row and column."""
    header, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {line[0].strip("`"): dict(zip(header[1:], line[1:], strict=True)) for line in lines}


def test_arms_are_paired_with_the_arm_that_differs_in_one_override_or_with_the_plain_one(script: Any) -> None:
    def arm(*by_seed: tuple[float, float]) -> Any:
        return {seed: script.Run({"p": first, "q": second}, 10.0, {}) for seed, (first, second) in enumerate(by_seed)}

    arms = {
        "method=duel_evolve budget=calls_300": arm((1, 0), (1, 0)),
        "method=duel_evolve budget=calls_600": arm((1, 1), (1, 1)),
        "method=best_of_n budget=calls_300": arm((0, 0), (0, 0)),
        "method=best_of_n budget=calls_600": arm((0, 0), (0, 0)),
    }
    paired = cells(script.table(arms, against="method=duel_evolve"))
    assert {name: row["difference"][:5] for name, row in paired.items()} == {
        **{"method=duel_evolve budget=calls_300": "-", "method=duel_evolve budget=calls_600": "-"},
        **{"method=best_of_n budget=calls_300": "-0.50", "method=best_of_n budget=calls_600": "-1.00"},
    }
    # The interval is over problems, too: Student's for two problems that differ by 1, t = 12.7 and error 0.5
    assert paired["method=best_of_n budget=calls_300"]["difference"] == "-0.50 ± 6.35"
    assert paired["method=duel_evolve budget=calls_300"]["(seeds alone)"] == "(0.50)"
    by_budget = cells(script.table_by("budget", arms, "method=duel_evolve"))
    assert by_budget["method=best_of_n"] == {
        "budget=calls_300": "0.00 (-0.50 ± 6.35)",
        "budget=calls_600": "0.00 (-1.00)",
    }
    assert by_budget["method=duel_evolve"] == {"budget=calls_300": "0.50 ± 6.35", "budget=calls_600": "1.00"}

    plain = cells(script.table({"common=1": arm((1, 0)), "common=1 method.duels=6": arm((0, 0))}))
    assert {name: row["difference"] for name, row in plain.items()} == {
        "nothing changed": "-",
        "method.duels=6": "-0.50",
    }
    both = {
        "method=rsa k=1 l=false": arm((1, 1)),
        "method=rsa k=2 l=false": arm((0, 0)),
        "method=rsa k=2 l=true": arm((1, 0)),
    }
    two_keys = cells(script.table(both, against="k=1 l=false"))
    assert {name: row["difference"][:5] for name, row in two_keys.items()} == {
        **{"k=1 l=false": "-", "k=2 l=false": "-1.00", "k=2 l=true": "-0.50"}
    }
    # An arm may have settings that the others lack; scores that are no shares have three decimals.
    circles = {
        "method=best_of_n b=1": {seed: script.Run({"p": 2.4}, 10.0, {}, is_share=False) for seed in (0, 1)},
        "method=best_of_n b=1 method.choose=oracle": {0: script.Run({"p": 2.4321}, 10.0, {}, is_share=False)},
        "method=islands b=1 method.policy=shinka": {0: script.Run({"p": 2.401}, 10.0, {}, is_share=False)},
    }
    against_oracle = cells(script.table_by("b", circles, "method=best_of_n method.choose=oracle"))
    assert {name: row["b=1"] for name, row in against_oracle.items()} == {
        "method=best_of_n": "2.400 (-0.032)",
        "method=best_of_n method.choose=oracle": "2.432",
        "method=islands method.policy=shinka": "2.401 (-0.031)",
    }
    # Of one problem it is over seeds: Student's for scores of 1 and 0
    alone = {"method=rsa": {seed: script.Run({"p": seed}, 10.0, {}) for seed in (0, 1)}}
    assert cells(script.table(alone))["nothing changed"]["score"] == "0.50 ± 6.35"


def test_a_runs_calls_and_candidates_without_a_duel_are_counted(script: Any, tmp_path: Path) -> None:
    run = simulated_run(
        tmp_path / "run",
        *("method=duel_evolve", "method.generations=2", "method.children=6", "method.duels=2", "task=mathbench"),
        *("task.source=sample", "task.limit=3", "engine.mean_tokens=1"),
    )
    figures = script.measure(run.path)
    candidates = {(one["problem"], one["id"]) for one in run.records("candidates")}
    judged = {(one["problem"], one[side]) for one in run.records("comparisons") for side in ("first", "second")}
    assert 0 < len(judged) < len(candidates)
    assert figures.figures["never judged"] == pytest.approx(1 - len(judged) / len(candidates))
    last = {one["problem"]: one for one in run.records("steps")}  # of each problem the last line stays
    assert figures.calls == sum(cost["calls"] for one in last.values() for cost in one["cost"].values()) / 3
    assert figures.score == {problem: float(bool(one["correct"])) for problem, one in last.items()}
