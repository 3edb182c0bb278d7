"""Several processes that train together on the CPU, and the end of all of them when the run's process dies."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest
from parity_task import (
    EMBEDDED,
    NO_TOKENIZER,
    adapter_of,
    cut_back,
    effects,
    finished,
    lines,
    records,
    same_tensors,
    write_model,
)

from building import make_job, policy_gradient, training_config
from evorun.models import Message, Request, Sampling
from evorun.training.process import TrainerProcess
from evorun.training.wire import Generate
from evorun_process import start
from warm_process import forked_trainers, is_there

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.slow,
    pytest.mark.skipif(not EMBEDDED, reason=NO_TOKENIZER),
]


@pytest.fixture
def launches_forked() -> Iterator[None]:
    with forked_trainers(launched=True) if is_there() else nullcontext():
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.mark.nightly
@pytest.mark.usefixtures("launches_forked")
def test_two_processes_train_and_resume(model: Path, tmp_path: Path) -> None:
    """Their gradients are compared in test_policy_gradient_steps.py."""
    shared: dict[str, Any] = {
        "method": {"steps": 2, "eval_every": 2, "problems_per_step": 1, "group": 7},  # no two equal parts
        "training": {"save_every": 1, "num_processes": 2},
    }
    two = finished(tmp_path / "two", model, **shared)
    assert [line["figures"]["grad_norm"] > 0 for line in lines(two / "training.jsonl")] == [True, True]
    again = shutil.copytree(two, tmp_path / "again")
    before = cut_back(again, step=2, left=3)
    shutil.rmtree(again / "checkpoints" / "update-2")
    finished(again, model, **shared)
    assert records(again) == records(two)
    assert same_tensors(adapter_of(again / "artifacts" / "adapter"), adapter_of(two / "artifacts" / "adapter"))
    after = effects(again)
    assert {key: after[key] for key in before} == before


@pytest.mark.nightly
def test_all_processes_end_when_the_run_is_killed(model: Path, tmp_path: Path) -> None:
    run = start(str(model), str(tmp_path), cwd=tmp_path, program=__file__, stdout=subprocess.PIPE)
    assert run.stdout.readline() == b"ready\n"
    started = psutil.Process(run.pid).children(recursive=True)
    try:
        assert len(started) >= 3  # the two, and what has started them
        run.kill()
        run.wait()
        _, alive = psutil.wait_procs(started, timeout=60)
        assert not alive
    finally:
        for process in started:
            if process.is_running():
                process.kill()


@pytest.mark.usefixtures("launches_forked")
async def test_closing_ends_a_trainer_that_is_busy(model: Path, tmp_path: Path) -> None:
    trainer, command = await busy_trainer(model, tmp_path)
    ranks = [psutil.Process(pid) for pid in trainer.pids()]
    assert len(ranks) == 2
    asking = asyncio.create_task(trainer.ask(command))
    await asyncio.sleep(0.1)
    asking.cancel()
    async with asyncio.timeout(100):
        await trainer.close()
    _, alive = psutil.wait_procs(ranks, timeout=60)
    assert not alive


async def busy_trainer(model: Path, folder: Path) -> tuple[TrainerProcess, Generate]:
    """Return a trainer of two processes, and what keeps it busy for minutes."""
    training = training_config(rank=4, num_processes=2)
    trainer = await TrainerProcess.start(make_job(model, folder, training, policy_gradient()), folder / "trainer.log")
    asked = Request(messages=(Message(role="user", content="Go on."),), sampling=Sampling(max_tokens=200, n=500))
    return trainer, Generate(requests=(asked,) * 200, version=0)


async def work(model: Path, folder: Path) -> None:
    """Start a trainer, give it work, and say so."""
    trainer, command = await busy_trainer(model, folder)
    working = asyncio.create_task(trainer.ask(command))
    await asyncio.sleep(0.5)
    print("ready", flush=True)
    await working


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), Path(sys.argv[2])))
