"""The papers' numbers, copied by hand from their sections: what a composed configuration must say."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from building import composed
from evorun.cli.compose import config_folder
from evorun.runner import registry

MATHBENCH, LIVECODEBENCH = "mathbench", "livecodebench"
FIGURES = {MATHBENCH: "figure2", LIVECODEBENCH: "figure3"}
BENCHMARKS, DUELS = (MATHBENCH, LIVECODEBENCH), ("duel_evolve", "best_of_n")
ALL = ("zero_shot", "few_shot", "self_consistency", "best_of_n", "feedback_descent", "gepa", "duel_evolve")

NUMBERS: tuple[tuple[str, str, str, Any, str], ...] = (
    # task, method, key, value, section
    *((MATHBENCH, method, "task.strata", ["middle", "high", "college"], "4.1") for method in ALL),
    *((MATHBENCH, method, "task.per_stratum", 50, "4.1") for method in ALL),
    *((LIVECODEBENCH, method, "task.strata", ["easy", "medium", "hard"], "4.1") for method in ALL),
    *((LIVECODEBENCH, method, "task.per_stratum", 33, "4.1") for method in ALL),
    *((LIVECODEBENCH, method, "task.stated_time_limit_s", 4.0, "B.2.1, B.2.4, B.2.5") for method in ALL),
    *((MATHBENCH, method, "method.temperature", 0.7, "A.1") for method in ALL),
    *((LIVECODEBENCH, method, "method.temperature", 1.2, "A.1") for method in ALL),
    *((on, method, "method.orders", 2, "A.1, D") for on in BENCHMARKS for method in DUELS),
    *((on, method, "method.ties", "drop", "A.1, D") for on in BENCHMARKS for method in DUELS),
    *((on, method, "method.rating", "posterior", "Eq. 4, D") for on in BENCHMARKS for method in DUELS),
    *((on, method, "method.duel_choice", "thompson", "2.2, D") for on in BENCHMARKS for method in DUELS),
    *((on, "duel_evolve", "method.parent_choice", "thompson", "2.3.3") for on in BENCHMARKS),
    (MATHBENCH, "duel_evolve", "method.generations", 150, "4.3, Figure 2"),
    (MATHBENCH, "duel_evolve", "method.children", 12, "A.1"),
    (MATHBENCH, "duel_evolve", "method.parents", 6, "A.1"),
    (MATHBENCH, "duel_evolve", "method.max_pool", 200, "A.1"),
    (MATHBENCH, "duel_evolve", "method.deduplicate", False, "A.1"),
    (LIVECODEBENCH, "duel_evolve", "method.generations", 200, "4.3, Figure 3"),
    (LIVECODEBENCH, "duel_evolve", "method.children", 40, "A.1"),
    (LIVECODEBENCH, "duel_evolve", "method.parents", 5, "A.1"),
    (LIVECODEBENCH, "duel_evolve", "method.max_pool", 200, "A.1"),
    (LIVECODEBENCH, "duel_evolve", "method.deduplicate", True, "A.1"),
    (MATHBENCH, "few_shot", "method.shots", 8, "4.2, D"),
    (LIVECODEBENCH, "few_shot", "method.shots", 3, "4.2, D"),
    (MATHBENCH, "best_of_n", "method.samples", 150, "4.2"),
    (LIVECODEBENCH, "best_of_n", "method.samples", 200, "4.2"),
    (MATHBENCH, "best_of_n", "method.max_pool", 200, "A.1, D"),
    (LIVECODEBENCH, "best_of_n", "method.max_pool", 200, "A.1, D"),
    (MATHBENCH, "self_consistency", "method.samples", 150, "D, 4.2"),
    (LIVECODEBENCH, "self_consistency", "method.samples", 200, "D, 4.2"),
    (MATHBENCH, "feedback_descent", "method.generations", 150, "4.3, Figure 2"),
    (LIVECODEBENCH, "feedback_descent", "method.generations", 200, "4.3, Figure 3"),
    (MATHBENCH, "feedback_descent", "method.window", 15, "A.1"),
    (LIVECODEBENCH, "feedback_descent", "method.window", 15, "A.1"),
    (MATHBENCH, "gepa", "method.generations", 150, "4.3, Figure 2"),
    (LIVECODEBENCH, "gepa", "method.generations", 200, "4.3, Figure 3"),
)


E_SPL: dict[str, tuple[Any, str]] = {
    "training.weights": ("lora", "4.1"),
    "training.rank": (32, "4.1, A"),
    "training.learning_rate": (4e-5, "A"),
    "training.beta1": (0.9, "A"),
    "training.beta2": (0.95, "A"),
    "training.weight_decay": (0.0, "A: Adam"),
    "method.problems_per_step": (10, "A"),
    "method.group": (5, "A"),
    "method.kl": (0.0, "3.1"),
}
"""The E-SPL paper's numbers for training weights, each with its section."""


