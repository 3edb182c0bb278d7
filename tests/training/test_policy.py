"""What a policy asks of its trainer, and when; nothing is trained."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from building import make_config, training_config
from evorun.errors import JournalError
from evorun.models.base import Completion, LanguageModel, Message, Reply, Request
from evorun.models.config import ModelConfig
from evorun.runs.directory import RunDirectory
from evorun.training.policy import Policy
from evorun.training.wire import Answer, Command, Done, Export, Figures, PolicyGradient, Row, Save, Train

ASKED = Request(messages=(Message(role="user", content="Hello?"),))


class Noting(Policy):
    """A policy whose trainer writes empty folders; notes what is asked of it."""

    def __init__(self, run: RunDirectory) -> None:
        super().__init__(
            model=ModelConfig(name="m", id="m"),
            engine=make_config("engine", "transformers", device="cpu"),
            training=training_config(save_every=1),
            objective=PolicyGradient(
                **{"trainer": "grpo", "loss": "dr_grpo", "rows": 2, "group": 2, "steps": 9, "minibatches": 1},
                **{"kl": 0.0, "clip_low": 0.2, "clip_high": 0.2, "temperature": 1.0, "max_tokens": 4},
            ),
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


def rows(*rewards: float) -> list[Row]:
    return [Row(messages=ASKED.messages, tokens=(1, 2), reward=reward) for reward in rewards]


async def said(model: LanguageModel, times: int) -> list[str]:
    replies = await asyncio.gather(*(model.complete(ASKED) for _ in range(times)))
    return [reply.completions[0].text for reply in replies]


async def test_an_update_is_known_by_all_that_it_learns_from(run: RunDirectory) -> None:
    await Noting(run).update(rows(1.0, 0.0))
    with pytest.raises(JournalError, match="for another request"):
        await Noting(run).update(rows(0.0, 1.0))


async def test_what_is_exported_is_written_again_after_another_update(run: RunDirectory) -> None:
    policy = Noting(run)
    for _ in range(2):
        await policy.update(rows(1.0, 0.0))
        await policy.export()
        await policy.export()
    assert policy.asked == ["Train", "Save", "Export"] * 2


async def test_another_engine_gets_the_adapter_once_after_each_update(run: RunDirectory) -> None:
    policy, base = Noting(run), Base()
    model = policy.serve_via(base)
    for update in range(3):
        assert await said(model, 3) == [f"m@{update}"] * 3
        assert len(base.folders) == update + 1
        await policy.update(rows(1.0, 0.0))
    assert [folder.exists() for folder in base.folders] == [False, False, True]


async def test_the_adapters_of_another_engine_go_with_the_policy(run: RunDirectory) -> None:
    policy, base = Noting(run), Base()
    await policy.serve_via(base).complete(ASKED)
    await policy.close()
    assert [folder.exists() for folder in base.folders] == [False]
