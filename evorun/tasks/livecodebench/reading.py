"""Reading the program out of a completion."""

import re
from typing import Any

from evorun.runs.candidates import Response
from evorun.tasks.json_text import read_object, well_formed
from evorun.tasks.livecodebench.syntax import parsed

MAX_SOURCE_BYTES = 64 * 1024
"""Longest program that is taken; AtCoder's and Codeforces' own bound."""
MEMORY_CHARS = 500
"""Longest evolving memory (A.1); what goes beyond is cut off."""

# A fence begins only where its run of ticks does: trying every tick of a long run would take quadratic time.
_BLOCK = r"(?<!`)`{{3,}}[ \t]*(?:python3?|py){optional}[ \t]*\r?\n(.*?)(?:\r?\n[ \t]*```|\Z)"
_FENCED = re.compile(_BLOCK.format(optional="?"), re.DOTALL | re.IGNORECASE)
_PYTHON = re.compile(_BLOCK.format(optional=""), re.DOTALL | re.IGNORECASE)
_TICKED = re.compile(r"`{1,2}(?:python3?|py)?\s(.*)`{1,2}", re.DOTALL | re.IGNORECASE)


def read_program(text: str) -> Response:
    """Parse a completion; never raises.

    A JSON object's `solution` is the program, its fence stripped. Near-JSON is repaired, and where the repaired program
    is no Python while the text's last ```python block is, that block counts: unescaped quotes and line breaks can
    mislead a repair. A text without such an object counts by its last ```python block alone. A program that does not
    compile is an answer all the same: running it is what shows. Otherwise `answer` is None and `error` starts with its
    kind: `empty`, `no_json`, `no_solution` or `too_long`.
    """
    text = well_formed(text)
    if not text.strip():
        return Response(text=text, answer=None, error="empty: the completion has no text")
    reply = read_object(text)
    if reply is None or "solution" not in reply:
        error = "no_json: neither a JSON object nor a fenced Python block"
        if reply is not None:
            error = "no_solution: neither a key 'solution' in the JSON object nor a fenced Python block"
        return _response(text, _last_block(text), error, reasoning=_PYTHON.sub("", text).strip())
    source, error = _stated(reply["solution"])
    if source is None or not _is_python(source):
        block = _last_block(text)
        source = block if block and _is_python(block) else source
    return _response(text, source, error, reasoning=_text(reply, "reasoning"), memory=_text(reply, "evolving_memory"))


def _response(text: str, source: str | None, error: str, *, reasoning: str = "", memory: str = "") -> Response:
    if source is not None and _too_long(source):
        source, error = None, f"too_long: the program has more than {MAX_SOURCE_BYTES // 1024} kB"
    return Response(
        text=text,
        answer=source,
        reasoning=reasoning if source is not None else "",
        memory=memory[:MEMORY_CHARS],
        error=error if source is None else None,
    )


def _too_long(source: str) -> bool:
    return len(source.encode()) > MAX_SOURCE_BYTES


def _is_python(source: str) -> bool:
    return not _too_long(source) and parsed(source) is not None


def _stated(value: object) -> tuple[str | None, str]:
    if not isinstance(value, str):
        return None, f"no_solution: expected a program as text, got {type(value).__name__}"
    source = _without_fence(well_formed(value))
    return (source, "") if source.strip() else (None, "no_solution: the program is empty")


def _without_fence(value: str) -> str:
    blocks = _FENCED.findall(value)
    if blocks:
        return str(blocks[-1])
    ticked = _TICKED.fullmatch(value.strip())
    return ticked[1] if ticked else value


def _last_block(text: str) -> str | None:
    blocks = [block for block in _PYTHON.findall(text) if block.strip()]
    return blocks[-1] if blocks else None


def _text(reply: dict[str, Any], key: str) -> str:
    value = reply.get(key)
    return well_formed(value).strip() if isinstance(value, str) else ""
