"""Advice that models write for those who change programs: new approaches (paradigms), and recommendations."""

import re
from collections.abc import Iterator
from typing import Any

from evorun.tasks.capabilities import Paradigm
from evorun.tasks.excerpts import excerpt
from evorun.tasks.json_text import object_schema, read_object, replace_lone_surrogates
from evorun.tasks.judging import REASONING_CHARS
from evorun.tasks.tags import escape_tags
from evorun.tasks.thinking import without_thinking

TITLE_CHARS = 200
"""Maximum characters of a paradigm's title (ours)."""
ADVICE_CHARS = 2000
"""Maximum characters of each other part of a paradigm (ours)."""
NOTE_CHARS = 8000
"""Maximum characters of a note on programs (ours)."""

_ITEM = re.compile(r"\s{0,3}\d{1,3}[.)](?:\s+|$)")
_LIMITS = {"title": TITLE_CHARS, "plan": ADVICE_CHARS, "target": ADVICE_CHARS, "pitfalls": ADVICE_CHARS}
_PARADIGM = object_schema(**{name: {"type": "string", "maxLength": limit} for name, limit in _LIMITS.items()})


def paradigms_schema(count: int) -> dict[str, Any]:
    """Return the schema of a reply with reasoning and then up to `count` paradigms."""
    return object_schema(
        reasoning={"type": "string", "maxLength": REASONING_CHARS},
        paradigms={"type": "array", "items": _PARADIGM, "minItems": 1, "maxItems": count},
    )


def read_paradigms(text: str) -> list[Paradigm]:
    """Return the paradigms of a completion that have a title and a plan; empty where there are none. Never raises."""
    reply = read_object(without_thinking(text), "paradigms")
    entries = [] if reply is None else reply["paradigms"]
    found = []
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, dict):
            continue
        parts = {name: _on_one_line(entry.get(name), limit) for name, limit in _LIMITS.items()}
        if parts["title"] and parts["plan"]:
            found.append(Paradigm(**parts))
    return found


def read_note(text: str) -> str:
    """Return a completion's text without thinking and intact tags, an excerpt where it is too long. Never raises."""
    return escape_tags(excerpt(replace_lone_surrogates(without_thinking(text)).strip(), NOTE_CHARS))


def read_recommendations(text: str) -> list[str]:
    """Return the different items of a completion's numbered list, each on one line. Never raises."""
    items = (_on_one_line(item, ADVICE_CHARS) for item in _split_items(without_thinking(text)))
    return list(dict.fromkeys(item for item in items if item))


def _split_items(text: str) -> Iterator[str]:
    """Yield the items of a numbered list, without their numbers; what stands before the first one is left out."""
    lines: list[str] | None = None
    for line in text.splitlines():
        number = _ITEM.match(line)
        if number is None:
            if lines is not None:
                lines.append(line)
            continue
        if lines is not None:
            yield " ".join(lines)
        lines = [line[number.end() :]]
    if lines is not None:
        yield " ".join(lines)


def _on_one_line(value: object, limit: int) -> str:
    """Return a text on one line, which can neither begin a part of a prompt nor end one; empty for anything else."""
    text = " ".join(replace_lone_surrogates(value).split()) if isinstance(value, str) else ""
    return escape_tags(excerpt(text, limit))
