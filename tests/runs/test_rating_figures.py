"""Evidence for ratings: measured fitness by least squares, and rank correlations within the window and the tree."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from evorun.runs.rating_figures import _Rollout, measured_fitness, rating_figures


def rollouts(rewards: dict[tuple[int, str, str], list[float | None]]) -> list[_Rollout]:
    """Rewards by step, problem and prompt."""
    return [_Rollout(step, problem, name, one) for (step, problem, name), ones in rewards.items() for one in ones]


def test_fitness_is_told_from_the_steps_and_problems_that_a_prompt_was_played_at() -> None:
    """Later steps have better weights and problems differ; by mean rewards the worst prompt would be the best."""
    truth, level = {"a": 0.3, "b": 0.2, "c": 0.0}, {(1, "p"): 0.1, (1, "q"): 0.3, (2, "p"): 0.5, (2, "r"): 0.7}
    played = {1: "ab", 2: "bc"}
    rewards: Any = {
        (step, problem, name): [level[step, problem] + truth[name]]
        for (step, problem) in level
        for name in played[step]
    }
    found = measured_fitness(rollouts(rewards))
    assert {name: found[name] - found["c"] for name in found} == pytest.approx(truth)


def test_fitness_equals_a_regression_on_indicators() -> None:
    rng = np.random.default_rng(0)
    cells = [
        (step, problem, name)
        for step, problem in product(range(8), "pq")
        for name in rng.permutation(list("abcdef"))[:3].tolist()
    ]
    rewards: Any = {cell: rng.random(2).tolist() for cell in dict.fromkeys(cells)}
    columns = [*"abcdef", *dict.fromkeys((step, problem) for step, problem, _ in rewards)]
    design = np.array([[float(c in (cell[2], cell[:2])) for c in columns] for cell in rewards])
    fitted = np.linalg.lstsq(design, np.array([np.mean(ones) for ones in rewards.values()]), rcond=None)[0]
    expected = dict(zip("abcdef", fitted, strict=False))
    found = measured_fitness(rollouts(rewards))
    assert {name: found[name] - found["a"] for name in "abcdef"} == pytest.approx(
        {name: expected[name] - expected["a"] for name in "abcdef"}
    )


def test_prompts_that_were_compared_with_no_other_or_apart_are_unknown() -> None:
    apart: Any = {(1, "p", n): [float(n == "a")] for n in "abc"} | {(2, "p", n): [0.5] for n in "xy"}
    found = measured_fitness(rollouts({**apart, (3, "p", "z"): [1.0], (3, "q", "b"): [None]}))
    assert set(found) == {"a", "b", "c"}
    assert measured_fitness(rollouts({(3, "p", "z"): [1.0]})) == {}


def write(folder: Path, skills: list[float], ratings: list[float], window: int) -> Path:
    """Write a run in which each prompt is played beside the root, in the order of birth."""
    names = [f"{number}.0" for number in range(len(skills))]
    lines: dict[str, list[dict[str, Any]]] = {
        "candidates": [{"id": name, "problem": "*", "kind": "system_prompt"} for name in names],
        "ratings": [
            {"step": step, "candidate": name, "mean": mean * step, "sd": 1.0, "survivor": number >= len(names) - window}
            for step in (0, 1)  # the last line counts
            for number, (name, mean) in enumerate(zip(names, ratings, strict=True))
        ],
        "rollouts": [
            {"step": step, "problem": "p", "candidate": name, "reward": reward}
            for step, (other, skill) in enumerate(zip(names, skills, strict=True))
            for name, reward in ((names[0], skills[0] + step), (other, skill + step))
        ],
    }
    folder.mkdir()
    for name, records in lines.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    return folder


def test_the_window_the_tree_and_birth_order_are_three_figures(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    skills = np.linspace(0, 1, 12) + rng.normal(0, 0.1, 12)
    ratings = np.linspace(10, 30, 12) + rng.normal(0, 3, 12)
    found = rating_figures(write(tmp_path / "run", skills.tolist(), ratings.tolist(), 4))
    assert {name: one.n for name, one in found.items()} == {
        "rating_fitness_window": 4,
        "rating_fitness": 12,
        "birth_order_fitness": 12,
    }
    assert found["rating_fitness_window"].value == pytest.approx(spearmanr(ratings[-4:], skills[-4:]).statistic)
    assert found["rating_fitness"].value == pytest.approx(spearmanr(ratings, skills).statistic)
    assert found["birth_order_fitness"].value == pytest.approx(spearmanr(range(12), skills).statistic)
    low, high = found["rating_fitness"].ci95 or (0, 0)
    assert low < found["rating_fitness"].value < high


def test_without_three_prompts_or_any_rating_there_is_no_figure(tmp_path: Path) -> None:
    assert rating_figures(write(tmp_path / "two", [0.1, 0.2], [1.0, 2.0], 2)) == {}
    folder = write(tmp_path / "unrated", [0.1, 0.2, 0.4], [1.0, 2.0, 3.0], 3)
    (folder / "ratings.jsonl").unlink()
    assert rating_figures(folder) == {}
