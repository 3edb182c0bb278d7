"""The contract of an environment: it is reset, acted on by tools, and gives a reward."""

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, get_type_hints

import msgspec

from evorun.errors import ConfigError, first_line
from evorun.tasks.tool_calls import Tool

RESERVED = ("reset", "get_reward", "close")


class Environment(Protocol):
    """One episode of an environment; an equal reset and equal calls lead to an equal state."""

    @property
    def done(self) -> bool:
        """True once the environment has ended the episode."""
        ...

    async def reset(self, row: Mapping[str, Any]) -> str:
        """Begin the episode of a row, and return what the model sees first."""
        ...

    async def tools(self) -> Sequence[Tool]:
        """Return the tools, the same in each episode."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool and return its result, or its error, as text.

        Raises ToolError where the environment itself has failed.
        """
        ...

    async def reward(self) -> float | None:
        """Return the episode's reward so far; None where there is none yet."""
        ...

    async def close(self) -> None:
        """Free what the episode holds."""
        ...


class PythonEnvironment:
    """An object with `reset(**row)`, public methods as tools and `get_reward()`, as TRL's trainers take them.

    The object is the user's code, and runs in this process. Plain methods run in a thread.
    """

    def __init__(self, made: Any) -> None:
        """Raise ConfigError for an object without `reset` or `get_reward`."""
        for name in ("reset", "get_reward"):
            if not callable(getattr(made, name, None)):
                raise ConfigError(f"task.environment: expected an object with {name}(), got {type(made).__name__}")
        self._made = made
        self._tools = {
            name: method
            for name, method in inspect.getmembers(made, callable)
            if not name.startswith("_") and name not in RESERVED and inspect.isroutine(method)
        }
        if not self._tools:
            raise ConfigError(f"task.environment: expected public methods as tools, {type(made).__name__} has none")

    @property
    def done(self) -> bool:
        """The object's own `done`, where it has one."""
        return bool(getattr(self._made, "done", False))

    async def reset(self, row: Mapping[str, Any]) -> str:
        shown = await _run(self._made.reset, row)
        return "" if shown is None else str(shown)

    async def tools(self) -> Sequence[Tool]:
        return [
            Tool(name, inspect.cleandoc(method.__doc__ or ""), describe_parameters(method))
            for name, method in self._tools.items()
        ]

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        if name not in self._tools:
            return f"error: unknown_tool: expected one of {', '.join(self._tools)}, got {name!r:.60}"
        try:
            inspect.signature(self._tools[name]).bind(**arguments)
            return format_result(await _run(self._tools[name], arguments))
        except Exception as error:  # a tool's failure at a model's arguments concerns only this episode
            return f"error: {first_line(error)}"

    async def reward(self) -> float | None:
        value = await _run(self._made.get_reward, {})
        return None if value is None else float(value)

    async def close(self) -> None:
        if callable(close := getattr(self._made, "close", None)):
            await _run(close, {})


async def _run(function: Any, arguments: Mapping[str, Any]) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    return await asyncio.to_thread(function, **arguments)


def describe_parameters(method: Any) -> dict[str, Any]:
    """Return the JSON schema of a method's arguments, by its annotations."""
    hints = get_type_hints(method)
    properties, required = {}, []
    for name, parameter in inspect.signature(method).parameters.items():
        try:
            properties[name] = msgspec.json.schema(hints[name]) if name in hints else {}
        except TypeError:  # a type that JSON has not
            properties[name] = {}
        if parameter.default is parameter.empty:
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


def format_result(result: Any) -> str:
    """Return a tool's result as text: texts as they are, everything else as JSON."""
    if isinstance(result, str):
        return result
    return msgspec.json.encode(result, enc_hook=str, order="deterministic").decode()
