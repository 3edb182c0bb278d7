"""The commands of a policy to its trainer, and their order; nothing is trained."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from building import make_config, policy_gradient, training_config
from evorun.errors import ConfigError, JournalError, RunDirectoryError, TrainingError
from evorun.models.base import Completion, LanguageModel, Message, Reply, Request
from evorun.models.config import ModelConfig
from evorun.runs.directory import RunDirectory
from evorun.runs.effects import JournaledModel, Traffic
from evorun.training.checkpoints import choose_sync_folder, former_file
from evorun.training.policy import Policy
from evorun.training.wire import (
    Answer,
    Command,
    Done,
    Export,
    Figures,
    Generate,
    Replies,
    Row,
    Save,
    Train,
)

ASKED = Request(messages=(Message(role="user", content="Hello?"),))


class Noting(Policy):
    """A policy whose trainer writes empty folders and answers with the name of its weights; notes what it is asked."""

    def __init__(
        self, run: Path, journal: Any, max_lag: int = 0, *, sync_folder: str | None = None, **more: Any
    ) -> None:
        super().__init__(
            model=ModelConfig(name="m", id="m"),
            engine=make_config("engine", "transformers", device="cpu"),
            training=training_config(save_every=1, max_lag=max_lag, sync_folder=sync_folder),
            objective=policy_gradient(steps=9),
            seed=0,
            run=run,
            journal=journal,
            **more,
        )
        self.asked: list[str] = []
        self.has_weights_of = [*range(self._oldest, self._resumed + 1)]

    async def _answer(self, command: Command) -> Answer:
        self.asked.append(type(command).__name__)
        await asyncio.sleep(0)  # others have their turn, as while a real trainer works
        if isinstance(command, Train):
            self.has_weights_of = [*self.has_weights_of[-self.training.former_versions :], command.number]
            return Figures({"loss": 1.0})
        if isinstance(command, Save | Export):
            make(Path(command.folder))
        if isinstance(command, Save):
            for version in self.has_weights_of[:-1]:
                former_file(Path(command.folder), version).touch()
        if isinstance(command, Export):
            assert command.version in self.has_weights_of
        if isinstance(command, Generate):
            assert command.version in (None, *self.has_weights_of)
            return Replies((answer(f"m@{command.version}"),) * len(command.requests))
        return Done()


class Named:
    """A language model that answers with its name, once it may."""

    def __init__(self, name: str, free: asyncio.Event | None = None) -> None:
        self.name = name
        self.free = free

    async def complete(self, request: Request) -> Reply:
        if self.free is not None:
            await self.free.wait()
        return answer(self.name)

    async def close(self) -> None:
        pass


class Base:
    """An engine that takes adapters; notes the folders that it reads them from."""

    def __init__(self, free: asyncio.Event | None = None) -> None:
        self.folders: list[Path] = []
        self.free = free

    async def with_adapter(self, folder: Path, name: str) -> Named:
        self.folders.append(folder)
        return Named(name, self.free)


@pytest.fixture(name="run")
async def _run(tmp_path: Path) -> AsyncIterator[RunDirectory]:
    run = RunDirectory(tmp_path / "run")
    yield run
    run.close()


def answer(text: str) -> Reply:
    return Reply(
        completions=(Completion(text=text, finish_reason="stop", tokens=1),),
        prompt_tokens=1,
        seconds=0.0,
    )


def make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


def rows(*advantages: float) -> list[Row]:
    return [
        Row(prompt=(3,), tokens=(1, 2), learned=(True, True), reward=own, advantage=own, logprobs=(-1.0, -2.0))
        for own in advantages
    ]


async def said(model: LanguageModel, times: int) -> list[str]:
    replies = await asyncio.gather(*(model.complete(ASKED) for _ in range(times)))
    return [reply.completions[0].text for reply in replies]


async def test_an_update_is_known_by_all_that_it_learns_from(run: RunDirectory) -> None:
    await Noting(run.path, run.journal).update(1, rows(1.0, 0.0))
    with pytest.raises(JournalError, match="for another request"):
        await Noting(run.path, run.journal).update(1, rows(0.0, 1.0))


async def test_what_is_exported_is_written_again_after_another_update(run: RunDirectory) -> None:
    policy = Noting(run.path, run.journal)
    for step in (1, 2):
        await policy.update(step, rows(1.0, 0.0))
        await policy.export()
        assert await policy.export() == run.path / "artifacts" / "adapter"
    assert policy.asked == ["Train", "Save", "Export"] * 2
    assert await policy.export(2) == run.path / "artifacts" / "adapters" / "step_2"


async def test_another_engine_gets_the_adapter_once_after_each_update(run: RunDirectory) -> None:
    policy, base = Noting(run.path, run.journal), Base()
    model = policy.serve_via(base)
    for update in range(3):
        assert await said(model.at(update), 3) == [f"m@{update}"] * 3
        assert len(base.folders) == update + 1
        await policy.update(update + 1, rows(1.0, 0.0))
    assert [folder.exists() for folder in base.folders] == [False, True, True]  # those of the adapters that are held


async def test_the_adapters_of_another_engine_go_with_the_policy(run: RunDirectory) -> None:
    policy, base = Noting(run.path, run.journal), Base()
    await policy.serve_via(base).at(0).complete(ASKED)
    await policy.close()
    assert [folder.exists() for folder in base.folders] == [False]


async def test_a_step_without_an_update_has_the_weights_of_the_last_one(run: RunDirectory) -> None:
    policy = Noting(run.path, run.journal)
    await policy.update(2, rows(1.0, 0.0))
    await policy.update(5, rows(1.0, 0.0))
    assert [policy.current.at(step).name for step in range(7)] == ["m@0", "m@0", *["m@1"] * 3, "m@2", "m@2"]


async def test_beside_an_update_the_weights_of_a_step_are_those_of_its_name(run: RunDirectory) -> None:
    """Whichever comes first: those of the step before go on being served, those of the step wait for its update."""
    policy, base = Noting(run.path, run.journal), Base()
    model = policy.serve_via(base)
    await model.at(0).complete(ASKED)  # as the step's completions
    update = asyncio.create_task(policy.update(1, rows(1.0, 0.0)))
    await asyncio.sleep(0)
    assert not update.done()
    before, after = model.at(0), model.at(1)
    assert await asyncio.gather(said(before, 2), said(after, 2)) == [["m@0"] * 2, ["m@1"] * 2]
    assert update.done()
    assert (before.name, after.name) == ("m@0", "m@1")


@pytest.mark.parametrize("beside", [True, False], ids=["another engine", "its own trainer"])
async def test_an_update_keeps_the_weights_that_are_still_asked_for(beside: bool, run: RunDirectory) -> None:
    """Those of the update before it stay; for what was asked of older ones it waits."""
    free = asyncio.Event()
    policy = Noting(run.path, run.journal)
    model = policy.serve_via(Base(free)) if beside else policy.current
    early = asyncio.create_task(said(model.at(0), 3))
    await asyncio.sleep(0)
    await policy.update(1, rows(1.0, 0.0))
    late = asyncio.create_task(policy.update(2, rows(1.0, 0.0)))
    for _ in range(5):
        await asyncio.sleep(0)
    assert policy.asked.count("Train") == 1 or not beside  # its own trainer has answered meanwhile
    free.set()
    await late
    assert await early == ["m@0"] * 3
    assert await said(model.at(1), 1) == ["m@1"]
    if not beside:
        with pytest.raises(TrainingError, match="expected the trainer to have the weights of update 0, it has those"):
            await model.at(0).complete(ASKED)


async def test_with_a_lag_former_weights_stay_for_as_many_updates(run: RunDirectory) -> None:
    """In the engine, in the trainer's checkpoints and in a resumed run."""
    policy, base = Noting(run.path, run.journal, max_lag=2), Base()
    model = policy.serve_via(base)
    await said(model.at(0), 1)
    for step in (1, 2, 3):
        await policy.update(step, rows(1.0, 0.0))
        oldest = max(0, step - 2)
        assert [await said(model.at(of_step), 1) for of_step in range(oldest, step + 1)] == [
            [f"m@{version}"] for version in range(oldest, step + 1)
        ]
    assert [folder.exists() for folder in base.folders] == [False, True, True, True]
    resumed = Noting(run.path, run.journal, max_lag=2)
    for step in (1, 2, 3):
        await resumed.update(step, rows(1.0, 0.0))
    assert await said(resumed.serve_via(Base()).at(2), 1) == ["m@2"]
    assert await said(resumed.current.at(1), 1) == ["m@1"]
    with pytest.raises(TrainingError, match="expected the trainer to have the weights of update 0"):
        await resumed.current.at(0).complete(ASKED)


