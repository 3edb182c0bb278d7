"""Reading the JSON object that a model was asked for, also where it is only nearly JSON."""

import re
from functools import lru_cache
from itertools import accumulate
from typing import Any, SupportsIndex

import msgspec

MAX_DEPTH = 40
"""Deepest bracket nesting that is repaired; the repair of deeper texts takes up to a second and yields nothing."""
MAX_REPAIR_CHARS = 16_000
"""Characters at a text's end that are repaired: the repair's time can grow faster than the text."""
MAX_REPAIR_STEPS = 200_000
"""Looks at a character that a repair may take (ours): texts of models take 1 to 4 for each, hostile ones thousands."""

_BRACKETS = re.compile(r"[\[\]{}]")


def read_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that `text` holds, or None when there is none; never raises.

    Strict JSON is tried first. Code fences, text around the object, trailing commas, unescaped LaTeX, single quotes and
    cut-off ends are left to the json-repair library.
    """
    # The repair accepts what strict JSON refuses and reads some texts otherwise, so it comes second.
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = _repaired(text)
    return value if isinstance(value, dict) else None


def well_formed(text: str) -> str:
    """Return `text` with lone surrogates replaced, so that it can be encoded as UTF-8."""
    return text.encode("utf-8", "replace").decode()


@lru_cache(maxsize=32)  # a reply is looked into for its answer and for its reasoning
def _repaired(text: str) -> Any:
    # From a brace on, so that prose in front of the object is not taken for a bare string.
    start = text.find("{", max(0, len(text) - MAX_REPAIR_CHARS))
    steps = (1 if bracket in "[{" else -1 for bracket in _BRACKETS.findall(text[start:]))
    if start < 0 or max(accumulate(steps), default=0) > MAX_DEPTH:
        return None
    from json_repair import loads

    try:
        return loads(_Watched(text[start:]))
    # A third party's parser on arbitrary text: whatever it raises means that it found no object.
    except Exception:
        return None


class _Watched(str):
    """A text that stops the parser that looks at its characters too often."""

    _steps = 0

    def __getitem__(self, index: SupportsIndex | slice) -> str:
        self._steps += 1
        if self._steps > MAX_REPAIR_STEPS:
            raise RuntimeError(f"more than {MAX_REPAIR_STEPS} steps")
        return super().__getitem__(index)
