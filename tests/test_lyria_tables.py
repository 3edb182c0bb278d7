"""Lyria's experiment beside the paper: Tables 5 to 7, of which Table 1 is a part, copied by hand."""

import pytest

from building import composed

MODELS = ("gpt_4o_mini", "qwen2_5_32b", "mistral_7b", "qwen2_5_7b")
METHODS = ("zero_shot", "best_of_n", "lyria")
TABLES: dict[str, tuple[tuple[str, ...], tuple[tuple[float, ...], ...]]] = {
    # task -> the columns' metrics, and a row for each model and method, in the order of both above
    "sudoku": (  # Table 5: correct (per cent), score, penalised score
        ("accuracy", "score_paper", "penalised_score_paper"),
        (
            *((0, 43, 39), (6, 74, 73), (8, 74, 73)),
            *((0, 35, 31), (8, 77, 76), (32, 87, 87)),
            *((0, 1, 0), (0, 11, 5), (0, 16, 12)),
            *((0, 32, 26), (0, 57, 55), (0, 62, 61)),
        ),
    ),
    "graph_coloring": (  # Table 6: correct, score, penalised score, conflict ratio (per cent)
        ("accuracy", "score", "penalised_score_paper", "conflict_ratio"),
        (
            *((0, 73, 73, 27), (0, 86, 86, 14), (0, 97, 97, 4)),
            *((0, 74, 74, 26), (0, 87, 87, 13), (0, 96, 96, 4)),
            *((0, 100, 0, 0), (0, 86, 84, 15), (0, 93, 92, 7)),
            *((0, 73, 73, 27), (0, 84, 84, 16), (0, 95, 95, 5)),
        ),
    ),
    "tsp": (  # Table 7: correct, penalised score, excess distance multiplier, missing cities
        ("accuracy", "penalised_score_paper", "excess_distance_multiplier_paper", "missing_cities"),
        (
            *((0, 79, 0.64, 0), (4, 94, 0.18, 0), (6, 96, 0.13, 0)),
            *((0, 81, 0.58, 0), (8, 97, 0.09, 0), (30, 99, 0.04, 0)),
            *((0, 60, 1.20, 2), (0, 80, 0.61, 0), (0, 89, 0.31, 0)),
            *((0, 34, 1.97, 5), (0, 88, 0.36, 0), (4, 95, 0.15, 0)),
        ),
    ),
}
IN_PER_CENT = ("accuracy", "conflict_ratio")
"""Figures that the paper gives in per cent, and evorun as fractions."""


@pytest.mark.parametrize("task", TABLES)
def test_an_experiment_carries_its_tables(task: str) -> None:
    metrics, figures = TABLES[task]
    runs = [(model, method) for model in MODELS for method in METHODS]
    rows = [row for row in composed("experiment=lyria/table1")["reported"]["rows"] if row["task"] == task]
    assert [(row["model"], row["method"]) for row in rows] == runs
    for row, expected in zip(rows, figures, strict=True):
        found = {"accuracy": row["accuracy"], **row["metrics"]}
        assert list(found) == list(metrics)
        in_papers_units = [value * (100 if name in IN_PER_CENT else 1) for name, value in found.items()]
        assert in_papers_units == pytest.approx(list(expected)), row
