"""The GPUs that child processes are told to use, as their environment says."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from building import make_config, training_config
from evorun.errors import ConfigError
from evorun.models.config import ModelConfig
from evorun.models.devices import VISIBLE, describe_visible_gpus, device_environment, visible_gpus
from evorun.models.vllm.startup import start_engine


@pytest.fixture(name="four")
def _four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose driver reports four GPUs."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '0\\n1\\n2\\n3\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv(VISIBLE, raising=False)


@pytest.mark.parametrize(
    ("given", "seen"), [(None, ["0", "1", "2", "3"]), ("3,GPU-5c", ["3", "GPU-5c"]), ("", [])], ids=str
)
def test_gpus_are_those_that_a_scheduler_has_given(
    given: str | None, seen: list[str], four: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given is not None:
        monkeypatch.setenv(VISIBLE, given)
    assert visible_gpus() == seen


def test_a_manifest_has_the_gpus_that_its_run_could_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    lines = "".join(f"{index}, GPU-{index}c, NVIDIA H100 {index}, 81559 MiB\\n" for index in range(4))
    tool.write_text(f"#!/bin/sh\ncase $1 in *=index) printf '0\\n1\\n2\\n3\\n';; *) printf '{lines}';; esac\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv(VISIBLE, "3,GPU-1c,MIG-7")
    assert describe_visible_gpus() == ["NVIDIA H100 3, 81559 MiB", "NVIDIA H100 1, 81559 MiB", "MIG-7"]
    monkeypatch.delenv(VISIBLE)
    assert len(describe_visible_gpus()) == 4


def test_devices_are_numbers_among_them(four: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_environment("engine.devices", None) == {}
    assert device_environment("engine.devices", [2, 1]) == {VISIBLE: "2,1"}
    with pytest.raises(ConfigError, match=r"^engine.devices: expected GPUs of this machine, which has GPUs 0 to 3, go"):
        device_environment("engine.devices", [1, 4])
    monkeypatch.setenv(VISIBLE, "3,GPU-5c")
    assert device_environment("engine.devices", [1]) == {VISIBLE: "GPU-5c"}
    monkeypatch.setenv(VISIBLE, "")
    with pytest.raises(ConfigError, match=r"which has no GPU, got 0"):
        device_environment("training.devices", [0])


@pytest.mark.parametrize("devices", [[], [0, 0], [-1]])
def test_lists_that_name_no_gpus(devices: list[int]) -> None:
    with pytest.raises(ConfigError, match=r"devices: expected different GPU numbers from 0"):
        make_config("engine", "vllm", devices=devices)


def test_each_part_needs_one_gpu() -> None:
    assert make_config("engine", "vllm", devices=[1, 3], tensor_parallel_size=2).gpus == 2
    assert (copies := make_config("engine", "vllm", devices=[1, 3])).copies == copies.gpus == 2
    with pytest.raises(ConfigError, match=r"engine.devices: expected a multiple of 2 GPUs, as engine.tensor_parallel_"):
        make_config("engine", "vllm", devices=[1, 3, 4], tensor_parallel_size=2)
    with pytest.raises(ConfigError, match=r"engine.devices: expected 2 GPUs, as engine.tensor_parallel_size and engi"):
        make_config("engine", "vllm", devices=[1, 3, 4, 5], tensor_parallel_size=1, replicas=2)
    assert training_config(devices=[0, 1]).processes == 2
    with pytest.raises(ConfigError, match=r"training.devices: expected a GPU for each of training.num_processes=1"):
        training_config(devices=[0, 1], num_processes=1)


@dataclass
class _Arguments:
    """Of an engine that takes none."""


def test_vllms_processes_see_the_engines_gpus_and_this_one_what_it_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []
    modules: dict[str, Any] = {
        "vllm.engine.arg_utils": SimpleNamespace(AsyncEngineArgs=_Arguments),
        "vllm.v1.engine.async_llm": SimpleNamespace(
            AsyncLLM=SimpleNamespace(from_engine_args=lambda arguments: seen.append(os.environ.get(VISIBLE)))
        ),
    }
    for name in ("vllm", "vllm.engine", "vllm.v1", "vllm.v1.engine"):
        modules[name] = ModuleType(name)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv(VISIBLE, "4,5,6")
    model = ModelConfig(name="m", id="m")
    start_engine(model, {}, device_environment("engine.devices", [2, 0]))
    start_engine(model, {}, {})
    assert [*seen, os.environ[VISIBLE]] == ["6,4", "4,5,6", "4,5,6"]
