"""Tool calls in a model's text: JSON objects in tags, as many models' own chat templates have them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from evorun.tasks.json_text import replace_lone_surrogates

OPENING, CLOSING = "<tool_call>", "</tool_call>"
MAX_CALL_CHARS = 32_768
"""Longest call that is read (ours): a program of some 800 lines."""

# No call reaches beyond the opening of the next one, so that time grows as the length does.
_CALLS = re.compile(rf"{OPENING}((?:(?!{OPENING}).)*?){CLOSING}", re.DOTALL)


class Tool(msgspec.Struct, frozen=True):
    """A tool as it is described to a model."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = {}
    """JSON schema of its arguments: an object."""


class ToolCall(msgspec.Struct, frozen=True):
    """A model's call of a tool; `error` says why a call could not be read."""

    name: str = ""
    arguments: dict[str, Any] = {}
    error: str = ""


def format_tools(tools: Sequence[Tool]) -> str:
    """Return the tools as lines of JSON, for a prompt."""
    return "\n".join(msgspec.json.encode(tool).decode() for tool in tools)


def read_calls(text: str) -> list[ToolCall]:
    """Return the calls of a turn in order, an unreadable one with its error; empty for a turn without any."""
    text = replace_lone_surrogates(text)
    calls = [_read(body) for body in _CALLS.findall(text)]
    rest = _CALLS.sub("", text)
    if OPENING in rest or CLOSING in rest:
        calls.append(
            ToolCall(error="unclosed: expected the tag tool_call to be opened before a call and closed after it")
        )
    return calls


def _read(body: str) -> ToolCall:
    if len(body) > MAX_CALL_CHARS:
        return ToolCall(error=f"too_long: expected a call of at most {MAX_CALL_CHARS} characters, got {len(body)}")
    try:
        call = msgspec.json.decode(body.strip(), type=ToolCall)
    except msgspec.ValidationError as error:
        return ToolCall(error=f"wrong_call: {error}")
    except (msgspec.DecodeError, RecursionError) as error:
        return ToolCall(error=f"bad_json: {error}")
    if not call.name:
        return ToolCall(error="unnamed: expected an object with the keys name and arguments")
    return msgspec.structs.replace(call, error="")


def without_calls(text: str) -> str:
    """Return the words of a turn around its calls."""
    return _CALLS.sub("", text).strip()


def write_call(name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call as `read_calls` reads it."""
    return f"{OPENING}{msgspec.json.encode({'name': name, 'arguments': arguments}).decode()}{CLOSING}"
