"""A server's texts, prepared for messages and records: one line, cut, without the API key."""

import re
import sys
import unicodedata
from base64 import b64encode
from collections.abc import Sequence
from html.entities import html5
from itertools import product

import msgspec

_LONGEST = 500
_HIDDEN = "***"
# Characters searched for secrets before a message is cut to a fraction of them; secrets are shorter.
_SEARCHED = 2**16
_MIN_IN_BASE64 = 5
"""Fewest bytes of a secret to search for in base64, which shows six characters of it: shorter ones match by chance."""
_LAYERS = 2
"""Most times that a secret may be encoded in base64, one encoding in another."""


class Redactor:
    """Replaces secrets in foreign texts, however often these were escaped."""

    def __init__(self, *secrets: str | None) -> None:
        """secrets: None and empty strings are ignored."""
        known = [secret for secret in secrets if secret]
        forms = [*map(_escaped, known), *sorted(form for secret in known for form in _in_base64(secret.encode()))]
        self._form = re.compile("|".join(forms)) if forms else None

    def text(self, text: str) -> str:
        """Return a text without the secrets: verbatim, in base64 once or twice, or in escapes, nested or not.

        Escapes are those of JSON, Python, C, JavaScript, URLs and HTML.
        """
        if self._form is None:
            return text
        text = self._form.sub(_HIDDEN, text)
        return _without(self._form, text) if _CODE.search(text) else text

    def message(self, text: str) -> str:
        """Return a message on one line, without the secrets."""
        # Before the text is cut for a message: half a key would not be recognised.
        return one_line(self.text(text[:_SEARCHED]))


def _escaped(secret: str) -> str:
    """Return a pattern of a secret whose characters may have backslashes before them, however many."""
    return r"\\*".join(map(re.escape, secret))


def _in_base64(secret: bytes, layers: int = _LAYERS) -> set[str]:
    """Return patterns of what base64 makes of a secret within a longer text, at each of the three offsets in a group.

    They omit characters that depend on the text before the secret.
    """
    if not layers or len(secret) < _MIN_IN_BASE64:
        return set()
    patterns = set()
    for before, alphabet in product(range(3), (b"+/", b"-_")):
        encoded = b64encode(bytes(before) + secret, alphabet)
        own = encoded[-(-8 * before // 6) : 8 * (before + len(secret)) // 6]
        patterns.add(r"[\\\s]*".join(map(re.escape, own.decode())) + "[-+_/A-Za-z0-9]?=*")
        patterns |= _in_base64(own, layers - 1)
    return patterns


_CODE = re.compile(r"\\(?:[uUxN]|[0-7]{2})|%[0-9a-fA-Fu]|&[#A-Za-z]")
_ESCAPE = re.compile(
    r"(?:\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|u\{([0-9a-fA-F]{1,6})\}|x([0-9a-fA-F]{2}))"
    r"|%u([0-9a-fA-F]{4})|%([0-9a-fA-F]{2})|&#[xX]([0-9a-fA-F]{1,6});|&#([0-9]{1,7});"
    # A shorter one begins with a digit that no longer one of an ASCII character has: nothing after it can belong to it
    r"|\\([0-3][0-7]{2}|[4-7][0-7])|\\N\{([-A-Za-z0-9 ]+)\}|&([A-Za-z][A-Za-z0-9]*;))\Z",
)
# HTML reads these without a semicolon, too; of its names only those of characters that keys have.
_UNENDED = re.compile(
    r"&(?:#([0-9]{1,7})(?![0-9;])|#[xX]([0-9a-fA-F]{1,6})(?![0-9a-fA-F;])|(amp|AMP|lt|LT|gt|GT|quot|QUOT)(?!;))"
)
_DEEPEST_UNENDED = 3
"""Times that such an entity may be in another one."""
_LONGEST_CODE = 10
_LONGEST_NAME = 36
_ENDS = frozenset("0123456789abcdefABCDEF;}")


def _without(form: re.Pattern[str], text: str) -> str:
    """Return a text without the passages that read as a secret once all escapes are undone."""
    read, begins = _undone(text, range(len(text)))
    for _ in range(_DEEPEST_UNENDED):
        if not _UNENDED.search(read):
            break
        read, begins = _undone(*_without_unended(read, begins))
    begins = [*begins, len(text)]
    kept, until = [], 0
    for found in form.finditer(read):
        kept += [text[until : begins[found.start()]], _HIDDEN]
        until = begins[found.end()]
    return "".join([*kept, text[until:]])


def _undone(text: str, places: Sequence[int]) -> tuple[str, list[int]]:
    """Return a text and the places of its characters when all escapes are undone.

    Takes time in proportion to the text, however deep they are nested.
    """
    characters: list[str] = []
    begins: list[int] = []
    for character, place in zip(text, places, strict=True):
        characters.append(character)
        begins.append(place)
        # What an escape stands for may itself end an escape: "%2525" is "%25", which is "%"
        while (last := characters[-1]) in _ENDS:
            found = _ESCAPE.search("".join(characters[-(_LONGEST_NAME if last in ";}" else _LONGEST_CODE) :]))
            meant = found and _character(found)
            if not (found and meant):
                break
            begin = begins[-len(found[0])]
            del characters[-len(found[0]) :], begins[-len(found[0]) :]
            characters.append(meant)
            begins.append(begin)
    return "".join(characters), begins


def _without_unended(text: str, places: Sequence[int]) -> tuple[str, list[int]]:
    """Return a text and the places of its characters when entities without a semicolon are undone."""
    parts: list[str] = []
    begins: list[int] = []
    until = 0
    for found in _UNENDED.finditer(text):
        decimal, hexadecimal, name = found.groups()
        meant = html5[name] if name else _of_code(int(decimal) if decimal else int(hexadecimal, 16))
        parts += [text[until : found.start()], meant]
        begins += places[until : found.start() + 1]
        until = found.end()
    return "".join([*parts, text[until:]]), [*begins, *places[until:]]


def _character(escape: re.Match[str]) -> str | None:
    """Return the character that an escape stands for; None for a name of no character or of several."""
    *hexadecimal, decimal, octal, name, entity = escape.groups()
    if entity:
        meant = html5.get(entity, "")
        return meant if len(meant) == 1 else None
    if name:
        try:
            return unicodedata.lookup(name)
        except KeyError:
            return None
    code = next((code for code in hexadecimal if code), "0")
    return _of_code(int(decimal) if decimal else int(octal, 8) if octal else int(code, 16))


def _of_code(number: int) -> str:
    return chr(number if number < sys.maxunicode else 0xFFFD)


def one_line(text: str) -> str:
    """Return `text` on one line, cut to the length of an error message."""
    line = " ".join(text[: 4 * _LONGEST].split())
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "..."


def error_text(content: bytes) -> str:
    """Return an error answer's message; all of its body where the layout is unknown."""
    try:
        body = msgspec.json.decode(content)
        for key in ("error", "message", "detail"):
            while isinstance(body, dict) and body.get(key):
                body = body[key]
        return body if isinstance(body, str) else msgspec.json.encode(body).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return content[:_SEARCHED].decode(errors="replace")


def time_span(seconds: float) -> str:
    """Return a time for messages, in seconds or in minutes."""
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} min"
