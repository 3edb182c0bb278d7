"""Weights that vLLM's CPU build receives from a trainer's process, through main memory; the oracle is transformers."""

from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from test_vllm_weights import Drowsy, distance, sample, write_model

from building import make_config, make_job, policy_gradient, training_config
from evorun.errors import EngineError, WeightsLost
from evorun.models.base import WeightReceiver
from evorun.models.config import ModelConfig
from evorun.models.vllm.engine import VllmModel
from evorun.models.vllm.sleep import SleepMode
from evorun.training.process import TrainerProcess
from evorun.training.wire import Export, Row, Send, Train
from shared_memory_transfer import sending_trainers

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed (make test-vllm)"),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"), seed=0)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine(folder: Path) -> AsyncIterator[VllmModel]:
    extra = {
        "weight_transfer_config": {"backend": "main_memory"},
        "worker_extension_cls": "main_memory_worker.Extension",
    }
    config = make_config("engine", "vllm", max_model_len=1024, max_num_seqs=8, cpu_kv_cache_gib=0.25, extra_args=extra)
    model = await config.open(ModelConfig(name="random", id=str(folder), context_length=1024, dtype="float32"))
    assert isinstance(model, VllmModel)
    yield model
    await model.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def trainer(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TrainerProcess]:
    own = tmp_path_factory.mktemp("trainer")
    job = make_job(folder, own, training_config(weights="full", learning_rate=0.01), policy_gradient(steps=9))
    with sending_trainers():
        trainer = await TrainerProcess.start(job, own / "trainer.log")
        yield trainer
        await trainer.close()


def sending(
    trainer: TrainerProcess, version: int, transfer: str = "ipc"
) -> Callable[[WeightReceiver], Awaitable[None]]:
    async def send(to: WeightReceiver) -> None:
        number = -to.number if transfer == "nccl" else to.number  # met anew, by another way
        command = Send(version=version, transfer=transfer, engine=number, processes=to.processes)
        await trainer.send(command, to.call)

    return send


async def update(trainer: TrainerProcess, number: int, folder: Path) -> Path:
    """Make an update; return a folder with the weights after it."""
    shared: dict[str, Any] = {
        "prompt": (5, 6, 7),
        "tokens": (8, 9, 10),
        "learned": (True,) * 3,
        "logprobs": (-7.0,) * 3,
    }
    rows = tuple(Row(**shared, reward=worth, advantage=worth) for worth in (1.0, 0.5))
    await trainer.ask(Train(number=number, rows=rows))
    await trainer.ask(Export(str(folder), "random", number))
    return folder


async def test_the_engine_computes_with_what_it_has_received(
    engine: VllmModel, trainer: TrainerProcess, folder: Path, tmp_path: Path
) -> None:
    views = []
    for number in (1, 2):
        exported = await update(trainer, number, tmp_path / str(number))
        views.append(await engine.receive_weights(f"policy@{number}", sending(trainer, number)))
        completion = await sample(views[-1])
        assert distance(exported, completion) < 1e-4
        assert distance(folder, completion) > 0.1
        folder = exported
    with pytest.raises(EngineError, match="its weights were replaced by newer ones"):
        await sample(views[0])
    await engine.with_weights(tmp_path / "1", "policy@1")  # both ways, one after the other
    await engine.receive_weights("policy@2", sending(trainer, 2))
    assert distance(tmp_path / "2", await sample(engine)) < 1e-4


@pytest.mark.parametrize(("level", "damages"), [(2, False), (1, True), (1, False)])
async def test_weights_that_a_sleep_loses_are_sent_again(
    engine: VllmModel, trainer: TrainerProcess, tmp_path: Path, level: int, damages: bool
) -> None:
    await trainer.ask(Export(str(tmp_path / "newest"), "random"))
    number = 2
    view = await engine.receive_weights("policy", sending(trainer, number))
    own = engine.engine
    engine.engine = engine._weights._engine = Drowsy(own, damages=damages)
    engine._sleep_mode = SleepMode(engine.engine, engine._weights, level)
    try:
        async with engine.asleep():
            pass
        if level == 2 or damages:
            for _ in range(2):
                with pytest.raises(WeightsLost):
                    await sample(view)
            view = await engine.receive_weights("policy", sending(trainer, number))
        assert distance(tmp_path / "newest", await sample(view)) < 1e-4
    finally:
        engine.engine = engine._weights._engine = own
        engine._sleep_mode = None


async def test_vllms_own_transfer_by_nccl_finds_both_ends(
    engine: VllmModel, trainer: TrainerProcess, folder: Path, tmp_path: Path
) -> None:
    """Over gloo: vLLM's code forms the group, broadcasts and receives at the same time."""
    for number in (3, 4):
        exported = await update(trainer, number, tmp_path / str(number))
        await engine.receive_weights(f"policy@{number}", sending(trainer, number, "nccl"))
        completion = await sample(engine)
        assert distance(exported, completion) < 1e-4
        assert distance(folder, completion) > 0.1
        folder = exported
