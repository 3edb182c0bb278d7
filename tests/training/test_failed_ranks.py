"""Trainers that fail: what the user reads, and smaller passes after a lack of memory. In real processes, over gloo."""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

pytest.importorskip("trl")
import torch
import troubled_trainer
from safetensors.torch import load_file
from steps import EXACT, random_rows
from troubled_trainer import MOST_TOKENS

from building import make_config, make_job, policy_gradient, training_config
from evorun.errors import TrainingError
from evorun.models.config import ModelConfig
from evorun.runs.journal import Journal
from evorun.runs.journal_file import JOURNAL
from evorun.runs.manifest import SmallerPasses
from evorun.training import process
from evorun.training.failures import Evidence, OutOfMemory
from evorun.training.launching import WORKER
from evorun.training.policy import Policy
from evorun.training.process import TrainerProcess
from evorun.training.ranks import Status, read_position, read_statuses
from evorun.training.reductions import Reductions
from evorun.training.wire import Figures, FineTuning, Generate, Job, Train
from tiny_llama import write_tiny_llama
from warm_process import forked_trainers, is_there

pytestmark = pytest.mark.slow
TOKENS = "training.micro_batch_tokens"


@pytest.fixture(autouse=True)
def _troubled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start troubled trainers, as forks where that is possible."""
    command_line = process.command_line

    def troubled_command(job: Job, file: Path) -> list[str]:
        command = command_line(job, file)
        at = command.index(WORKER) - 1
        return [*command[:at], troubled_trainer.__file__, *command[at + 2 :]]

    monkeypatch.setattr(process, "command_line", troubled_command)
    with forked_trainers(launched=True) if is_there() else nullcontext():
        yield


async def failed(folder: Path, trouble: str, ranks: int, **training: Any) -> str:
    """Train in so many processes, the last of which has a trouble; return what the user reads."""
    told = policy_gradient(steps=2)
    model = ModelConfig(name=trouble, id="tiny")
    job = make_job(folder, folder, training_config(**EXACT, num_processes=ranks, **training), told, model=model)
    trainer = await TrainerProcess.start(job, folder / "trainer.log")
    try:
        with pytest.raises(TrainingError) as raised:
            await trainer.ask(Train(number=1, rows=tuple(random_rows(4))))
    finally:
        await trainer.close()
    return str(raised.value)


async def test_a_rank_raises(tmp_path: Path) -> None:
    said = await failed(tmp_path, "raises", 2)
    assert said.startswith("the trainer failed on rank 1 of 2: ValueError: no such layer (at troubled_trainer.py:")
    assert said.endswith("in update 1, pass 1 of 1); see trainer.rank1.log")
    assert "ValueError: no such\nlayer" in (tmp_path / "trainer.rank1.log").read_text()
    assert "ValueError: no such" not in (tmp_path / "trainer.rank0.log").read_text()


def test_a_rank_that_collects_garbage_says_where_it_is(tmp_path: Path) -> None:
    stack = '(most recent call first):\n  Garbage-collecting\n  File "/a/model.py", line 12 in forward\n'
    (tmp_path / "stack-1").write_text(f"Thread 0x1 {stack.replace('12', '3')}\nCurrent thread 0x2 {stack}")
    assert read_position(tmp_path, 1) == "model.py:12 in forward"


def test_of_ranks_at_the_same_place_the_one_that_answers_no_signal_is_named(tmp_path: Path) -> None:
    for rank in range(2):
        status = Status(rank=rank, pid=1, notes=7, doing="update 4, sums of figures", waits=True)
        (tmp_path / f"status-{rank}").write_bytes(msgspec.json.encode(status))
    (tmp_path / "stack-0").write_text('Thread 0x1 (most recent call first):\n  File "/a/reduce.py", line 3 in reduce\n')
    said = str(Evidence(tmp_path, tmp_path / "trainer.log", 2).explain_hang(9.0))
    assert "of rank 1 of 2 in update 4, sums of figures (it answers no signal); its" in said
    (tmp_path / "stack-1").write_text('Thread 0x1 (most recent call first):\n  File "/a/reduce.py", line 3 in reduce\n')
    said = str(Evidence(tmp_path, tmp_path / "trainer.log", 2).explain_hang(9.0))
    assert "of rank 0 of 2 in update 4, sums of figures (at reduce.py:3 in reduce); rank 1 of 2 in " in said


@pytest.mark.nightly  # test_nodes.py kills one
async def test_a_rank_is_killed(tmp_path: Path) -> None:
    said = await failed(tmp_path, "is killed", 2)
    assert said.startswith("rank 1 of the trainer's 2 was killed by signal 9 (SIGKILL) in update 1, pass 1 of 1")
    assert "2 sequences of " in said
    assert said.endswith("its messages are in trainer.rank1.log, the last ones: almost there")


@pytest.mark.nightly
async def test_a_rank_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress, ranks = Evidence.progress, []

    def until_both_wait(self: Evidence) -> Any:
        statuses = read_statuses(self._folder)
        if [status.doing for status in statuses] != ["update 1, backward pass", "update 1, pass 1 of 1"]:
            return time.monotonic()  # a busy machine may take any time to get there
        ranks[:] = [psutil.Process(status.pid) for status in statuses]
        return progress(self)

    monkeypatch.setattr(Evidence, "progress", until_both_wait)
    said = await failed(tmp_path, "hangs", 2, hang_timeout=0.5)
    assert said.startswith("the trainer hangs: no progress for 0.5 s (training.hang_timeout) of rank 1 of 2 in update")
    assert "update 1, pass 1 of 1 (at threading.py:" in said
    assert "rank 0" not in said
    assert len(ranks) == 2
    assert not psutil.wait_procs(ranks, timeout=60)[1]


async def test_imports_are_no_hang(tmp_path: Path) -> None:
    training = training_config(**EXACT, hang_timeout=1e-3)
    job = make_job(tmp_path, tmp_path, training, policy_gradient(), model=ModelConfig(name="none", id="tiny"))
    with pytest.raises(TrainingError, match=r"no progress for 0.001 s .* in (loading the model|making the trainer)"):
        await TrainerProcess.start(job, tmp_path / "trainer.log")


# --- out of memory ---


def make_policy(folder: Path, trouble: str, journal: Journal, **changes: Any) -> tuple[Policy, list[SmallerPasses]]:
    """Return a policy whose trainer has a trouble, and the list of its reductions."""
    noted: list[SmallerPasses] = []
    policy = Policy(
        model=ModelConfig(name=trouble, id=str(folder)),
        engine=make_config("engine", "transformers", device="cpu"),
        training=training_config(**{**EXACT, "learning_rate": 0.1, "save_every": 2, **changes}),
        objective=policy_gradient(steps=3),
        seed=3,
        run=folder,
        journal=journal,
        note_reduction=noted.append,
    )
    return policy, noted


async def trained(
    folder: Path, trouble: str, **changes: Any
) -> tuple[list[Figures], dict[str, torch.Tensor], list[SmallerPasses]]:
    """Make three updates, or repeat them from the folder's checkpoint; return their figures and the adapter."""
    journal = Journal(folder / JOURNAL)
    policy, noted = make_policy(folder, trouble, journal, **changes)
    figures = []
    try:
        for step, count in enumerate((4, 5, 16), 1):  # only the third one has passes of too many tokens
            figures.append(await policy.update(step, random_rows(count, seed=step)))
        adapter = load_file((await policy.export()) / "adapter_model.safetensors")
    finally:
        await policy.close()
        journal.close()
    return figures, adapter, noted


