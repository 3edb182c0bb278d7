"""A search server of the user's: its answers, its failures, and that none of these blocks or is recorded."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from evorun.errors import ToolError
from evorun.models.server import retry
from evorun.tasks.search_qa.retrieval.base import Passage
from evorun.tasks.search_qa.retrieval.http import Http

HIT = {"id": "7", "contents": '"River Harn"\nIt is long.'}
FOUND = {"result": [[{"document": HIT, "score": 2.5}, {"document": {"id": 8, "title": "T", "text": "x"}}], []]}
PASSAGES = [[Passage("7", "River Harn", "It is long."), Passage("8", "T", "x")], []]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/retrieve", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"http://127.0.0.1:{port}/retrieve"
    finally:
        await runner.cleanup()


def answering(*answers: Any) -> tuple[Handler, list[Any]]:
    """Give the answers one after the other: JSON values, or statuses."""
    asked: list[Any] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(await request.json())
        answer = answers[min(len(asked), len(answers)) - 1]
        if isinstance(answer, int):
            return web.json_response({"detail": "overloaded"}, status=answer)
        return web.json_response(answer)

    return handler, asked


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry.RetryPolicy, "backoff", lambda self, attempt: 0.0)


async def test_documents_beside_their_scores_and_bare() -> None:
    handler, asked = answering(FOUND, {"result": [[HIT] * 9, []]})
    async with serving(handler) as url:
        retriever = Http(url, timeout=5, retries=0)
        assert await retriever.find(["river", "none"], 3) == PASSAGES
        assert await retriever.find(["river", "none"], 3) == [PASSAGES[0][:1] * 3, []]
    assert asked[0] == {"queries": ["river", "none"], "topk": 3, "return_scores": True}


@pytest.mark.parametrize("failure", [500, 503, 429, {"result": [[]]}, {"results": []}, [1], {"result": [["x"], []]}])
async def test_what_may_pass_is_asked_again(failure: Any) -> None:
    handler, asked = answering(failure, failure, FOUND)
    async with serving(handler) as url:
        assert await Http(url, timeout=5, retries=2).find(["river", "none"], 3) == PASSAGES
    assert len(asked) == 3


@pytest.mark.parametrize(("failure", "attempts"), [(500, 3), (404, 1), ({"result": []}, 3)])
async def test_a_server_that_does_not_work_is_no_search_result(failure: Any, attempts: int) -> None:
    handler, asked = answering(failure)
    async with serving(handler) as url:
        with pytest.raises(ToolError, match=rf"^task.retriever_url={url}: no search result, attempt {attempts} ended"):
            await Http(url, timeout=5, retries=2).find(["river", "none"], 3)
    assert len(asked) == attempts


async def test_no_server_and_a_slow_one() -> None:
    released = asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        await released.wait()
        return web.json_response(FOUND)

    async with serving(slow) as url:
        with pytest.raises(ToolError, match=r"no complete answer within 0\.05 s"):
            await Http(url, timeout=0.05, retries=1).find(["river"], 3)
        released.set()
    with pytest.raises(ToolError, match=r"attempt 2 ended with: .*(Connect|connection)"):
        await Http(url, timeout=5, retries=1).find(["river"], 3)