MPO: tuple[tuple[str, str, Any, str], ...] = (
    # task, key, value, section
    ("essay", "method.trainer", "ppo", "3.1"),
    ("essay", "method.problems_per_step", 64, "3.2: an effective batch of 64"),
    ("essay", "method.group", 1, "3.2"),
    ("essay", "method.max_tokens", 400, "3.2: episodes of up to 400 tokens"),
    ("essay", "method.refine_every", 10, "3.2: every 640 episodes"),
    ("essay", "method.steps", 400, "3.2: 40 refinements"),
    ("essay", "method.reward_scale", "raw", "3.2"),
    ("essay", "method.rubric", "initial", "3.1"),
    ("essay", "method.meta_analysis", True, "2.3"),
    ("essay", "method.choose_samples", "random", "2.3"),
    ("billsum", "method.refine_every", 20, "3.3.1, K.1"),
    ("billsum", "method.steps", 29 * 20, "K.1: 29 refinements"),
    ("ethics", "method.refine_every", 10, "3.3.2, K.2"),
    ("ethics", "method.steps", 20 * 10, "K.2: 20 refinements"),
)
"""The numbers of the MPO paper; tests/tasks/math/test_math_task.py has those of mathematics."""


@pytest.mark.parametrize("task", ["essay", "billsum", "ethics"])
def test_mpo_has_its_papers_numbers(task: str) -> None:
    config = OmegaConf.create(composed("method=mpo", f"task={task}"))
    expected = {key: value for of_task, key, value, _ in MPO if of_task == task}
    assert {key: OmegaConf.select(config, key) for key in expected} == expected


def test_the_table_has_every_method_of_the_paper_on_both_tasks() -> None:
    pairs = {(task, method) for task, method, *_ in NUMBERS}
    assert pairs == {(task, method) for task in (MATHBENCH, LIVECODEBENCH) for method in ALL}
    assert set(ALL) <= set(registry.METHODS)


@pytest.mark.parametrize(("task", "method"), sorted({(task, method) for task, method, *_ in NUMBERS}))
def test_a_composed_configuration_has_the_papers_numbers(task: str, method: str) -> None:
    expected = {key: value for of_task, of_method, key, value, _ in NUMBERS if (of_task, of_method) == (task, method)}
    for choice in (f"task={task}", f"experiment=duel_evolve/{FIGURES[task]}"):
        config = OmegaConf.create(composed(choice, f"method={method}"))
        assert {key: OmegaConf.select(config, key) for key in expected} == expected, choice


@pytest.mark.parametrize(
    ("name", "task", "model", "accuracy", "by_stratum"),
    [
        (
            "figure2",  # section 4.3: 94 %, the strongest baseline 22 points below; Figure 2, left: 98, 92 and 92 %
            MATHBENCH,
            "gemma3_4b",
            {"duel_evolve": 0.94, "feedback_descent": 0.72},
            {"duel_evolve": {"middle": 0.98, "high": 0.92, "college": 0.92}},
        ),
        ("figure3", LIVECODEBENCH, "gemma3_27b_w4a16", {"duel_evolve": 0.374}, None),  # section 4.3: 37.4 %
    ],
)
def test_an_experiment_carries_what_the_paper_reports(
    name: str, task: str, model: str, accuracy: dict[str, float], by_stratum: Any
) -> None:
    config = OmegaConf.create(composed(f"experiment=duel_evolve/{name}"))
    assert (config.task.name, config.model.name) == (task, model)
    reported = OmegaConf.to_container(config.reported)
    assert isinstance(reported, dict)
    rows = reported["rows"]
    assert {row["method"]: row["accuracy"] for row in rows} == accuracy
    assert {row["method"]: row["by_stratum"] for row in rows if "by_stratum" in row} == (by_stratum or {})
    swept = yaml.safe_load(Path(config_folder(), "experiment", "duel_evolve", f"{name}.yaml").read_text())["hydra"]
    assert swept["sweeper"]["params"]["method"].split(",") == list(ALL)


@pytest.mark.parametrize("method", ["grpo", "cispo", "rloo"])
@pytest.mark.parametrize("task", ["aime", "beyond_aime", "dapo_aime25", "hmmt", "arithmetic"])
def test_reinforcement_learning_has_the_e_spl_papers_numbers(method: str, task: str) -> None:
    config = OmegaConf.create(composed(f"task={task}", f"method={method}"))
    assert {key: OmegaConf.select(config, key) for key in E_SPL} == {key: value for key, (value, _) in E_SPL.items()}
    if method == "grpo":  # section 3.1: the log-probability of a whole completion, not of its tokens on average
        assert config.method.loss == "dr_grpo"
