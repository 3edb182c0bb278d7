"""The identity of runs: a directory is never continued as something that it is not."""

import json
from pathlib import Path
from typing import Any

import pytest

from building import composed
from evorun.errors import ConfigError
from evorun.methods.search.chain_of_thought import ZeroShot
from evorun.models.config import ModelConfig, ServedModel
from evorun.rollouts.calls import Role
from evorun.runner.settings import check
from evorun.runs.directory import config_digest
from evorun_process import DRY_RUN, SMALL, evorun_here, reopen


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    done = evorun_here(*DRY_RUN, *SMALL, "hydra.run.dir=run", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            ("engine=server", "engine.base_urls=[http://127.0.0.1:9/v1]"),
            "holds a run that is simulated, this one is not simulated",
        ),
        (("engine.skill=0.9",), "engine.skill: 0.35 in the directory, 0.9 now"),
        (("judge_engine=simulated", "judge_engine.judge_skill=1.0"), "judge_engine"),
    ],
)
def test_a_simulated_run_is_not_continued_as_another(
    simulated: Path, tmp_path: Path, change: tuple[str, ...], expected: str
) -> None:
    before = (simulated / "manifest.json").read_bytes()
    groups = {argument.partition("=")[0] for argument in change} & {"engine"}
    kept = [argument for argument in (*DRY_RUN, *SMALL) if argument.partition("=")[0] not in groups]
    done = evorun_here(*kept, *change, f"hydra.run.dir={simulated}", cwd=tmp_path)
    assert done.returncode == 1
    assert expected in done.stderr
    assert (simulated / "manifest.json").read_bytes() == before


def checked(*overrides: str) -> Any:
    return check(composed(*overrides))


def test_a_judge_engine_alone_serves_the_same_model_elsewhere() -> None:
    config = checked("model=gemma3_4b", "engine=simulated", "judge_engine=replay")
    assert config.others["judge"].model == config.model
    assert config.others["judge"].engine.name == "replay"
    assert checked("engine=simulated").others == {}


REWARD = {"reward": {"name": "other", "id": "other"}, "reward_engine": {"name": "policy"}}


def test_a_role_that_the_method_has_is_given_a_model_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    config = composed("engine=simulated", "method=zero_shot")
    with pytest.raises(
        ConfigError, match=r"^reward: has no effect, method=zero_shot asks no reward model; leave it out$"
    ):
        check({**config, **REWARD})
    monkeypatch.setattr(ZeroShot, "roles", {"score": Role("reward")})
    given = check({**config, **REWARD})
    assert given.others == {"reward": ServedModel(ModelConfig(name="other", id="other"), given.engine)}
    assert check({**config, "reward": {"name": "policy"}}).others == {}


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("++judge.idd=x", "judge.idd: unknown key"),
        ("++judge_engine.nonsense=3", "judge_engine.nonsense: unknown key"),
        ("+whatever=1", "whatever: unknown key; the top level has method"),
        ("run=3", r"run: expected a group of settings \(run.KEY=VALUE\), got 3"),
        ("method.prior_sd=inf", "method.prior_sd: expected a number > 0, got inf"),
        ("method.bound_width=nan", "method.bound_width: expected a number >= 0, got nan"),
        ("method.recent_share=nan", "method.recent_share"),
    ],
)
def test_what_no_schema_knows_is_refused(override: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        checked(override)


def test_the_seconds_of_a_resumed_run_add_up(simulated: Path, tmp_path: Path) -> None:
    first = json.loads((simulated / "manifest.json").read_text())["seconds"]
    reopen(simulated)
    assert evorun_here("resume", simulated, cwd=tmp_path).returncode == 0
    assert json.loads((simulated / "manifest.json").read_text())["seconds"] > first


def test_what_task_and_budget_have_for_methods_counts_by_what_the_method_has_of_it() -> None:
    config = {"method": {"max_tokens": 9}, "task": {"sampling": {"max_tokens": 9}}, "budget": {"methods": {}}}
    unread = {**config, "task": {"sampling": {"max_tokens": 8}}, "budget": {"methods": {"gepa": {"generations": 7}}}}
    read = {**config, "method": {"max_tokens": 8}}
    assert config_digest(unread) == config_digest(config) != config_digest(read)


def test_how_a_trainer_works_is_no_part_of_a_run_and_what_it_learns_is() -> None:
    training = {"name": "lora", "learning_rate": 1e-4, "micro_batch": 10, "num_processes": 1, "keep": 2}
    config = {"seed": 0, "method": {"name": "grpo"}, "training": training}
    smaller = {**config, "training": {**training, "micro_batch": 2, "num_processes": 4, "nodes": 2, "keep": 1}}
    faster = {**config, "training": {**training, "learning_rate": 1e-3}}
    assert config_digest(smaller) == config_digest(config) != config_digest(faster)
