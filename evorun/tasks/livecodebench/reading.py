"""Reading a completion: the program in it, what argues for it, and the notes that it leaves."""

import re
from typing import Any

from evorun.tasks.excerpts import excerpt
from evorun.tasks.json_text import read_object, well_formed
from evorun.tasks.livecodebench.programs import parsed

MAX_SOURCE_BYTES = 64 * 1024
"""Longest program that is taken; AtCoder's and Codeforces' own bound."""
MEMORY_CHARS = 500
"""Longest evolving memory (A.1); of a longer one an excerpt is kept."""

# A fence begins only where its run of ticks does: trying every tick of a long run would take quadratic time.
_BLOCK = r"(?<!`)`{{3,}}[ \t]*+(?:python3?|py){optional}[ \t]*+\r?\n(.*?)(?:\r?\n[ \t]*```|\Z)"
_FENCED = re.compile(_BLOCK.format(optional="?"), re.DOTALL | re.IGNORECASE)
_PYTHON = re.compile(_BLOCK.format(optional=""), re.DOTALL | re.IGNORECASE)
_TICKED = re.compile(r"`{1,2}(?:python3?|py)?\s(.*)`{1,2}", re.DOTALL | re.IGNORECASE)


def read_program(text: str) -> str:
    """Return the program that a completion hands in; one that does not compile too, as running it shows that.

    A JSON object's `solution` is the program, its fence stripped. Near-JSON is repaired, and where the repaired program
    is no Python while the text's last ```python block is, that block counts: unescaped quotes and line breaks can
    mislead a repair. A text without such an object counts by its last ```python block alone.

    Raises ValueError with one of the kinds `no_json`, `no_solution` and `too_long`.
    """
    reply = read_object(text)
    block: str | None = next((block for block in reversed(_PYTHON.findall(text)) if block.strip()), None)
    if reply is None or "solution" not in reply:
        source = block
        error = "no_json: neither a JSON object nor a fenced Python block"
        if reply is not None:
            error = "no_solution: neither a key 'solution' in the JSON object nor a fenced Python block"
    else:
        source, error = _stated(reply["solution"])
        if (source is None or not _is_python(source)) and block and _is_python(block):
            source = block
    if source is None:
        raise ValueError(error)
    if _too_long(source):
        raise ValueError(f"too_long: the program has more than {MAX_SOURCE_BYTES // 1024} kB")
    return source


def read_reasoning(text: str) -> str:
    """Return what a completion says for its program: the JSON object's `reasoning`, or all but the Python blocks."""
    reply = _reply(text)
    return _PYTHON.sub("", text).strip() if reply is None else _text(reply, "reasoning")


def read_memory(text: str) -> str:
    """Return the notes of a JSON object that states a solution, readable or not; empty without any."""
    reply = _reply(text)
    return "" if reply is None else excerpt(_text(reply, "evolving_memory"), MEMORY_CHARS)


def _reply(text: str) -> dict[str, Any] | None:
    reply = read_object(text)
    return reply if reply is not None and "solution" in reply else None


def _stated(value: object) -> tuple[str | None, str]:
    """Return a JSON object's program, or None and why there is none."""
    if not isinstance(value, str):
        return None, f"no_solution: expected a program as text, got {type(value).__name__}"
    source = well_formed(value)
    blocks = _FENCED.findall(source)
    if blocks:
        source = str(blocks[-1])
    elif ticked := _TICKED.fullmatch(source.strip()):
        source = str(ticked[1])
    return (source, "") if source.strip() else (None, "no_solution: the program is empty")


def _too_long(source: str) -> bool:
    return len(source.encode(errors="replace")) > MAX_SOURCE_BYTES


def _is_python(source: str) -> bool:
    return not _too_long(source) and parsed(source) is not None


def _text(reply: dict[str, Any], key: str) -> str:
    value = reply.get(key)
    return well_formed(value).strip() if isinstance(value, str) else ""