def same_but_for_rounding(adapter: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert adapter.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(adapter[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.nightly
async def test_after_a_lack_of_memory_smaller_passes_give_the_same_weights(tmp_path: Path) -> None:
    """The third update runs out of memory, after a checkpoint."""
    run, small = (folder_in(tmp_path, name) for name in ("run", "small"))
    figures, adapter, (made,) = await trained(run, "out of memory")
    _, expected, _ = await trained(small, "none", micro_batch_tokens=200)
    same_but_for_rounding(adapter, expected)
    assert (made.update, made.command, made.setting, made.configured) == (3, "train", TOKENS, 16384)
    assert MOST_TOKENS / 2 <= made.reduced <= MOST_TOKENS
    assert "2 GiB more were needed" in made.reason
    retries = [figure.figures.get("memory_retries") for figure in figures]
    assert retries == [None, None, 1.0]
    assert figures[2].figures["micro_batch_tokens"] == made.reduced
    assert max((value - expected[name]).abs().max() for name, value in adapter.items()) > 0  # other passes


@pytest.mark.nightly  # resumed trainers are tested in test_training_runs.py
async def test_a_run_that_is_resumed_after_a_lack_of_memory_begins_with_smaller_passes(tmp_path: Path) -> None:
    run, large = (folder_in(tmp_path, name) for name in ("run", "large"))
    figures, adapter, _ = await trained(run, "out of memory")
    shutil.rmtree(run / "checkpoints" / "update-3", ignore_errors=True)
    shutil.rmtree(run / "artifacts")
    again, repeated, noted = await trained(run, "out of memory")
    assert [figure.figures for figure in again] == [figure.figures for figure in figures]
    assert noted == []
    assert all(torch.equal(value, adapter[name]) for name, value in repeated.items())

    with pytest.raises(TrainingError, match=r"on rank 1 of 2 in update 1, .* 1 sequence of .* a single"):
        await trained(large, "never enough memory", num_processes=2)
    said = (large / "trainer.rank1.log").read_text()
    assert said.count("Traceback (most recent call last)") == 2  # with two sequences, and with one


async def test_a_sequence_that_does_not_fit_alone_is_not_tried_again(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"a single sequence does not fit: set training.gradient_ch"):
        await trained(folder_in(tmp_path, "run"), "never enough memory", micro_batch=1)
    assert (tmp_path / "run" / "trainer.log").read_text().count("Traceback") == 1


def test_what_to_set_when_the_second_try_fails_too(tmp_path: Path) -> None:
    journal = Journal(tmp_path / JOURNAL)
    reductions = Reductions(journal, training_config(), make_config("engine", "transformers"))
    lack = OutOfMemory("no room", rows=4, tokens=800)
    assert str(reductions.advise(Train(number=1), lack)) == "no room; set training.micro_batch_tokens=400"
    generation = OutOfMemory("no room", rows=32, tokens=0)
    assert str(reductions.advise(Generate(requests=(), version=0), generation)) == (
        "no room; set engine.max_batch_size=16"
    )
    assert "training.precision=bfloat16, lower training.rank, or" in str(reductions.advise(None, lack))
    whole = Reductions(journal, training_config(weights="full"), make_config("engine", "transformers"))
    assert "bfloat16, set training.reference=cpu, train an adapter" in str(whole.advise(None, lack))
    journal.close()


@pytest.mark.nightly
async def test_processes_with_unequal_passes_fine_tune_as_one(tmp_path: Path) -> None:
    """One of them gets the long conversations, and has more passes; the other one waits in passes without labels."""
    model = write_tiny_llama(folder_in(tmp_path, "model"))
    chats = [("Count.", "one two three four five six seven eight nine ten " * 3), ("Yes?", "No.")] * 3
    lines = [[{"role": "user", "content": asked}, {"role": "assistant", "content": said}] for asked, said in chats]
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps({"line": at, "messages": both}) + "\n" for at, both in enumerate(lines, 1)))
    told = FineTuning(train=str(file), held_out=None, source="chats", epochs=1.0, batch=len(chats), max_length=256)

    async def tuned(processes: int) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
        folder = folder_in(tmp_path, str(processes))
        journal = Journal(folder / JOURNAL)
        policy = Policy(
            model=ModelConfig(name="sound", id=str(model)),
            engine=make_config("engine", "transformers", device="cpu"),
            training=training_config(**EXACT, num_processes=processes, micro_batch_tokens=130),
            objective=told,
            seed=3,
            run=folder,
            journal=journal,
        )
        try:
            figures = await policy.train_step(1)
            return figures, load_file((await policy.export()) / "adapter_model.safetensors")
        finally:
            await policy.close()
            journal.close()

    (one, expected), (two, adapter) = await tuned(1), await tuned(2)
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
    assert two["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-4)
    same_but_for_rounding(adapter, expected)


def folder_in(path: Path, name: str) -> Path:
    folder = path / name
    folder.mkdir()
    return folder
