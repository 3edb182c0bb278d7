"""PPO with a scripted model and a policy that only takes notes: its trainer learns from rewards, of single episodes."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from building import make_config, make_method, simulated_run
from evorun.errors import ConfigError, TrainingError
from evorun.methods.learning.ppo import PpoConfig
from evorun.runs.reading import read_rollouts
from evorun.testing.runs import COMPLETED
from evorun.training.objectives import ProximalSettings
from evorun.training.wire import Figures, ProximalPolicy, Row, TokenAdvantages
from learning_fixture import NotedPolicy, train
from method_fixture import Ask

SINGLE: dict[str, Any] = {"method": "ppo", "problems_per_step": 5, "group": 1}


async def test_rows_have_the_rewards_of_single_episodes(tmp_path: Path) -> None:
    def script(ask: Ask) -> str | None:
        return ("right", "wrong", "?", "right...", None)[ask.index]

    trained = await train(tmp_path, script, steps=1, missing_eos_penalty=0.5, format_reward=0.25, **SINGLE)
    [batch] = trained.policy.batches
    assert [row.reward for row in batch] == [1.25, 0.25, 0.0, 0.25 - 0.5]
    assert [row.advantage for row in batch] == [None] * 4
    rollouts = read_rollouts(trained.folder)
    assert [one.reward for one in rollouts] == [1.25, 0.25, 0.0, 0.25, None]
    assert [one.penalised_reward for one in rollouts] == [UNSET, UNSET, UNSET, -0.25, UNSET]
    # This trainer reports no advantages; of the last episode it has none.
    assert [one.advantage for one in rollouts] == [UNSET] * 4 + [None]
    [record] = trained.records("training")
    assert record["figures"]["reward"] == pytest.approx((1.25 + 0.25 + 0 + 0.25) / 4)  # the task's, without the penalty
    assert "equal_groups" not in record["figures"]


async def test_advantages_that_the_trainer_reports_are_recorded_with_their_episodes(tmp_path: Path) -> None:
    class Reporting(NotedPolicy):
        fails = True

        async def update(self, step: int, rows: Sequence[Row], *, rewards_changed: bool = False, **_: Any) -> Figures:
            noted = await super().update(step, rows, rewards_changed=rewards_changed)
            if step == 2 and self.fails:
                raise TrainingError("diverged")
            return Figures(noted.figures, (TokenAdvantages(0.5, 1.0), None, TokenAdvantages(-0.25, 0.0)))

    script: Any = lambda ask: ("right", None, "wrong", "right", None)[ask.index]  # noqa: E731
    with pytest.raises(TrainingError, match="diverged"):
        await train(tmp_path, script, steps=2, policy=Reporting(), **SINGLE)
    rollouts = read_rollouts(tmp_path)
    assert [one.advantage for one in rollouts[:5]] == [0.5, None, UNSET, -0.25, None]
    assert [one.advantage_sd for one in rollouts[:5]] == [1.0, UNSET, UNSET, 0.0, UNSET]
    assert len(rollouts) == 5  # those of the failed update come with the advantages of the one that succeeds
    resumed = Reporting()
    resumed.fails = False
    await train(tmp_path, script, steps=2, policy=resumed, **SINGLE)
    assert [one.advantage for one in read_rollouts(tmp_path)] == [0.5, None, UNSET, -0.25, None] * 2


async def test_equal_rewards_are_learned_from_and_a_batch_without_any_is_not(tmp_path: Path) -> None:
    """The critic and the divergence from the reference policy have a gradient whatever the rewards are."""
    trained = await train(tmp_path, lambda ask: "right" if ask.step == 1 else None, steps=2, **SINGLE)
    assert [len(batch) for batch in trained.policy.batches] == [5]


async def test_a_system_prompt_of_ones_own_is_trained_and_tested_under(tmp_path: Path) -> None:
    trained = await train(tmp_path, steps=1, system_prompt="Be right.", **SINGLE)
    assert {ask.instruction for ask in trained.model.asked} == {"Be right."}


def test_what_the_trainer_is_told() -> None:
    told = make_method("ppo", steps=7, temperature=0.5, value_clip=None, critic="head").make_objective(Path())
    assert isinstance(told, ProximalPolicy)
    assert (told.steps, told.temperature, told.settings.value_clip, told.settings.critic) == (7, 0.5, None, "head")
    settings = told.settings
    assert (settings.epochs, settings.kl, settings.clip) == (4, 0.05, 0.2)
    assert (settings.gae_lambda, settings.value_weight) == (0.95, 0.1)


CHANGED: dict[str, Any] = {
    **{"epochs": 2, "minibatches": 2, "kl": 0.1, "kl_estimator": "k3", "gamma": 0.9, "gae_lambda": 0.9, "clip": 0.1},
    **{"value_clip": None, "value_weight": 0.5, "whiten": False, "score_at": "after", "critic": "head"},
    **{"popart": 0.5, "reset_critic": True},
}


def test_every_field_of_the_trainer_has_an_effect() -> None:
    """The penalty has a test above; the fields of the loop, in test_policy_gradient.py."""
    assert {*CHANGED, "missing_eos_penalty"} == {one.name for one in dataclasses.fields(ProximalSettings)}
    before = make_method("ppo").make_objective(Path())
    assert [key for key in CHANGED if make_method("ppo", **{key: CHANGED[key]}).make_objective(Path()) == before] == []
    assert issubclass(PpoConfig, ProximalSettings)


@pytest.mark.parametrize(
    ("problems", "size", "epochs", "lengths", "said"),
    [
        (10, 4, 1, [4, 4, 2], "one epoch of 10 training problems: 3 steps of 4, the last one of 2"),
        (6, 4, 2, [4, 4, 4], "2 epochs of 6 training problems: 3 steps of 4, the last one of 4"),
    ],
)
def test_an_epoch_has_each_training_problem_once(
    problems: int, size: int, epochs: int, lengths: list[int], said: str, tmp_path: Path
) -> None:
    """MPO, section 3.2: training for one epoch; here the last batch has what is left."""
    words = ("method=ppo", "task=arithmetic", f"task.train_problems={problems}", f"method.problems_per_step={size}")
    few = ("task.test_problems=1", "method.eval_samples=0", f"method.data_epochs={epochs}")
    run = simulated_run(tmp_path / "run", *words, *few, "method.steps=null")
    assert run.outcome == COMPLETED
    played = run.records("rollouts")
    assert list(Counter(one["step"] for one in played).values()) == lengths
    assert set(Counter(one["problem"] for one in played).values()) == {epochs}
    assert f": {said}\n" in (run.path / "evorun.log").read_text()


@pytest.mark.parametrize(("problems", "size", "steps"), [(26_013, 64, 407), (13_000, 64, 204), (18_949, 32, 593)])
def test_an_epoch_of_the_papers_data_has_as_many_steps_as_it_has_batches(problems: int, size: int, steps: int) -> None:
    """The learning rate falls to 0 over the same number of steps."""
    ppo = make_method("ppo", problems_per_step=size, steps=None)
    ppo.fit_to(problems)
    assert ppo.last_step == ppo.make_objective(Path()).steps == steps


@pytest.mark.parametrize(("field", "value"), [("group", 0), ("epochs", 0), ("steps", 0)])
def test_values_out_of_range_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^method\.{field}: expected "):
        make_config("method", "ppo", **{field: value})