async def test_a_checkpoint_with_too_few_former_weights_is_passed_over(run: RunDirectory) -> None:
    """As on a fork with a larger lag: the updates since an older one are made again."""
    first = Noting(run.path, run.journal)
    for step in (1, 2, 3):
        await first.update(step, rows(1.0, 0.0))
    forked = Noting(run.path, run.journal, max_lag=2)
    for step in (1, 2, 3):
        await forked.update(step, rows(1.0, 0.0))
    assert await said(forked.current.at(1), 1) == ["m@1"]
    assert forked.asked[:3] == ["Train", "Save", "Train"]


async def second_step(folder: Path, beside: bool, calls: int) -> tuple[list[str], int]:
    """Return what is said in step 2, beside and after its update, and the number of recorded effects.

    Beside an update go calls that each wait for the one before; calls: how many of them there are in step 2.
    """
    run = RunDirectory(folder)
    policy = Noting(run.path, run.journal)
    model = JournaledModel(policy.serve_via(Base()) if beside else policy.current, run.journal, Traffic())

    async def chain(of_step: int) -> list[str]:
        texts = []
        for index in range(calls if of_step == 2 else 1):
            reply = await model.complete(f"*|{of_step}|reflect|{index}|0", ASKED, of_step - 1)
            texts.append(reply.completions[0].text)
        return texts

    for one in (1, 2):
        await model.complete(f"*|{one}|rollout|0|0", ASKED, one - 1)
        async with asyncio.TaskGroup() as group:
            group.create_task(policy.update(one, rows(1.0, 0.0)))
            chained = group.create_task(chain(one))
    after = await model.complete("*|2|evaluate|0|0", ASKED, 2)
    run.close()
    return [*chained.result(), after.completions[0].text], len(run.journal)


