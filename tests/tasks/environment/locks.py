"""A lock that a few turns of a dial open: as an object with tools, and as a server that speaks OpenEnv's protocol."""

import json
from typing import Any, ClassVar

from aiohttp import WSMsgType, web


class Lock:
    """Opens once the dial stands at its number; half of the reward is for reading the dial first."""

    made: ClassVar[int] = 0

    def __init__(self) -> None:
        Lock.made += 1
        self.done = False
        self._looked = False

    def reset(self, number: int, seed: int = 0) -> str:
        self._number, self._dial = number, seed
        return f"Open the lock: its number is {number}."

    def turn(self, steps: int) -> str:
        """Turn the dial by a number of steps."""
        self._dial += steps
        self.done = self._dial == self._number
        return "open" if self.done else "still locked"

    async def look(self) -> dict[str, int]:
        """Read the dial."""
        self._looked = True
        return {"dial": self._dial}

    def get_reward(self) -> float:
        return (0.5 if self._looked else 0.0) + (0.5 if self.done else 0.0)


class Silent:
    """An object without a reward."""

    def reset(self) -> str:
        return "..."


class Moody(Lock):
    """An object whose reset is another each time."""

    def reset(self, number: int, seed: int = 0) -> str:
        return f"{super().reset(number, seed)} {Lock.made}"


class PythonLock(Lock):
    """A lock with a tool named as the tool that runs programs."""

    def python(self) -> None:
        """Do nothing."""


class LockServer:
    """Serves locks as OpenEnv 0.10.0 does: over WebSocket, one episode a connection, with tools or a plain action."""

    def __init__(self, *, mcp: bool, capacity: int = 100) -> None:
        self.mcp, self.capacity = mcp, capacity
        self.sessions = self.most = self.opened = 0
        self.breaks: set[int] = set()
        """Numbers of the connections that end at their second step."""

    async def __aenter__(self) -> "LockServer":
        app = web.Application()
        app.router.add_get("/ws", self._serve)
        app.router.add_get("/schema", self._schema)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _schema(self, request: web.Request) -> web.Response:
        action = {"type": "object", "properties": {"steps": {"type": "integer"}, "metadata": {}}, "required": ["steps"]}
        return web.json_response({"action": action, "observation": {}, "state": {}})

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        if self.sessions >= self.capacity:
            await _send(socket, "error", {"message": "full", "code": "CAPACITY_REACHED"})
            return socket
        self.sessions += 1
        self.opened += 1
        number, steps, lock = self.opened, 0, Lock()
        self.most = max(self.most, self.sessions)
        try:
            async for raw in socket:
                if raw.type is not WSMsgType.TEXT:
                    continue
                message = json.loads(raw.data)
                if message["type"] == "close":
                    break
                if message["type"] == "reset":
                    shown = {"text": lock.reset(message["data"]["seed"] + 3), "metadata": {}}
                    await _send(socket, "observation", {"observation": shown, "reward": None, "done": False})
                    continue
                action = message["data"]
                steps += action.get("type") != "list_tools"
                if number in self.breaks and steps == 2:
                    break
                answer = await self._step(lock, action)
                await _send(socket, *answer)
        finally:
            self.sessions -= 1
        return socket

    async def _step(self, lock: Lock, action: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        if action.get("type") == "list_tools" and self.mcp:
            schema = {"type": "object", "properties": {"steps": {"type": "integer"}}}
            tools = [{"name": name, "description": f"{name} it", "input_schema": schema} for name in ("turn", "look")]
            return "observation", {"observation": {"tools": tools}, "reward": None, "done": False}
        before = lock.get_reward()
        try:
            if self.mcp:
                result = {"turn": lock.turn, "look": lock.look}[action["tool_name"]](**action["arguments"])
                data = result if isinstance(result, str) else await result
                shown: dict[str, Any] = {"tool_name": action["tool_name"], "error": None, "result": {"data": data}}
            else:
                shown = {"text": lock.turn(action["steps"]), "metadata": {}}
        except (KeyError, TypeError) as error:
            return "error", {"message": f"{type(error).__name__}: {error}", "code": "VALIDATION_ERROR"}
        return "observation", {"observation": shown, "reward": lock.get_reward() - before, "done": lock.done}


async def _send(socket: web.WebSocketResponse, kind: str, data: dict[str, Any]) -> None:
    await socket.send_json({"type": kind, "data": data})
