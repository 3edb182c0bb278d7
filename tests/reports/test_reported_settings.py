"""Papers' figures of ablations: a row for a setting of a sweep, means over tasks, and differences between settings."""

from pathlib import Path
from typing import Any

import pytest
from comparison_fixture import write_method

from building import composed
from evorun.reports.comparison import compare
from evorun.reports.comparison.reported import find_reported
from evorun.runner.settings import check

SCORE = {"name": "penalised_score_paper", "low": 0.0, "high": 100.0}
MODEL = {"policy": {"name": "qwen2_5_7b", "id": "qwen", "engine": "vllm"}}


def row(value: float, **row: Any) -> dict[str, Any]:
    return {"method": "lyria", **row, "metrics": {"penalised_score_paper": value}}


def figure(config: dict[str, Any], rows: list[dict[str, Any]], task: str = "sudoku") -> float | None:
    found = find_reported({**config, "reported": {"source": "x", "rows": rows}}, "lyria", task, "qwen2_5_7b")
    return None if found is None else found.metrics["penalised_score_paper"]


def test_a_job_of_a_sweep_finds_the_row_of_its_setting() -> None:
    rows = [row(50, task="sudoku"), *(row(10 * n, task="sudoku", overrides={"method.max_errors": n}) for n in (0, 3))]
    for order in (1, -1):
        assert figure({"method": {"max_errors": 0}}, rows[::order]) == 0
        assert figure({"method": {"max_errors": 3}}, rows[::order]) == 30
        assert figure({"method": {"max_errors": 6}}, rows[::order]) == 50
    assert figure({"method": {}}, rows[1:]) is None
    assert figure({"method": {"max_errors": 3}}, rows, task="tsp") is None


def test_of_a_group_its_choice_counts() -> None:
    rows = [row(50, overrides={"judge": "gpt_4o_mini"})]
    assert figure({"judge": {"name": "gpt_4o_mini", "id": "x"}}, rows) == 50
    assert figure({"judge": {"name": "policy"}}, rows) is None


@pytest.mark.parametrize(
    ("experiment", "words", "task", "expected"),
    [  # section 4.3.3 and 4.3.4
        ("replay", ["method.replay_rate=0.0"], "sudoku", 59),
        ("replay", ["method.replay_rate=0.3"], "sudoku", 73),
        ("replay", ["method.replay_rate=0.6"], "sudoku", 62),
        ("replay", ["method.replay_rate=0.6"], "tsp", None),
        ("external", ["method.external_crossover_rate=0.0"], "graph_coloring", 91.07),
        ("external", ["method.external_crossover_rate=0.6"], "graph_coloring", 97.42),
        ("external", ["method.external_crossover_rate=0.3"], "graph_coloring", None),
    ],
)
def test_lyrias_ablations_have_rows(experiment: str, words: list[str], task: str, expected: float | None) -> None:
    config = composed(f"experiment=lyria/{experiment}", f"task={task}", *words)
    check(config)
    found = find_reported(config, "lyria", task, config["model"]["name"])
    assert (None if found is None else found.metrics["penalised_score_paper"]) == expected
    assert find_reported(config, "lyria", task, "random") is None


def runs_of(folder: Path, experiment: str, settings: dict[str, dict[str, list[float]]], **manifest: Any) -> list[Path]:
    """Write a run of Lyria for each setting of an experiment and each task, with the penalised score of each seed."""
    reported = composed(f"experiment=lyria/{experiment}")["reported"]
    made = []
    for setting, scores in settings.items():
        key, _, value = setting.partition("=")
        for task, seed_pairs in scores.items():
            for seed, score in enumerate(seed_pairs):
                config = {"method": {"name": "lyria", key: float(value) if value[0].isdigit() else value}, "seed": seed}
                made.append(
                    write_method(
                        folder / f"{task}-{setting}-{seed}",
                        [False, False],
                        method="lyria",
                        task=task,
                        seed=seed,
                        models=MODEL,
                        config={**config, "judge": {"name": "policy"}, "reported": reported},
                        scores={"penalised_score_paper": [score, score]},
                        declared=[SCORE],
                        **manifest,
                    )
                )
    return made


def test_a_mean_over_tasks_stands_beside_that_of_the_runs(tmp_path: Path) -> None:
    of_tasks = {"sudoku": [60.0, 70.0], "graph_coloring": [95.0], "tsp": [94.0]}
    runs = runs_of(tmp_path, "fitness", {"fitness=oracle": of_tasks, "fitness=model": {"tsp": [9.0]}})
    lines = [line for line in compare(runs).remarks if line.startswith("Reported penalised score paper of lyria, ")]
    of, over = "Reported penalised score paper of lyria", "(mean over sudoku, graph_coloring, tsp)"
    assert f"{of}, fitness=oracle {over}: 84; measured 84.7." in lines
    assert f"{of}, fitness=model, judge=policy {over}: 51; not all measured here." in lines
    assert len(lines) == 3  # and the paper's other evaluator


def test_a_difference_between_settings_stands_beside_that_of_the_runs(tmp_path: Path) -> None:
    measured = {"max_errors=0": {"sudoku": [50.0], "graph_coloring": [90.0]}, "max_errors=9": {"sudoku": [58.5]}}
    remarks = compare(runs_of(tmp_path, "errors", measured)).remarks
    of = "Reported penalised score paper of lyria, max_errors=9 minus max_errors=0"
    assert f"{of} (sudoku): 4; measured 8.50." in remarks
    assert any("(graph_coloring): 7; not all measured here." in line for line in remarks)


def test_simulated_runs_are_not_held_against_a_papers_means(tmp_path: Path) -> None:
    measured = {"max_errors=0": {"sudoku": [50.0]}, "max_errors=9": {"sudoku": [58.5]}}
    remarks = compare(runs_of(tmp_path, "errors", measured, simulated=True)).remarks
    assert "measured 8.5" not in "".join(remarks)
    assert any("(sudoku): 4; not all measured here." in line for line in remarks)


@pytest.mark.parametrize(
    ("experiment", "figures"),
    [  # sections 4.3.1 to 4.3.4: mean over the puzzles or a puzzle's gain
        ("population", [7]),
        ("generations", [4]),
        ("fitness", [84, 51, 50]),
        ("errors", [4, 7]),
        ("external", [-6.23]),
    ],
)
def test_the_papers_means_are_on_file(experiment: str, figures: list[float]) -> None:
    config = composed(f"experiment=lyria/{experiment}")
    check(config)
    means = config["reported"]["means"]
    assert [mean["metrics"]["penalised_score_paper"] for mean in means] == figures
    assert {(mean["method"], mean["model"]) for mean in means} == {("lyria", config["model"]["name"])}
