"""Reads the JSON object in a model's reply, even if it is only nearly JSON or stands among other braces."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, SupportsIndex

MAX_DEPTH = 40
"""Maximum bracket nesting to repair; repairing deeper texts takes up to a second and yields nothing."""
MAX_REPAIR_CHARS = 16_000
"""Maximum characters of a text to repair, last objects first: repair time can grow faster than the text."""
MAX_REPAIR_STEPS = 200_000
"""Maximum character accesses of a repair (ours): models' texts take 1 to 4 per character, hostile ones thousands."""
MAX_FAULTY = 1_000
"""Maximum number of invalid objects (ours): each failure costs a scan of all text before it."""
MAX_DIGITS = 4_000
"""Maximum digits of an integer; Python refuses to convert longer ones, which become infinite here."""

# An object begins with a key: `\frac{1}{2}` and `{98, 100}` do not. Quotation marks may be typographic.
_OPENING = re.compile(r"\{\s*+(?:[\"'\u201c\u2018]|[A-Za-z_][\w -]{0,40}:)")
_BRACKETS = re.compile(r"[\[\]{}]")
# A string ends on its line, since prose may have an unpaired quotation mark
_BRACE_OR_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*+"|\\.|[{}]', re.DOTALL)
_DECODER = json.JSONDecoder(
    parse_int=lambda digits: int(digits) if len(digits) <= MAX_DIGITS else float(digits), parse_constant=str
)


class Found(NamedTuple):
    """A JSON object in a text."""

    value: dict[str, Any]
    """The object, with its keys in lower case."""
    start: int
    end: int
    """Index of the first character after it; the end of the text for an unclosed object."""


class _Candidate(NamedTuple):
    """A possible JSON object in a text."""

    start: int
    end: int | None
    """None: its braces are not closed."""
    value: Any
    """None: it is not valid JSON."""


def read_object(text: str, *keys: str) -> dict[str, Any] | None:
    """Return the last JSON object in a text that has one of the keys; None if there is none. Never raises.

    keys: in lower case, as the returned object has them. See `find_object`.
    """
    found = find_object(text, *keys)
    return None if found is None else found.value


def find_object(text: str, *keys: str) -> Found | None:
    """Find the last JSON object in a text that has one of the keys in any case; None if there is none.

    Outer objects come before the objects in them; objects in lists and other objects are found, too. The json-repair
    library handles trailing commas, unescaped LaTeX, single quotes and cut-off ends. Never raises; takes linear time.
    """
    repairable_chars = MAX_REPAIR_CHARS
    for candidate in _candidates(text):
        end = len(text) if candidate.end is None else candidate.end
        value = candidate.value
        if value is None:
            length = end - candidate.start
            if length > repairable_chars:
                continue
            repairable_chars -= length
            value = _repair(text[candidate.start : end])
        if (object_ := _find_with_key(value, keys)) is not None:
            return Found(object_, candidate.start, end)
    return None


def end_of_object(text: str, *keys: str) -> int:
    """Return the end of the object that `find_object` finds; 0 if there is none."""
    found = find_object(text, *keys)
    return 0 if found is None else found.end


def find_valid_object(text: str, key: str) -> Found | None:
    """Find the last valid JSON object in a text that has the key; None if there is none. Never raises."""
    for start, end, value in _candidates(text):
        if end is not None and (object_ := _find_with_key(value, (key,))) is not None:
            return Found(object_, start, end)
    return None


def object_schema(**properties: Any) -> dict[str, Any]:
    """Return the JSON schema of an object with exactly these properties, in their order."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def replace_lone_surrogates(text: str) -> str:
    """Return `text` with lone surrogates replaced, so that it can be encoded as UTF-8."""
    return text.encode("utf-8", "replace").decode()


@lru_cache(maxsize=32)  # a reply is searched for its answer and for its reasoning
def _candidates(text: str) -> tuple[_Candidate, ...]:
    """Return the objects of a text, the last to end first; an unclosed object counts by its start."""
    ends: dict[int, int] | None = None
    candidates: list[_Candidate] = []
    at = faulty = 0
    while (opening := _OPENING.search(text, at)) and faulty < MAX_FAULTY:
        start = opening.start()
        try:
            value, at = _DECODER.raw_decode(text, start)
            candidates.append(_Candidate(start, at, value))
        except json.JSONDecodeError as error:
            # Valid text before the error is not scanned again, so time is linear.
            at, faulty = max(error.pos, start + 1), faulty + 1
            ends = _match_braces(text) if ends is None else ends
            candidates.append(_Candidate(start, ends.get(start), None))
        except RecursionError:  # no readable reply, and each inner object would take as long
            break
    return tuple(
        sorted(
            candidates,
            key=lambda candidate: (candidate.start if candidate.end is None else candidate.end, -candidate.start),
            reverse=True,
        )
    )


def _match_braces(text: str) -> dict[int, int]:
    """Return, for each opening brace of a text, the index after its closing brace."""
    opened: list[int] = []
    ends: dict[int, int] = {}
    for token in _BRACE_OR_STRING.finditer(text):
        if token[0] == "{":
            opened.append(token.start())
        elif token[0] == "}" and opened:
            ends[opened.pop()] = token.end()
    return ends


def _find_with_key(value: Any, keys: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the last outermost object with one of the keys, its keys in lower case."""
    level = [value]
    while level:
        for node in reversed(level):
            if isinstance(node, dict):
                object_ = {_name(key): member for key, member in node.items()}
                if not object_.keys().isdisjoint(keys):
                    return object_
        level = [member for node in level for member in _members(node)]
    return None


def _name(key: object) -> str:
    return str(key).strip().lower()


def _members(value: Any) -> Iterator[Any]:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    yield from members


@lru_cache(maxsize=32)
def _repair(text: str) -> Any:
    steps = (1 if bracket in "[{" else -1 for bracket in _BRACKETS.findall(text))
    if max(accumulate(steps), default=0) > MAX_DEPTH:
        return None
    from json_repair import loads

    try:
        return loads(_AccessLimitedStr(text))
    # A third party's parser on arbitrary text: any exception means that it found no object.
    except Exception:
        return None


class _AccessLimitedStr(str):
    """A text that stops a parser after too many character accesses."""

    _steps = 0

    def __getitem__(self, index: SupportsIndex | slice) -> str:
        self._steps += 1
        if self._steps > MAX_REPAIR_STEPS:
            raise RuntimeError(f"more than {MAX_REPAIR_STEPS} steps")
        return super().__getitem__(index)
