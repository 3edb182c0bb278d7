"""An OpenEnv server as an environment: one WebSocket connection an episode, without OpenEnv's own packages.

The messages are those of OpenEnv 0.10.0: `reset`, `step` and `close`, answered by `observation` or `error`. Tools are
those of an MCP environment or, where it is none, a single tool `step` with the server's schema of actions.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from evorun.errors import ToolError, first_line
from evorun.tasks.environment.base import format_result
from evorun.tasks.tool_calls import Tool

STEP = "step"
MAX_MESSAGE_BYTES = 64 << 20
"""Largest message of a server (ours)."""


class OpenEnv:
    """One episode on an OpenEnv server."""

    def __init__(self, url: str, *, timeout: float, returns: str) -> None:
        """url: of the server (http or ws). timeout: seconds per answer. returns: `sum` or `last` of the rewards."""
        self.done = False
        self._url = url.rstrip("/").removesuffix("/ws")
        self._place = self._url.removeprefix("http").removeprefix("ws")
        """The address from `://` or `s://` on."""
        self._timeout = timeout
        self._returns = returns
        self._rewards: list[float] = []
        self._http: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._is_mcp: bool | None = None

    async def reset(self, row: Mapping[str, Any]) -> str:
        self._rewards, self.done = [], False
        return self._read(await self._ask("reset", dict(row)))

    async def tools(self) -> Sequence[Tool]:
        try:
            listed = (await self._ask(STEP, {"type": "list_tools"})).get("observation", {}).get("tools")
        except _Refused:
            listed = None
        self._is_mcp = isinstance(listed, list)
        if isinstance(listed, list):
            return [Tool(tool["name"], tool.get("description", ""), tool.get("input_schema", {})) for tool in listed]
        return [Tool(STEP, "Take an action in the environment.", await self._action_schema())]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        if self._is_mcp is None:
            await self.tools()
        if not self._is_mcp and name != STEP:
            return f"error: unknown_tool: expected {STEP}, got {name!r:.60}"
        action = {"type": "call_tool", "tool_name": name, "arguments": arguments} if self._is_mcp else arguments
        try:
            return self._read(await self._ask(STEP, action))
        except _Refused as error:
            return f"error: {error}"

    async def reward(self) -> float | None:
        if not self._rewards:
            return None
        return sum(self._rewards) if self._returns == "sum" else self._rewards[-1]

    async def close(self) -> None:
        socket, http, self._socket, self._http = self._socket, self._http, None, None
        try:
            if socket is not None and not socket.closed:
                await socket.send_json({"type": "close"})
                await socket.close()
        except (aiohttp.ClientError, OSError):
            pass  # the server has gone, and with it the episode
        finally:
            if http is not None:
                await http.close()

    # --- messages ---

    def _read(self, data: Mapping[str, Any]) -> str:
        """Note the reward and the end, and return the observation as text."""
        if data.get("reward") is not None:
            self._rewards.append(float(data["reward"]))
        self.done = bool(data.get("done"))
        seen = dict(data.get("observation") or {})
        seen.pop("metadata", None)
        if seen.pop("tool_name", None) is not None:
            # Of an MCP tool, whose result has its data beside the same as content.
            error, result = seen.get("error"), seen.get("result")
            if error:
                return f"error: {error.get('message', error) if isinstance(error, Mapping) else error}"
            return format_result(result["data"] if isinstance(result, Mapping) and "data" in result else result)
        shown = list(seen.values())
        return format_result(shown[0] if len(shown) == 1 else seen) if seen else ""

    async def _ask(self, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """Send a message and return its answer's data. Raises _Refused for a refusal, ToolError for no answer."""
        try:
            async with asyncio.timeout(self._timeout):
                if self._socket is None:
                    self._http = self._http or aiohttp.ClientSession()
                    self._socket = await self._http.ws_connect(f"ws{self._place}/ws", max_msg_size=MAX_MESSAGE_BYTES)
                await self._socket.send_json({"type": kind, "data": data})
                answer = await self._socket.receive_json()
        except (aiohttp.ClientError, OSError, TimeoutError, TypeError, ValueError) as error:
            await self.close()
            raise ToolError(f"task.url={self._url}: the environment does not answer: {first_line(error)}") from error
        if answer.get("type") == "error":
            said = answer.get("data") or {}
            if said.get("code") in ("CAPACITY_REACHED", "FACTORY_ERROR", "SESSION_ERROR"):
                await self.close()
                raise ToolError(
                    f"task.url={self._url}: {said.get('message')} ({said.get('code')}); lower task.sessions to what "
                    "the server allows"
                )
            raise _Refused(f"{said.get('code', 'error')}: {said.get('message', '')}")
        found: dict[str, Any] = answer.get("data") or {}
        return found

    async def _action_schema(self) -> dict[str, Any]:
        try:
            async with (
                asyncio.timeout(self._timeout),
                aiohttp.ClientSession() as http,
                http.get(f"http{self._place}/schema") as answer,
            ):
                schema: dict[str, Any] = (await answer.json())["action"]
        except (aiohttp.ClientError, OSError, TimeoutError, KeyError, ValueError) as error:
            raise ToolError(f"task.url={self._url}: expected its schema of actions, got {first_line(error)}") from error
        schema.get("properties", {}).pop("metadata", None)
        return schema


class _Refused(Exception):
    """The server refuses a message, as for an action that is not in its schema."""
