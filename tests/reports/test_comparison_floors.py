"""Floor rows (random answers) and what results.json tells of the search and the judge, in a comparison."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from comparison_fixture import BENCHMARK, edit_manifest, write_method

from evorun.cli import main
from evorun.reports.comparison import compare, export_comparison
from evorun.reports.comparison.comparison import find_shared_facts
from evorun.reports.comparison.notes import cost_note, describe_missing_baselines, pairs_heading, shared_line
from evorun.reports.comparison.search_notes import search_note
from evorun.reports.comparison.tables import make_cost_table, make_data_tables, make_main_table, make_search_table
from evorun.runs.paths import display
from evorun.runs.sweeps import SWEEP_MANIFEST

GOOD = [True] * 8 + [False] * 2
POOR = [True] * 3 + [False] * 7
REPORTED = {"reported": {"source": "A paper", "rows": [{"method": "lyria", "accuracy": 0.9}]}}
RANDOM = {"models": {"policy": {"name": "random", "id": "random", "engine": "simulated"}}, "simulated": True}


@pytest.fixture(name="runs")
def _runs(tmp_path: Path) -> list[Path]:
    """Two methods on two tasks; Lyria has a floor on tsp, which is better than the other method there."""
    runs = [
        write_method(tmp_path / f"{method}_{task}", outcomes, method=method, task=task, config=REPORTED, steps=3)
        for task in ("tsp", "sudoku")
        for method, outcomes in (("lyria", GOOD), ("best_of_n", POOR))
    ]
    floor = write_method(
        tmp_path / "floor", [*POOR[1:], True, True], method="lyria", task="tsp", config=REPORTED, **RANDOM
    )
    return [floor, *runs]


def test_a_floor_stands_at_the_foot_of_its_task_with_its_label(runs: list[Path]) -> None:
    comparison = compare(runs)
    assert [arm.name for arm in comparison.arms] == [
        "lyria, tsp",
        "best_of_n, tsp",
        "lyria, random baseline, tsp",
        "lyria, sudoku",
        "best_of_n, sudoku",
    ]
    assert describe_missing_baselines(comparison) == (
        "No random baseline for sudoku: the same command with model=random shows what each method scores on random "
        "answers."
    )
    assert describe_missing_baselines(compare(runs[:3])) is None
    (runs[0].parent / SWEEP_MANIFEST).touch()
    told = describe_missing_baselines(compare(runs))
    assert told is not None
    assert f"the same command with model=random and hydra.sweep.dir={display(runs[0].parent)} shows" in told
    # the folder has what the report leaves out
    told = describe_missing_baselines(compare(runs[1:]))
    assert told is not None
    held, _, rest = told.partition(" No ")
    assert held == f"Random baselines for tsp are in {display(runs[0].parent)}, but not in this report."
    assert rest.startswith("random baseline for sudoku: the same command")
    assert describe_missing_baselines(compare(runs[1:3])) == held


def test_a_floor_changes_nothing_for_the_other_runs(runs: list[Path]) -> None:
    comparison, without = compare(runs), compare(runs[1:])
    # neither columns of model and engine, nor a warning, nor pairs, nor figures of a paper
    assert find_shared_facts(comparison.rows) == find_shared_facts(without.rows)
    assert (
        make_main_table(comparison, comparison.rows, [], []).headings
        == make_main_table(without, without.rows, [], []).headings
    )
    assert shared_line(comparison) == f"{shared_line(without)} (random baselines aside)"
    assert comparison.warnings == without.warnings == []
    assert comparison.pairs.pairs == without.pairs.pairs
    assert comparison.pairs.unpaired == []
    floor = next(row for row in comparison.rows if row.is_baseline)
    assert floor.reported is None
    assert comparison.remarks == []


def test_a_floor_that_is_named_is_the_reference_of_every_model(runs: list[Path], tmp_path: Path) -> None:
    other = {"models": {"policy": {"name": "gemma3_4b", "id": "google/gemma", "engine": "vllm"}}}
    runs.append(write_method(tmp_path / "other", GOOD, method="lyria", task="tsp", config=REPORTED, **other))
    pairs = {pair.name: pair.reference for pair in compare(runs, against=runs[0]).pairs.pairs}
    floor = "lyria, random baseline, tsp"
    assert pairs == {"lyria, tsp, smollm2_135m": floor, "lyria, tsp, gemma3_4b": floor, "best_of_n, tsp": floor}


def test_a_method_over_seeds_is_tested_against_its_floor(tmp_path: Path) -> None:
    runs = [
        write_method(tmp_path / f"{seed}{len(more)}", right, seed=seed, method="lyria", **more)
        for seed in range(2)
        for right, more in ((GOOD, {}), (POOR, RANDOM))
    ]
    comparison = compare(runs, against="lyria, random baseline")
    (pooled,) = comparison.pairs.pooled
    assert (pooled.name, pooled.reference) == ("lyria", "lyria, random baseline")
    # not "with the same model"
    assert pairs_heading(comparison) == "Against lyria, random baseline, on the same problems"


def test_a_method_is_the_reference_though_its_floor_is_there(tmp_path: Path) -> None:
    arms = [(name, right, more) for name, right in (("lyria", GOOD), ("gepa", POOR)) for more in ({}, RANDOM)]
    runs = [
        write_method(tmp_path / str(number), right, method=name, **more)
        for number, (name, right, more) in enumerate(arms)
    ]
    assert {pair.reference for pair in compare(runs, against="gepa").pairs.pairs} == {"gepa"}


def test_floors_alone_are_compared_like_other_runs(tmp_path: Path) -> None:
    runs = [write_method(tmp_path / m, right, method=m, **RANDOM) for m, right in (("lyria", GOOD), ("gepa", POOR))]
    comparison = compare(runs)
    assert [pair.name for pair in comparison.pairs.pairs] == ["gepa, random baseline"]
    assert shared_line(comparison).startswith("task mathbench; model random")


def test_a_run_of_a_model_called_random_that_is_real_is_no_floor(tmp_path: Path) -> None:
    runs = [
        write_method(tmp_path / m, GOOD, method=m, **{**RANDOM, "simulated": m == "gepa"}) for m in ("lyria", "gepa")
    ]
    assert [arm.is_baseline for arm in compare(runs).arms] == [False, True]


def test_a_floor_that_learned_nothing_is_no_warning(tmp_path: Path) -> None:
    runs = [write_method(tmp_path / name, GOOD, method="grpo", **more) for name, more in (("a", {}), ("b", RANDOM))]
    step = {"step": 0, "calls": 9, "tokens": 90}
    for run, figures in zip(runs, ({"reward": 0.5}, {"reward": 0.0, "no_update": 1.0}), strict=True):
        (run / "training.jsonl").write_text(json.dumps({**step, "figures": figures}) + "\n")
    assert compare(runs).warnings == []


def _with_figures(run: Path, n: int = 10, **figures: float) -> Path:
    path = run / "results.json"
    results = json.loads(path.read_text())
    results["metrics"] = {"accuracy": results["metrics"]["accuracy"]} | {
        name: {"value": value, "ci95": None, "n": n} for name, value in figures.items()
    }
    path.write_text(json.dumps(results))
    edit_manifest(run, files={})
    return run


def test_what_the_search_found_and_the_judge_chose_is_a_table_of_means_over_seeds(tmp_path: Path) -> None:
    runs = [
        _with_figures(
            write_method(tmp_path / f"lyria{seed}", GOOD, method="lyria", seed=seed, steps=5 + seed),
            n=(30, 10)[seed], pool_coverage=0.5 + 0.2 * seed, choice_given_coverage=0.75,
            judge_agreement=(0.6, 1)[seed],
        )
        for seed in range(2)
    ]  # fmt: skip
    runs.append(_with_figures(write_method(tmp_path / "zero", POOR), pool_coverage=0.25))
    comparison = compare(runs)
    grid = make_search_table(comparison.rows)
    assert [column.replace("\n", " ") for column in grid.headings] == [
        "run",
        "generation reached",
        "pool coverage",
        "choice given coverage",
        "judge agreement",
    ]
    assert grid.shown() == [
        ["lyria", "4.50", "60.0 %", "75.0 % of 40", "70.0 % of 40"],
        ["zero_shot", "\u2013", "25.0 %", "\u2013", "\u2013"],
    ]
    arms = make_data_tables(comparison)[0]
    assert [row[list(arms.headings).index("judge_agreement_n")] for row in arms.rows] == [40, None]
    note = search_note(comparison)
    assert "whose final answer was correct, and their number over all runs. Judge" in note
    assert "duels between a correct and an incorrect candidate that the correct one won" in note
    # single runs have theirs
    assert [row[1:3] for row in make_search_table(comparison.run_rows).shown()[:2]] == [
        ["4", "50.0 %"],
        ["5", "70.0 %"],
    ]
    nothing = compare([_with_figures(write_method(tmp_path / f"nothing{i}", POOR, method=f"m{i}")) for i in range(2)])
    assert make_search_table(nothing.rows).shown() == []


def test_the_search_of_runs_that_train_speaks_of_their_steps_and_explains_its_own_columns(tmp_path: Path) -> None:
    runs = []
    for method in ("grpo", "ppo"):
        run = _with_figures(write_method(tmp_path / method, GOOD, method=method, steps=13), parsable_rate=0.9)
        (run / "training.jsonl").write_text('{"step": 1, "calls": 1, "tokens": 1, "figures": {"reward": 1}}\n')
        runs.append(run)
    comparison = compare(runs)
    grid = make_search_table(comparison.rows, comparison.step)
    assert grid.headings[1] == "training step\nreached"
    assert [row[1] for row in grid.shown()] == ["12", "12"]
    note = search_note(comparison)
    assert "Parsable texts: " in note
    assert "Pool coverage" not in note
    assert "Judge agreement" not in note


def _ended_by_budget(folder: Path, *, reached: int, planned: int | None = 15, **fields: Any) -> Path:
    """Write a run whose budget ended all problems in the same generation."""
    run = write_method(folder, GOOD, **fields)
    ended = {"budget": {"problems": 10, "fewest": reached, "mean": reached, "most": reached}}
    results = json.loads((run / "results.json").read_text())
    (run / "results.json").write_text(json.dumps({**results, "reached": ended, "planned_steps": planned}))
    edit_manifest(run, files={})
    return run


def test_an_end_by_the_budget_is_said_once_and_its_generations_have_a_column(tmp_path: Path) -> None:
    config = {"method": {"generations": 15}}
    runs = [
        _ended_by_budget(tmp_path / str(seed), reached=reached, method="lyria", seed=seed, config=config)
        for seed, reached in enumerate((3, 5))
    ]
    comparison = compare([*runs, write_method(tmp_path / "other", POOR)])
    (line,) = comparison.warnings
    assert line.startswith("lyria: The budget, not the number of generations, ended the search. ")
    reached_by = {row[0]: row[1] for row in make_search_table([*comparison.rows, *comparison.run_rows]).shown()}
    assert reached_by["lyria"] == "4 of 15"
    assert "Generation reached: N of M where the settings plan M; a method without such a" in search_note(comparison)
    assert reached_by["lyria, seed 1"] == "5 of 15"
    assert reached_by["zero_shot"] == "\u2013"


def test_a_budget_that_ended_some_problems_says_how_many_and_replaced_repeats_are_named(tmp_path: Path) -> None:
    runs = []
    for seed, cut in enumerate((1, 0, 1)):
        run = _ended_by_budget(
            tmp_path / str(seed), reached=1, method="lyria", seed=seed, config={"method": {"generations": 15}}
        )
        results = json.loads((run / "results.json").read_text())
        goal = {"problems": 10 - cut, "fewest": 0, "mean": 0.0, "most": 0}
        results["reached"] = {
            **({"budget": results["reached"]["budget"] | {"problems": 1}} if cut else {}),
            "goal": goal,
        }
        results["counts"]["duplicates"] = 7
        (run / "results.json").write_text(json.dumps(results))
        runs.append(run)
    found = compare([*runs, write_method(tmp_path / "other", POOR)]).warnings
    assert any(
        "lyria: The budget, not the number of generations, ended the search of 2 of 30 problems." in line
        for line in found
    )
    assert (
        "lyria: Answers that repeated another one were replaced 21 times, of 30 calls in all, and problems without "
        "their goal reached generation 1 of 15 on average; method.dedup_attempts limits the replacements."
    ) in found


@pytest.mark.parametrize(
    ("method", "planned", "settings", "needed"),
    [
        (
            "duel_evolve",
            150,
            {"generations": 150, "initial_candidates": 12, "duels": 24, "orders": 2},
            "; generation 0 takes up to 60 calls per problem.",
        ),
        ("lyria", 15, {"generations": 15, "population": 50}, "; generation 0 takes up to 50 calls per problem."),
        ("feedback_descent", None, {"generations": None}, "."),
    ],
)
def test_a_method_that_never_left_generation_0_is_named(
    method: str, planned: int | None, settings: dict[str, Any], needed: str, tmp_path: Path
) -> None:
    config = {"method": settings, "budget": {"calls_per_problem": 40, "tokens": None}}
    run = _ended_by_budget(tmp_path / "short", reached=0, planned=planned, method=method, config=config)
    other = _ended_by_budget(tmp_path / "long", reached=1, planned=planned, method="other", config=config)
    found = [line for line in compare([run, other]).warnings if "generation 0" in line]
    assert found == [
        f"{method}: Never left generation 0: the budget of 40 calls per problem ended before the first step of "
        f"evolution{needed}"
    ]


def test_figures_and_tables_are_written_as_files(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ending:
        main(["report", *map(str, runs[:3]), "--export=files"])
    assert ending.value.code == 0, capsys.readouterr()
    written = {path.name for path in (tmp_path / "files").iterdir()}
    assert {"accuracy-step.svg", "accuracy-step.pdf", "final-accuracy.svg"} <= written
    assert {"arms.csv", "roles.csv", "pairs.csv"} <= written
    rows = list(csv.DictReader((tmp_path / "files" / "arms.csv").read_text().splitlines()))
    by_name: dict[str, dict[str, Any]] = {row["run"]: row for row in rows}
    assert float(by_name["lyria"]["accuracy"]) == 0.8
    assert float(by_name["lyria"]["accuracy_low"]) == pytest.approx(0.4901625)  # Wilson, 8 of 10
    assert float(by_name["lyria"]["accuracy_reported"]) == 0.9
    floor = by_name["lyria, random baseline"]
    assert (floor["random_baseline"], floor["accuracy_reported"], floor["model"]) == ("yes", "", "random")
    (pair,) = csv.DictReader((tmp_path / "files" / "pairs.csv").read_text().splitlines())
    assert (pair["run"], pair["reference"], float(pair["difference"])) == ("best_of_n", "lyria", -0.5)


def test_single_runs_have_a_table_of_their_own_where_methods_have_seeds(tmp_path: Path) -> None:
    runs = [write_method(tmp_path / str(seed), GOOD, seed=seed, provenance=BENCHMARK) for seed in range(2)]
    export_comparison(compare(runs), tmp_path / "files")
    rows = list(csv.DictReader((tmp_path / "files" / "runs.csv").read_text().splitlines()))
    assert [row["run"] for row in rows] == ["zero_shot, seed 0", "zero_shot, seed 1"]


def test_candidates_answered_and_texts_that_parse_are_two_figures(tmp_path: Path) -> None:
    runs = []
    for seed, lost in enumerate((6, 12)):
        run = _with_figures(write_method(tmp_path / str(seed), GOOD, seed=seed), parsable_rate=1.0)
        results = json.loads((run / "results.json").read_text())
        results["counts"] |= {"candidates": 60, "unparsed_candidates": lost}  # requests that the engine refused
        (run / "results.json").write_text(json.dumps(results))
        runs.append(run)
    grid = make_search_table(compare(runs).rows)
    assert dict(zip(grid.headings, grid.shown()[0], strict=True)) == {
        "run": "zero_shot", "candidates\nanswered": "85.0 %", "parsable\ntexts": "100.0 %"
    }  # fmt: skip


def test_the_gold_judges_cost_stands_below_the_total_that_it_is_no_part_of(tmp_path: Path) -> None:
    runs = [write_method(tmp_path / str(seed), GOOD, seed=seed) for seed in range(2)]
    for run in runs:
        results = json.loads((run / "results.json").read_text())
        spent = {"calls": 30, "prompt_tokens": 10, "completion_tokens": 10, "seconds": 1.0}
        results["cost"] = {"answer": results["cost"]["generate"], **results["cost"], "gold": spent}
        (run / "results.json").write_text(json.dumps(results))
        edit_manifest(run, files={})
    comparison = compare(runs)
    roles = [row[1] for row in make_cost_table(comparison).shown()]
    assert roles == ["answer", "generate", "total", "gold (grading), not in the total"]
    assert "except for the gold judge that grades" in cost_note(comparison)
