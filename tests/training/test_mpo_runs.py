"""A run of MPO that trains with PPO: the same after kills, and that it repeats without a trainer or torch."""

import json
from pathlib import Path
from typing import Any

import pytest
from parity_task import EMBEDDED, NO_TOKENIZER, effects, finished, lines, records, write_model
from test_training_runs import assert_the_same, killed, repeat_without_torch

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.slow,
    pytest.mark.skipif(not EMBEDDED, reason=NO_TOKENIZER),
]

MPO: dict[str, Any] = {
    **{"name": "mpo", "group": 1, "problems_per_step": 4, "epochs": 2, "critic": "head", "refine_every": 1},
    **{"refine_samples": 2, "reward_max_tokens": 6, "meta_max_tokens": 12},
}
SETTINGS: dict[str, Any] = {"seed": 1, "method": MPO, "training": {"max_grad_norm": None}}
"""With this seed the random model writes something for each refinement."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A run that nothing has disturbed."""
    return finished(tmp_path_factory.mktemp("undisturbed") / "run", model, **SETTINGS)


def test_the_critic_learns_and_rubrics_follow_each_other(run: Path) -> None:
    training = [line["figures"] for line in lines(run / "training.jsonl")]
    assert len(training) == 4
    assert all({"policy_loss", "value_loss", "reward_raw"} <= one.keys() for one in training)
    assert ["rubrics_refined" in one for one in training] == [True] * 3 + [False]  # no batch is left for a fifth rubric
    assert all(one["grad_norm"] > 0 == one["clipped_gradients"] for one in training)  # max_grad_norm is null
    learned = [one for one in lines(run / "rollouts.jsonl") if one["reward"] is not None]
    assert all(one["advantage_sd"] >= 0 for one in learned)
    # Whitened over all tokens of a batch, so of mean 0 where episodes are weighed by their tokens.
    weighed = [(one["step"], one["advantage"] * one["completion_tokens"]) for one in learned]
    sums = {step: sum(own for at, own in weighed if at == step) for step, _ in weighed}
    assert sums == {step: pytest.approx(0, abs=1e-4) for step in (1, 2, 3, 4)}
    rubrics = [one for one in lines(run / "candidates.jsonl") if one["kind"] == "rubric"]
    assert len(rubrics) == 4
    assert {line["rubric"] for line in lines(run / "rollouts.jsonl")} == {one["id"] for one in rubrics}
    assert json.loads((run / "artifacts" / "rubrics.json").read_text())[""]["id"] == rubrics[-1]["id"]


@pytest.mark.nightly  # test_training_runs.py goes on after losses, methods/test_mpo.py after breakdowns
def test_a_killed_run_ends_as_if_nothing_had_happened(run: Path, model: Path, tmp_path: Path) -> None:
    """Killed as a rubric is merged beside the first update, and while the second checkpoint is written. A trainer that
    is killed in an update of policy and critic is in test_steps_in_processes.py."""
    again = tmp_path / "run"
    left = {moment: killed(again, model, SETTINGS, moment) for moment in ("refinement", "checkpoint")}
    assert left["checkpoint"] == {"update-2", "unfinished"}
    finished(again, model, **SETTINGS)
    assert_the_same(again, run)
    assert effects(again).keys() == effects(run).keys()
    assert "made again" not in (again / "evorun.log").read_text()


@pytest.mark.nightly  # test_training_runs.py repeats GRPO's
def test_it_repeats_without_a_trainer_or_torch(run: Path, model: Path, tmp_path: Path) -> None:
    repeat_without_torch(run, model, SETTINGS, tmp_path / "run")
    assert records(tmp_path / "run") == records(run)
