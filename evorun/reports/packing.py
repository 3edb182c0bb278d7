"""Data for the page's own script: texts cut to a size, compressed JSON, and JSON that cannot leave its element."""

import base64
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec


class Packed(NamedTuple):
    """Data as a page carries it."""

    content: str
    """JSON, compressed by zlib, in base64, which is safe inside a script element."""
    limit: int
    """Characters after which texts were cut."""

    @property
    def json(self) -> bytes:
        """The JSON as it was."""
        return zlib.decompress(base64.b64decode(self.content))


def pack_within(size: int, limits: Sequence[int], data: Callable[[int], Any]) -> Packed:
    """Pack what `data` returns for the first of the limits, in characters, that keeps it within a size in bytes."""
    for limit in limits:
        json = msgspec.json.encode(data(limit))
        content = base64.b64encode(zlib.compress(json, 9)).decode("ascii")
        if len(content) <= size:
            break
    return Packed(content, limit)


def script_json(value: Any) -> str:
    """Encode a value as JSON that can neither end nor escape from the script element around it."""
    # HTML ends a script at its first closing tag, quoted or not; the escapes mean the same to JSON
    text = msgspec.json.encode(value).decode("utf-8")
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def rounded(value: float | None) -> float | None:
    """Round to slightly more digits than the page shows, since further digits compress badly."""
    return None if value is None else round(value, 4)


def cut_within(value: Any, limit: int) -> Any:
    """Cut every text within a value of JSON."""
    if isinstance(value, dict):
        return {key: cut_within(item, limit) for key, item in value.items()}
    if isinstance(value, list):
        return [cut_within(item, limit) for item in value]
    return cut(value, limit) if isinstance(value, str) else value


def cut(text: str | None, limit: int) -> str | None:
    """Cut a text after a number of characters, and say how many are cut."""
    if text is None or len(text) <= limit:
        return text
    return f"{text[:limit]} … [{len(text) - limit:,} characters cut]"


def cut_middle(text: str, limit: int) -> str:
    """Cut out the middle of a text, and say how many characters are cut: a completion ends with its answer."""
    if len(text) <= limit:
        return text
    head = 2 * limit // 3
    tail = len(text) - (limit - head)
    return f"{text[:head]}\n… [{tail - head:,} characters cut] …\n{text[tail:]}"
