"""An engine whose weights are replaced: it answers each request by the weights of its update, and by no others."""

import asyncio
from pathlib import Path

import pytest
from test_policy import ASKED, Noting, answer, rows, said

from evorun.errors import EngineDied, EngineError, WeightsLost
from evorun.models.base import LanguageModel, Reply, Request
from evorun.models.lazy import DIED
from evorun.runs.directory import RunDirectory
from evorun.training.replaced_weights import ReplacedWeights


class Engine:
    """Answers with the name of its weights at the end of the request; holds one set of weights."""

    name = "m"

    def __init__(self) -> None:
        self.weights = "m@0"
        self.replaced: list[str] = []
        self.in_progress = 0
        self.begun = asyncio.Semaphore(0)
        """Has a permit for each request that began."""
        self.broken = False
        self.free = asyncio.Event()
        self.free.set()
        self.closed = 0

    async def complete(self, request: Request) -> Reply:
        self.in_progress += 1
        self.begun.release()
        await self.free.wait()
        self.in_progress -= 1
        return answer(self.weights)

    async def with_weights(self, folder: Path, name: str) -> LanguageModel:
        if self.broken:
            raise EngineError("these weights do not fit")
        assert folder.exists()  # noqa: ASYNC240 - of this disk
        assert not self.in_progress
        await asyncio.sleep(0)
        self.weights = name
        self.replaced.append(name)
        return self

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "run")


async def test_each_update_replaces_the_weights_once_and_the_untrained_ones_are_there(run: RunDirectory) -> None:
    policy, engine = Noting(run.path, run.journal), Engine()
    model = policy.replace_weights_of(engine)
    for update in range(3):
        assert await said(model.at(update), 3) == [f"m@{update}"] * 3
        await policy.update(update + 1, rows(1.0, 0.0))
    assert engine.replaced == ["m@1", "m@2"]
    assert policy.asked.count("Export") == 2
    await policy.close()
    assert engine.closed == 1
    assert not list((run.path / "checkpoints").glob("rollouts-*"))


def note_waiting(patch: pytest.MonkeyPatch) -> dict[int, asyncio.Event]:
    """Return events that are set once a request for an update's weights has asked whether it may begin."""
    asked = {version: asyncio.Event() for version in (0, 1)}
    may_begin = ReplacedWeights._may_begin

    def noting(self: ReplacedWeights, version: int) -> bool:
        asked[version].set()
        return may_begin(self, version)

    patch.setattr(ReplacedWeights, "_may_begin", noting)
    return asked


async def test_requests_for_other_weights_wait_for_those_in_progress(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, engine = Noting(run.path, run.journal), Engine()
    model = policy.replace_weights_of(engine)
    before, after = model.at(0), None
    await policy.update(1, rows(1.0, 0.0))
    after = model.at(1)
    assert await said(after, 1) == ["m@1"]
    engine.free.clear()
    held = asyncio.create_task(said(after, 2))
    for _ in range(3):
        await engine.begun.acquire()
    asked = note_waiting(monkeypatch)
    late = asyncio.create_task(said(before, 2))  # as a reflection beside the update
    await asked[0].wait()
    engine.free.set()
    assert await held == ["m@1"] * 2
    assert await late == ["m@0"] * 2
    assert await said(after, 1) == ["m@1"]
    assert engine.replaced == ["m@1", "m@0", "m@1"]
    assert policy.asked.count("Export") == 2  # the second time its folder was still there


async def test_a_cancelled_or_failed_request_holds_nobody_up(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, engine = Noting(run.path, run.journal), Engine()
    model = policy.replace_weights_of(engine)
    engine.free.clear()
    held = asyncio.create_task(model.at(0).complete(ASKED))
    await engine.begun.acquire()
    await policy.update(1, rows(1.0, 0.0))
    asked = note_waiting(monkeypatch)
    waiting = asyncio.create_task(said(model.at(1), 1))
    await asked[1].wait()
    other = asyncio.create_task(said(model.at(1), 1))
    waiting.cancel()
    engine.broken = True
    engine.free.set()
    await held
    third = asyncio.create_task(said(model.at(1), 1))
    for failed in (other, third):
        with pytest.raises(EngineError, match="these weights do not fit"):
            await failed
    engine.broken = False
    assert await said(model.at(1), 1) == ["m@1"]


async def test_lost_weights_are_given_again_before_any_answer(run: RunDirectory) -> None:
    deaths, all_asked = [EngineDied("it died"), None, None], asyncio.Barrier(3)

    class Losing(Engine):
        """Loses its weights while it has three requests, by its death for the first of them."""

        async def complete(self, request: Request) -> Reply:
            if len(self.replaced) == 1:
                await all_asked.wait()
                self.weights = "none"
                raise WeightsLost("started again") from deaths.pop()
            return await super().complete(request)

    policy, engine = Noting(run.path, run.journal), Losing()
    model = policy.replace_weights_of(engine)
    await policy.update(1, rows(1.0, 0.0))
    replies = await asyncio.gather(*(model.at(1).complete(ASKED) for _ in range(3)))
    assert [reply.completions[0].text for reply in replies] == ["m@1"] * 3
    assert engine.replaced == ["m@1", "m@1"]  # once for all three
    assert [reply.wasted[DIED].attempts for reply in replies if reply.wasted] == [1]
