"""Every file under conf/ composes, and says the same as the schema that it fills."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from building import composed
from evorun.cli.compose import config_folder
from evorun.errors import ConfigError
from evorun.runner import registry
from evorun.runner.settings import check
from evorun.runs.budget import BudgetConfig

SCHEMAS: dict[str, Any] = {
    **{f"method/{name}": registry.method_class(name).Config for name in registry.METHODS},
    **{f"task/{name}": registry.task_config_class(name) for name in registry.TASKS},
    "budget/unlimited": BudgetConfig,
    **{f"engine/{name}": registry.engine_config_class(name) for name in registry.ENGINES},
}

EXPERIMENTS = sorted(
    file.relative_to(config_folder() / "experiment").with_suffix("").as_posix()
    for file in (config_folder() / "experiment").rglob("*.yaml")
)


@pytest.mark.parametrize("name", SCHEMAS)
def test_yaml_and_schema_say_the_same(name: str) -> None:
    content = yaml.safe_load((config_folder() / f"{name}.yaml").read_text())
    content.pop("defaults", None)
    written: Any = OmegaConf.to_container(OmegaConf.create(content), resolve=True)
    schema = SCHEMAS[name]
    assert set(written) == {field.name for field in dataclasses.fields(schema)}
    defaults = dataclasses.asdict(schema(name=Path(name).name))
    del written["name"]
    written.pop("description", None)
    assert written == {key: defaults[key] for key in written}


def test_every_method_task_and_engine_has_a_file() -> None:
    for group, names in (("method", registry.METHODS), ("task", registry.TASKS), ("engine", registry.ENGINES)):
        assert {file.stem for file in (config_folder() / group).glob("*.yaml")} - {"auto"} == set(names)


def test_the_automatic_engine_is_vllm_only_with_a_gpu_and_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen() -> str:
        return check(composed("engine=auto")).engine.name

    monkeypatch.setenv("PATH", str(tmp_path))
    assert chosen() == "transformers"
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    (tmp_path / "vllm.py").write_text("")
    assert chosen() == "transformers"
    monkeypatch.syspath_prepend(tmp_path)
    assert chosen() == "vllm"
    with pytest.raises(ConfigError, match=r"engine\.max_num_seqs: unknown key"):
        check(composed("engine=auto", "++engine.max_num_seqs=3"))


def test_what_a_method_does_otherwise_on_a_task_is_composed_beneath_the_command_line() -> None:
    for method in registry.METHODS:
        fields = {field.name for field in dataclasses.fields(registry.method_class(method).Config)}
        for task in registry.TASKS:
            file = config_folder() / "method_on_task" / f"{method}_on_{task}.yaml"
            special = yaml.safe_load(file.read_text()) if file.exists() else {}
            for other in special.pop("defaults", ()):  # the same as on another task
                special |= yaml.safe_load(file.with_name(f"{other}.yaml").read_text())
            assert set(special) <= fields
            made = composed(f"method={method}", f"task={task}")["method"]
            assert special.items() <= made.items()
    changed = composed("method=duel_evolve", "task=livecodebench", "++method.children=7")["method"]
    assert (changed["children"], changed["parents"]) == (7, 5)


def test_special_settings_belong_to_a_method_and_a_task() -> None:
    pairs = {f"{method}_on_{task}" for method in registry.METHODS for task in registry.TASKS}
    assert {file.stem for file in (config_folder() / "method_on_task").glob("*.yaml")} <= pairs


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_composes(name: str) -> None:
    check(composed(f"experiment={name}"))


@pytest.mark.parametrize("name", sorted(file.stem for file in (config_folder() / "budget").glob("*.yaml")))
def test_every_budget_composes(name: str) -> None:
    check(composed(f"budget={name}"))


@pytest.mark.parametrize("name", sorted(file.stem for file in (config_folder() / "model").glob("*.yaml")))
def test_every_model_can_generate_and_judge(name: str) -> None:
    local = ["++model.id=x", "++judge.id=x"] if name in ("local", "api") else []
    config = check(composed(f"model={name}", f"judge={name}", *local))
    assert config.model.name == config.others["judge"].model.name == name
