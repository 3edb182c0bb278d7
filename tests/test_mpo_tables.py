"""MPO's experiments beside the paper: Tables 1 to 8 copied by hand, and runs that can stand beside them."""

from typing import Any

import pytest
from omegaconf import OmegaConf

from building import composed
from evorun.cli.groups import config_folder
from evorun.reports.comparison.reported import find_paper_name

Rows = dict[tuple[str, ...], Any]

SIZES = {"qwen2_5_32b_awq": "32B", "qwen2_5_72b_awq": "72B", "llama3_1_8b": "8B"}

ELO: dict[str, Rows] = {
    # the run -> (Elo, standard deviation); iter0, expert, oracle.md: PPO under that rubric, AP: AutoPrompt's
    "reward_models": {  # Table 1, left
        ("MPO", "32B", "32B"): (973, 12),
        ("MPO", "32B", "72B"): (1005, 5),
        ("MPO", "72B", "32B"): (985, 7),
        ("MPO", "72B", "72B"): (1037, 10),
    },
    "essay": {  # Table 1, right
        ("MPO", "32B"): (1168, 7),
        ("initial", "32B"): (984, 10),
        ("expert", "32B"): (1084, 17),
        ("AP", "32B"): (970, 15),
        ("base", "32B"): (794, 11),
        ("MPO", "72B"): (1244, 8),
        ("initial", "72B"): (1111, 7),
        ("expert", "72B"): (706, 12),
        ("AP", "72B"): (1050, 15),
        ("base", "72B"): (889, 10),
    },
    "billsum": {("base",): (819, 21), ("PPO",): (953, 19), ("AP",): (1149, 12), ("MPO",): (1079, 12)},  # Table 2
    "oracle": {  # Table 4
        ("MPO", "32B"): (1039, 11),
        ("MPO", "72B"): (1064, 14),
        ("PPO", "32B"): (894, 13),
        ("PPO", "72B"): (1003, 17),
    },
    "policy_scaling": {("MPO", "8B"): (1016.072, 4.687), ("PPO", "8B"): (953.504, 10.049)},  # Table 6
    "ablation_meta_analysis": {  # Table 7
        ("PPO",): (979.897, 20.773),
        ("no analysis",): (990.093, 15.351),
        ("MPO",): (1030.009, 5.903),
    },
}
ROUGE: Rows = {  # Table 2, R-L, R-Lsum
    ("base",): (41.85, 20.83, 27.85, 27.84),
    ("PPO",): (45.97, 23.57, 30.29, 30.29),
    ("AP",): (45.92, 21.98, 28.80, 30.22),
    ("MPO",): (48.00, 24.96, 30.97, 30.98),
}
ACCURACY: dict[str, Rows] = {  # Table 3
    "ethics": {("base",): 33.80, ("PPO",): 63.79, ("AP",): 58.68, ("MPO",): 68.60},
    "math": {("base",): 17.90, ("PPO",): 48.77, ("AP",): 49.29, ("MPO",): 50.38},
}
FOREIGN: Rows = {  # Table 5: PPO and MPO, by step
    ("PPO",): [[10, 0.00406], [20, 0.00229], [30, 0.0], [40, 0.10714], [50, 0.22957]],
    ("MPO",): [[10, 0.0], [20, 0.0], [30, 0.0], [40, 0.0], [50, 0.0]],
}


def reported(name: str) -> Rows:
    """Return an experiment's reported rows by what the paper calls their runs."""
    rows = composed(f"experiment=mpo/{name}")["reported"]["rows"]
    found = {_called(row): row for row in rows}
    assert len(found) == len(rows)
    return found


def _called(row: dict[str, Any]) -> tuple[str, ...]:
    chosen = row.get("overrides", {}) | row.get("among", {})
    what = {"zero_shot": "base", "ppo": "PPO", "mpo": "MPO"}[row["method"]]
    if chosen.get("method.refine_schedule") == "before":
        what = "AP"
    if chosen.get("method.meta_analysis") is False:
        what = "no analysis"
    what = chosen.get("method.rubric", what)
    return (what, *(SIZES[chosen[role]] for role in ("reward", "meta") if role in chosen))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ELO)
def test_ratings_and_their_deviations_are_those_of_the_papers_tables(name: str) -> None:
    assert {run: (row["metrics"]["elo"], row["sd"]["elo"]) for run, row in reported(name).items()} == ELO[name]


def test_rouge_is_that_of_table_2() -> None:
    names = ("rouge1", "rouge2", "rougeL", "rougeLsum")
    found = {run: tuple(100 * row["metrics"][name] for name in names) for run, row in reported("billsum").items()}
    assert found == {run: pytest.approx(scores) for run, scores in ROUGE.items()}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ACCURACY)
def test_accuracies_are_those_of_table_3(name: str) -> None:
    found = {run: 100 * row["accuracy"] for run, row in reported(name).items()}
    assert found == pytest.approx(ACCURACY[name])


def test_shares_of_foreign_characters_are_those_of_table_5() -> None:
    found = {run: row["steps"]["monitor_foreign_script"] for run, row in reported("reward_hacking").items()}
    assert found == FOREIGN


def test_run_times_are_those_of_table_8() -> None:
    found = {run: row["metrics"]["relative_run_time"] for run, row in reported("overhead").items()}
    assert found == {("PPO",): 1.00, ("MPO",): 1.11}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", [*ELO, *ACCURACY, "reward_hacking", "overhead"])
def test_test_texts_are_written_before_and_after_training_alone(name: str) -> None:
    """As in the paper (section 3.2): evaluations in between would take longer than training, on all test prompts."""
    for method in ("mpo", "ppo"):
        config = composed(f"experiment=mpo/{name}", f"method={method}")
        assert config["method"]["eval_every"] is None or (config["task"]["limit"] or 4096) <= 64


def test_the_runs_of_table_5_learn_at_the_rate_of_a_whole_epoch() -> None:
    config = composed("experiment=mpo/reward_hacking")
    assert config["training"]["schedule"] == "linear"
    assert config["method"]["steps"] is None


def test_the_runs_of_table_8_are_training_and_refine_as_often_as_appendix_g_says() -> None:
    [variant] = _experiment("overhead")["hydra"]["sweeper"]["variants"]
    assert variant["method.refine_every"] == 20
    for method in ("mpo", "ppo"):
        config = composed("experiment=mpo/overhead", f"method={method}")
        texts_to_test = 2 * config["task"]["limit"] * (1 + config["method"]["eval_samples"])
        assert texts_to_test < config["method"]["problems_per_step"]
        # What is refined after step 40 has a step to be used in.
        assert (config["method"]["steps"], config["method"]["problems_per_step"]) == (41, 64)


def _experiment(name: str) -> Any:
    return OmegaConf.to_container(OmegaConf.load(config_folder() / "experiment" / "mpo" / f"{name}.yaml"))


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["essay", "billsum", "ethics", "math"])
def test_autoprompts_arm_has_its_name_whatever_model_makes_its_rubric(name: str) -> None:
    config = composed(f"experiment=mpo/{name}", "method.refine_schedule=before")
    found = find_paper_name(config, "mpo", config["task"]["name"], config["model"]["name"])
    assert found == "PPO 32b_AP"
