"""Reading the JSON object that a model was asked for, also where it is only nearly JSON or stands amid braces."""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, SupportsIndex

MAX_DEPTH = 40
"""Deepest bracket nesting that is repaired; the repair of deeper texts takes up to a second and yields nothing."""
MAX_REPAIR_CHARS = 16_000
"""Characters of a text that are repaired, its last objects first: the repair's time can grow faster than the text."""
MAX_REPAIR_STEPS = 200_000
"""Looks at a character that a repair may take (ours): texts of models take 1 to 4 for each, hostile ones thousands."""
MAX_FAULTY = 1_000
"""Objects that may fail to be JSON (ours): each failure costs a look at the whole text before it."""
MAX_DIGITS = 4_000
"""Longest integer; Python refuses to convert longer ones, which are infinite here."""

# An object begins with a key: `\frac{1}{2}` and `{98, 100}` do not. Quotation marks may be typographic.
_OPENING = re.compile(r"\{\s*+(?:[\"'\u201c\u2018]|[A-Za-z_][\w -]{0,40}:)")
_BRACKETS = re.compile(r"[\[\]{}]")
# A string ends on its line: in prose a quotation mark may stand alone
_BRACE_OR_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*+"|\\.|[{}]', re.DOTALL)
_DECODER = json.JSONDecoder(
    parse_int=lambda digits: int(digits) if len(digits) <= MAX_DIGITS else float(digits), parse_constant=str
)


class Found(NamedTuple):
    """A JSON object in a text."""

    value: dict[str, Any]
    """Its keys are in lower case."""
    start: int
    end: int
    """The first character after it; the text's end for an object that never ends."""


class _Candidate(NamedTuple):
    """A place where a JSON object begins."""

    start: int
    end: int | None
    """None: its braces are never closed."""
    value: Any
    """None: it is no JSON as it stands."""


def read_object(text: str, *keys: str) -> dict[str, Any] | None:
    """Return the last JSON object in a text that has one of the keys; None without any. Never raises.

    keys: in lower case, as the returned object has them. See `find_object`.
    """
    found = find_object(text, *keys)
    return None if found is None else found.value


def find_object(text: str, *keys: str) -> Found | None:
    """Find the last JSON object in a text that has one of the keys, whatever case they are in; None without any.

    An object goes before those in it, and one in a list or another object is found too. Trailing commas, unescaped
    LaTeX, single quotes and cut-off ends are left to the json-repair library. Never raises; takes time linear in the
    text's length.
    """
    room = MAX_REPAIR_CHARS
    for candidate in _candidates(text):
        end = len(text) if candidate.end is None else candidate.end
        value = candidate.value
        if value is None:
            length = end - candidate.start
            if length > room:
                continue
            room -= length
            value = _repaired(text[candidate.start : end])
        if (object_ := _with_key(value, keys)) is not None:
            return Found(object_, candidate.start, end)
    return None


def end_of_object(text: str, *keys: str) -> int:
    """Return where the object that `find_object` finds ends; 0 without any."""
    found = find_object(text, *keys)
    return 0 if found is None else found.end


def find_strict(text: str, key: str) -> Found | None:
    """Find the last object in a text that has the key and is JSON as it stands; None without any. Never raises."""
    for start, end, value in _candidates(text):
        if end is not None and (object_ := _with_key(value, (key,))) is not None:
            return Found(object_, start, end)
    return None


def replace_lone_surrogates(text: str) -> str:
    """Return `text` with lone surrogates replaced, so that it can be encoded as UTF-8."""
    return text.encode("utf-8", "replace").decode()


@lru_cache(maxsize=32)  # a reply is looked into for its answer and for its reasoning
def _candidates(text: str) -> tuple[_Candidate, ...]:
    """Return the objects of a text, those that end last first; one that never ends goes by its beginning."""
    ends: dict[int, int] | None = None
    found: list[_Candidate] = []
    at = faulty = 0
    while (opening := _OPENING.search(text, at)) and faulty < MAX_FAULTY:
        start = opening.start()
        try:
            value, at = _DECODER.raw_decode(text, start)
            found.append(_Candidate(start, at, value))
        except json.JSONDecodeError as error:
            # What was JSON so far is not looked at again, so that time is linear.
            at, faulty = max(error.pos, start + 1), faulty + 1
            ends = _closings(text) if ends is None else ends
            found.append(_Candidate(start, ends.get(start), None))
        except RecursionError:  # no reply to read, and its inner objects would each take as long
            break
    return tuple(sorted(found, key=lambda one: (one.start if one.end is None else one.end, -one.start), reverse=True))


def _closings(text: str) -> dict[int, int]:
    """Return where the braces of a text are closed: the first character behind each, by its place."""
    opened: list[int] = []
    ends: dict[int, int] = {}
    for token in _BRACE_OR_STRING.finditer(text):
        if token[0] == "{":
            opened.append(token.start())
        elif token[0] == "}" and opened:
            ends[opened.pop()] = token.end()
    return ends


def _with_key(value: Any, keys: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the outermost object with one of the keys, the last of several; its keys in lower case."""
    level = [value]
    while level:
        for one in reversed(level):
            if isinstance(one, dict):
                named = {_name(key): member for key, member in one.items()}
                if not named.keys().isdisjoint(keys):
                    return named
        level = [member for one in level for member in _members(one)]
    return None


def _name(key: object) -> str:
    return str(key).strip().lower()


def _members(value: Any) -> Iterator[Any]:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    yield from members


@lru_cache(maxsize=32)
def _repaired(text: str) -> Any:
    steps = (1 if bracket in "[{" else -1 for bracket in _BRACKETS.findall(text))
    if max(accumulate(steps), default=0) > MAX_DEPTH:
        return None
    from json_repair import loads

    try:
        return loads(_Watched(text))
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
