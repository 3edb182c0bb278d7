"""The example's engine passes the suite; the same engine with a fault fails. test_server_engine.py has real ones."""

import asyncio
import importlib.util
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evorun.models.base import LanguageModel, Reply, Request
from evorun.models.config import ModelConfig
from evorun.testing import check_engine

FILE = Path(__file__).parents[2] / "examples" / "parrot_engine" / "parrot_engine.py"
KEY = "ENGINE_TEST_KEY"


@pytest.fixture(scope="module", name="parrot")
def _parrot() -> Any:
    spec = importlib.util.spec_from_file_location("parrot_engine", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Faulty:
    """An engine in which one thing goes wrong."""

    def __init__(self, engine: LanguageModel, fault: str) -> None:
        self.name, self._engine, self._fault = engine.name, engine, fault
        self._asked = 0
        self._waiting: list[tuple[Request, asyncio.Future[Reply]]] = []

    async def complete(self, request: Request) -> Reply:
        self._asked += 1
        said = "".join(message["content"] for message in request.messages)
        if self._fault == "blocks":
            time.sleep(0)  # noqa: ASYNC251
        if self._fault == "fragile" and "\x00" in said:
            raise ValueError("embedded null character")
        if self._fault == "swaps" and "fact number" in said:
            return await self._swapped(request)
        reply = await self._engine.complete(request)
        if self._fault == "tells" and reply.error is None:
            return msgspec.structs.replace(reply, error=os.environ[KEY])
        if self._fault == "unreadable" and not request.token_ids:
            return msgspec.structs.replace(reply, prompt_ids=None)  # type: ignore[arg-type]
        if self._fault == "forgetful" and request.sampling.temperature == 0:
            spoken = [msgspec.structs.replace(c, text=f"{c.text} {self._asked}") for c in reply.completions]
            return msgspec.structs.replace(reply, completions=tuple(spoken))
        return reply

    async def _swapped(self, request: Request) -> Reply:
        """Wait for the other requests of a batch, and answer them in the wrong order."""
        own: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, own))
        if len(self._waiting) == 12:
            replies = [await self._engine.complete(one) for one, _ in self._waiting]
            for (_, future), reply in zip(self._waiting, replies[1:] + replies[:1], strict=True):
                future.set_result(reply)
        return await own

    async def close(self) -> None:
        await self._engine.close()


def opener(parrot: Any, fault: str = "") -> Callable[[], Awaitable[LanguageModel]]:
    async def open_engine() -> LanguageModel:
        engine: LanguageModel = await parrot.ParrotConfig().open(ModelConfig(name="bird", id="bird"))
        return Faulty(engine, fault) if fault else engine

    return open_engine


def test_the_examples_engine_passes(parrot: Any) -> None:
    asyncio.run(check_engine(opener(parrot), variables=[KEY]))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("blocks", r"no call that blocks the event loop, found time\.sleep"),
        ("fragile", "expected a reply to any text"),
        ("tells", "expected no key in it"),
        ("unreadable", "expected a reply that the journal can read back"),
        ("forgetful", "the same greedy request alone, again"),
        ("swaps", "each of many requests its own reply"),
    ],
)
def test_an_engine_with_a_fault_fails(parrot: Any, fault: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        asyncio.run(check_engine(opener(parrot, fault), variables=[KEY]))
