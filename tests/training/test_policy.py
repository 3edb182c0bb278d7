"""The commands of a policy to its trainer, and their order; nothing is trained."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from building import make_config, policy_gradient, training_config
from evorun.errors import JournalError, TrainingError
from evorun.models.base import Completion, LanguageModel, Message, Reply, Request
from evorun.models.config import ModelConfig
from evorun.runs.directory import RunDirectory
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
    """A policy whose trainer writes empty folders; notes what is asked of it."""

    def __init__(self, run: RunDirectory) -> None:
        super().__init__(
            model=ModelConfig(name="m", id="m"),
            engine=make_config("engine", "transformers", device="cpu"),
            training=training_config(save_every=1),
            objective=policy_gradient(rows=2, steps=9),
            seed=0,
            run=run.path,
            journal=run.journal,
        )
        self.asked: list[str] = []

    async def _ask(self, command: Command) -> Answer:
        self.asked.append(type(command).__name__)
        await asyncio.sleep(0)  # others have their turn, as while a real trainer works
        if isinstance(command, Save | Export):
            make(Path(command.folder))
        if isinstance(command, Generate):
            said = Completion(text="Hello.", finish_reason="stop", tokens=1)
            return Replies(tuple(Reply(completions=(said,), prompt_tokens=1, seconds=0.0) for _ in command.requests))
        return Figures({"loss": 1.0}) if isinstance(command, Train) else Done()


class Named:
    """A language model that answers with its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def complete(self, request: Request) -> Reply:
        said = Completion(text=self.name, finish_reason="stop", tokens=1)
        return Reply(completions=(said,), prompt_tokens=1, seconds=0.0)

    async def close(self) -> None:
        pass


class Base:
    """An engine that takes adapters; notes the folders that it reads them from."""

    def __init__(self) -> None:
        self.folders: list[Path] = []

    async def under(self, folder: Path, name: str) -> Named:
        self.folders.append(folder)
        return Named(name)


@pytest.fixture(name="run")
async def _run(tmp_path: Path) -> AsyncIterator[RunDirectory]:
    run = RunDirectory(tmp_path / "run")
    yield run
    run.close()


def make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


def rows(*advantages: float) -> list[Row]:
    return [
        Row(prompt=(3,), tokens=(1, 2), learned=(True, True), signal=own, logprobs=(-1.0, -2.0)) for own in advantages
    ]


async def said(model: LanguageModel, times: int) -> list[str]:
    replies = await asyncio.gather(*(model.complete(ASKED) for _ in range(times)))
    return [reply.completions[0].text for reply in replies]


async def test_an_update_is_known_by_all_that_it_learns_from(run: RunDirectory) -> None:
    await Noting(run).update(1, rows(1.0, 0.0))
    with pytest.raises(JournalError, match="for another request"):
        await Noting(run).update(1, rows(0.0, 1.0))


async def test_what_is_exported_is_written_again_after_another_update(run: RunDirectory) -> None:
    policy = Noting(run)
    for step in (1, 2):
        await policy.update(step, rows(1.0, 0.0))
        await policy.export()
        await policy.export()
    assert policy.asked == ["Train", "Save", "Export"] * 2


async def test_another_engine_gets_the_adapter_once_after_each_update(run: RunDirectory) -> None:
    policy, base = Noting(run), Base()
    model = policy.serve_via(base)
    for update in range(3):
        assert await said(model.at(update), 3) == [f"m@{update}"] * 3
        assert len(base.folders) == update + 1
        await policy.update(update + 1, rows(1.0, 0.0))
    assert [folder.exists() for folder in base.folders] == [False, False, True]


async def test_the_adapters_of_another_engine_go_with_the_policy(run: RunDirectory) -> None:
    policy, base = Noting(run), Base()
    await policy.serve_via(base).at(0).complete(ASKED)
    await policy.close()
    assert [folder.exists() for folder in base.folders] == [False]


async def test_a_step_without_an_update_has_the_weights_of_the_last_one(run: RunDirectory) -> None:
    policy = Noting(run)
    await policy.update(2, rows(1.0, 0.0))
    await policy.update(5, rows(1.0, 0.0))
    assert [policy.current.at(step).name for step in range(7)] == ["m@0", "m@0", *["m@1"] * 3, "m@2", "m@2"]


async def test_beside_an_update_the_weights_of_a_step_are_those_of_its_name(run: RunDirectory) -> None:
    """Whichever comes first: those of the step before go on being served, those of the step wait for its update."""
    policy, base = Noting(run), Base()
    model = policy.serve_via(base)
    await model.at(0).complete(ASKED)  # as the step's completions
    update = asyncio.create_task(policy.update(1, rows(1.0, 0.0)))
    await asyncio.sleep(0)
    assert not update.done()
    before, after = model.at(0), model.at(1)
    assert await asyncio.gather(said(before, 2), said(after, 2)) == [["m@0"] * 2, ["m@1"] * 2]
    assert update.done()
    assert (before.name, after.name) == ("m@0", "m@1")


async def test_an_update_waits_for_what_its_own_trainer_was_asked_before(run: RunDirectory) -> None:
    policy = Noting(run)
    asked = [asyncio.create_task(policy.current.at(0).complete(ASKED)) for _ in range(3)]
    await asyncio.sleep(0)
    await policy.update(1, rows(1.0, 0.0))
    await asyncio.gather(*asked)
    assert policy.asked == ["Generate", "Train", "Save"]
    with pytest.raises(TrainingError, match="expected the trainer to have the weights of update 0, it has those of"):
        await policy.current.at(0).complete(ASKED)


async def test_a_resumed_trainer_serves_the_reference_whatever_has_been_repeated(run: RunDirectory) -> None:
    await Noting(run).update(1, rows(1.0, 0.0))
    resumed = Noting(run)
    await resumed.reference.complete(ASKED)
    with pytest.raises(TrainingError, match=r"update 0, it has those of update 1; .*remove the folder checkpoints"):
        await resumed.current.at(0).complete(ASKED)
    await resumed.update(1, rows(1.0, 0.0))
    await resumed.current.at(1).complete(ASKED)
    assert resumed.asked == ["Generate", "Generate"]