@pytest.mark.parametrize("beside", [True, False], ids=["another engine", "its own trainer"])
async def test_calls_beside_an_update_have_the_weights_before_it_and_are_resumed(beside: bool, tmp_path: Path) -> None:
    # Killed after the update's checkpoint, before the chain of calls had ended: a new trainer is asked for the rest.
    assert await second_step(tmp_path, beside, calls=1) == (["m@1", "m@2"], 7)
    assert await second_step(tmp_path, beside, calls=3) == (["m@1", "m@1", "m@1", "m@2"], 9)
    assert await second_step(tmp_path, beside, calls=3) == (["m@1", "m@1", "m@1", "m@2"], 9)


async def test_weights_for_another_engine_pass_through_the_folder_that_is_named(
    run: RunDirectory, tmp_path: Path
) -> None:
    (shared := tmp_path / "ram").mkdir()
    base = Base()
    policy = Noting(run.path, run.journal, sync_folder=str(shared))
    await policy.serve_via(base).at(0).complete(ASKED)
    [folder] = base.folders
    assert folder.is_dir()
    assert folder.parent.parent == shared
    assert choose_sync_folder(str(shared), tmp_path / "other run") != folder.parent  # runs side by side
    await policy.close()
    assert not list(shared.iterdir())
    with pytest.raises(ConfigError, match=r"training\.sync_folder: expected a folder, found none at /none"):
        training_config(sync_folder="/none")


async def test_a_call_that_a_resume_might_ask_of_other_weights_is_refused(run: RunDirectory) -> None:
    """It names the step's own weights, but comes before the update is issued: the order would decide."""
    policy = Noting(run.path, run.journal)
    await policy.current.at(1).complete(ASKED)
    with pytest.raises(TrainingError, match=r"weights of step 1 before the update of step 1; .*Role\(lag=1\)"):
        await policy.update(1, rows(1.0, 0.0))
    assert len(run.journal) == 0


async def test_updates_of_other_settings_are_not_made_again(run: RunDirectory) -> None:
    await Noting(run.path, run.journal, first_checkpoint=0).update(1, rows(1.0, 0.0))
    Noting(run.path, run.journal, first_checkpoint=1)
    shutil.rmtree(run.path / "checkpoints")
    with pytest.raises(RunDirectoryError, match="the checkpoint of update 1 or a later one, found none"):
        Noting(run.path, run.journal, first_checkpoint=1)


async def test_a_resumed_trainer_serves_the_reference_whatever_has_been_repeated(run: RunDirectory) -> None:
    await Noting(run.path, run.journal).update(1, rows(1.0, 0.0))
    former_file(run.path / "checkpoints" / "update-1", 0).unlink()
    resumed = Noting(run.path, run.journal)
    await resumed.reference.complete(ASKED)
    with pytest.raises(TrainingError, match=r"update 0, it has those of update 1; .*remove the folder checkpoints"):
        await resumed.current.at(0).complete(ASKED)
    await resumed.update(1, rows(1.0, 0.0))
    await resumed.current.at(1).complete(ASKED)
    assert resumed.asked == ["Generate", "Generate"]


class Restarting(Noting):
    """One whose trainer starts again from the untrained weights, too."""

    async def restart(self, step: int) -> None:
        await super().restart(step)
        if self._restarted == self.updates:
            self.has_weights_of = [self.updates]


async def test_after_a_restart_the_weights_are_the_untrained_ones_also_in_a_resumed_run(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evorun.training.policy.resolve", lambda model: model.id)
    policy = Restarting(run.path, run.journal)
    await policy.update(1, rows(1.0, 0.0))
    await policy.restart(2)
    assert await said(policy.current.at(2), 1) == ["m@2"]
    with pytest.raises(TrainingError, match="expected the trainer to have the weights of update 1"):
        await policy.current.at(1).complete(ASKED)
    assert (policy._job().checkpoint, policy._job().updates) == (None, 2)
    killed = Restarting(run.path, run.journal)  # before the next update: the checkpoint is of the first one
    await killed.update(1, rows(1.0, 0.0))
    assert killed._job().updates == 1
    await killed.restart(2)
    assert (killed._job().checkpoint, killed._job().updates) == (None, 2)
    await killed.update(3, rows(1.0, 0.0))
    assert killed.asked == ["Train", "Save"]
    resumed = Restarting(run.path, run.journal)
    for step in (1, 3):
        await resumed.update(step, rows(1.0, 0.0))
        if step == 1:
            await resumed.restart(2)
    assert resumed.asked == []
    assert str(resumed._job().checkpoint).endswith("update-3")
    assert await said(resumed.current.at(3), 1) == ["m@3"]
