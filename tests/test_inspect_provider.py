"""evorun as a model provider of inspect_ai: an agent with tools on a server, recorded, replayed and within a budget."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from evorun.errors import ConfigError
from hostile_server import ChatServer, status

pytest.importorskip("inspect_ai")
pytestmark = pytest.mark.bridges


@pytest.fixture(autouse=True)
def _without_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSPECT_DISPLAY", "none")


def add_by_tool(body: dict[str, Any]) -> str:
    """Call the tool twice in a turn, then submit what it said; without tools, answer at once."""
    said = [message["content"] for message in body["messages"]]
    if "<tool_call>" not in said[0]:
        return "7"
    if body["messages"][-1]["role"] != "tool":
        calls = [{"name": "add", "arguments": {"x": 3, "y": 4}}, {"name": "add", "arguments": {"x": "three", "y": 4}}]
        return "I add.\n" + "\n".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in calls)
    return f'<tool_call>{{"name": "submit", "arguments": {{"answer": "{said[-2]}"}}}}</tool_call>'


def answer(body: dict[str, Any]) -> web.Response:
    message = {"role": "assistant", "content": add_by_tool(body)}
    usage = {"prompt_tokens": 20, "completion_tokens": 5}
    return web.json_response({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage})


async def evaluate(server: ChatServer, folder: Path, **settings: Any) -> Any:
    """Return inspect_ai's log of two agents' evaluation."""
    from inspect_ai import Task, eval_async
    from inspect_ai.agent import react
    from inspect_ai.dataset import Sample
    from inspect_ai.model import get_model
    from inspect_ai.scorer import exact
    from inspect_ai.tool import tool

    @tool
    def add() -> Any:
        async def execute(x: int, y: int) -> int:
            """Add two numbers.

            Args:
                x: The first one.
                y: The second one.
            """
            return x + y

        return execute

    task = Task([Sample(input=f"What is 3 + 4, {name}?", target="7") for name in "ab"], solver=react(tools=[add()]),
                scorer=exact())  # fmt: skip
    import evorun.api.inspect_provider  # noqa: F401 - as the entry point does

    settings = {"engine": "server", "engine.base_urls": [server.url], "engine.backoff_base": 0.01, **settings}
    model = get_model("evorun/api", memoize=False, folder=str(folder), **{"model.id": "fake", **settings})
    try:
        [log] = await eval_async(task, model=model, log_dir=str(folder / "logs"))
    finally:
        await model.api.aclose()
    return log


def test_agents_run_on_evoruns_engine_and_again_from_its_journal(tmp_path: Path) -> None:
    async def run() -> None:
        async with ChatServer(answer=answer) as server:
            log = await evaluate(server, tmp_path)
            assert log.status == "success", log.error
            assert [sample.scores["exact"].value for sample in log.samples] == ["C", "C"]
            asked = len(server.seen)
            roles = [message.role for message in log.samples[0].messages]
            assert roles.count("tool") == 2
            failed = [message for message in log.samples[0].messages if message.role == "tool" and message.error]
            assert len(failed) == 1
            # Again, without a model: the server has gone, and the journal answers.
            server.fault = status(500)
            again = await evaluate(server, tmp_path)
            assert len(server.seen) == asked
            assert [s.output.completion for s in again.samples] == [s.output.completion for s in log.samples]
            usage = json.loads((tmp_path / "usage.json").read_text())
            assert usage["calls"] == asked

    asyncio.run(run())


def test_a_spent_budget_ends_the_sample(tmp_path: Path) -> None:
    async def run() -> None:
        async with ChatServer(answer=answer) as server:
            log = await evaluate(server, tmp_path, **{"budget.calls": 3})
            assert log.status == "success", log.error
            assert len(server.seen) == 3
            limits = [sample.limit for sample in log.samples if sample.limit]
            assert [limit.type for limit in limits] == ["custom"] * len(limits) != []

    asyncio.run(run())


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"engine": "simulated"}, "engine=simulated: expected an engine with a model"),
        ({"budget.calls_per_problem": 3}, "budget.calls_per_problem: expected budget.calls or budget.tokens"),
        ({"engine.no_such": 1}, "engine.no_such"),
        ({"base_url": "http://127.0.0.1"}, "expected no base_url"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], line: str) -> None:
    from inspect_ai.model import get_model

    import evorun.api.inspect_provider  # noqa: F401 - as the entry point does

    with pytest.raises(ConfigError, match=line):
        get_model("evorun/api", memoize=False, **{"engine": "server", "model.id": "fake", **settings})
