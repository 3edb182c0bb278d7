"""Transfers of all weights to vLLM after an update: the choices and refusals of `training.weight_transfer`."""

from typing import Any

import pytest

from building import make_config, training_config
from evorun.errors import ConfigError
from evorun.models.config import ModelConfig
from evorun.runner import weight_transfers
from evorun.runner.weight_transfers import choose_transfer, require_transfer

MODEL = ModelConfig(name="m", id="m")


@pytest.fixture(autouse=True)
def _gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_transfers, "visible_gpus", lambda: list("01234567"))
    monkeypatch.setattr(weight_transfers, "is_cpu_build", lambda: False)


def choose(transfer: str, vllm: list[int], trainer: list[int] | None, **training: Any) -> str:
    values = {"weights": "full", "weight_transfer": transfer, "num_processes": len(trainer or [0]), **training}
    return choose_transfer(training_config(**values), MODEL, make_config("engine", "vllm", devices=vllm), trainer)


@pytest.mark.parametrize(
    ("vllm", "trainer", "chosen"),
    [
        ([0], None, "ipc"),  # a single GPU for both
        ([1, 0], [0, 1, 2], "ipc"),  # each of vLLM's processes finds a trainer's on its GPU
        ([0, 1, 2, 3], [4, 5], "nccl"),
        ([1, 2], [0, 1], "nccl"),  # the trainer's first process is apart
        ([0, 2], [0, 1], "folder"),  # neither: two ranks of NCCL on a GPU, and one of vLLM's alone
    ],
)
def test_each_placement_has_its_way(vllm: list[int], trainer: list[int] | None, chosen: str) -> None:
    assert choose("auto", vllm, trainer) == chosen
    assert choose("folder", vllm, trainer) == "folder"
    for other in {"ipc", "nccl"} - {chosen}:
        if other == "nccl" and chosen == "ipc" and (trainer or [0])[0] not in vllm:
            continue
        with pytest.raises(ConfigError) as caught:
            choose(other, vllm, trainer)
        said = str(caught.value)
        assert said.startswith("training.weight_transfer: expected auto or folder, since vLLM is on GPU ")
        assert said.endswith(f"; got {other}")


def test_where_neither_can_be_the_folder_is_chosen_and_others_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**training: Any) -> str:
        assert choose("auto", [0], None, **training) == "folder"
        with pytest.raises(ConfigError) as caught:
            choose("ipc", [0], None, **training)
        return str(caught.value)

    assert "since vLLM reads adapters from a folder alone" in refused(weights="lora")
    assert "since training.accelerate_config decides which GPUs" in refused(accelerate_config=__file__)
    assert "since the trainer is on several nodes" in refused(nodes=2, num_processes=2)
    monkeypatch.setattr(weight_transfers, "visible_gpus", list)
    assert "since there is no GPU" in refused()
    monkeypatch.setattr(weight_transfers, "is_cpu_build", lambda: True)
    assert "since vLLM's CPU build has no transfers" in refused()


def test_what_no_machine_can_do_is_refused_at_composition() -> None:
    asked = training_config(weights="full", weight_transfer="nccl")
    quantised = ModelConfig(name="m", id="m", quantization="mxfp4")
    vllm = make_config("engine", "vllm")
    require_transfer(asked, MODEL, vllm)
    with pytest.raises(ConfigError, match=r"weights are quantised \(mxfp4\), and the trainer's are not; got nccl"):
        require_transfer(asked, quantised, vllm)
    with pytest.raises(ConfigError, match="only vLLM in the run's own process receives weights, not engine=transf"):
        require_transfer(asked, MODEL, make_config("engine", "transformers"))
    with pytest.raises(ConfigError, match="since only vLLM in the run's own process receives weights, not engine=ser"):
        require_transfer(asked, MODEL, make_config("engine", "server"))


def test_vllm_opens_ready_to_receive() -> None:
    own = make_config("engine", "vllm", extra_args={"kv_cache_dtype": "fp8"}).for_transfer("ipc")
    arguments = own.engine_arguments(MODEL, "folder")
    assert arguments["weight_transfer_config"] == {"backend": "ipc"}
    assert arguments["worker_extension_cls"] == "evorun.models.vllm.worker.IpcWorkerExtension"
    assert arguments["kv_cache_dtype"] == "fp8"
    with pytest.raises(ConfigError, match="expected neither weight_transfer_config nor worker_extension_cls"):
        make_config("engine", "vllm", extra_args={"worker_extension_cls": "a.B"}).for_transfer("nccl")
