"""Texts of a server made fit for our messages and records: one line, cut, without the API key."""

import re
import sys

import msgspec

_LONGEST = 500
_HIDDEN = "***"
# Characters searched for secrets before a message is cut to a fraction of them; secrets are shorter.
_SEARCHED = 2**16


class Redactor:
    """Replaces secrets in texts that come from elsewhere, however often these were escaped."""

    def __init__(self, *secrets: str | None) -> None:
        """secrets: None and the empty string are none."""
        # Backslashes before a character escape it, however many: "\\/", "\\\\/"
        self._forms = [re.compile(r"\\*".join(map(re.escape, secret))) for secret in secrets if secret]

    def text(self, text: str) -> str:
        """Return a text without the secrets, as they are or in escapes of JSON, Python, URLs or HTML, nested or not."""
        for form in self._forms:
            text = form.sub(_HIDDEN, text)
            if _CODE.search(text):
                text = _without(form, text)
        return text

    def message(self, text: str) -> str:
        """Return a message on one line, without the secrets."""
        # Before the text is cut for a message: half a key would not be recognised.
        return one_line(self.text(text[:_SEARCHED]))


_CODE = re.compile(r"\\(?:[uUx][0-9a-fA-F]|u\{)|%[0-9a-fA-F]{2}|&#")
_ESCAPE = re.compile(
    r"(?:\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|u\{([0-9a-fA-F]{1,6})\}|x([0-9a-fA-F]{2}))"
    r"|%([0-9a-fA-F]{2})|&#[xX]([0-9a-fA-F]{1,6});|&#([0-9]{1,7});)\Z",
)
_LONGEST_ESCAPE = 10
_ENDS = frozenset("0123456789abcdefABCDEF;}")


def _without(form: re.Pattern[str], text: str) -> str:
    """Return a text without the passages that read as the secret once all character codes are undone."""
    characters: list[str] = []
    begins: list[int] = []
    for at, character in enumerate(text):
        characters.append(character)
        begins.append(at)
        # What an escape stands for may itself end an escape: "%2525" is "%25", which is "%"
        while characters[-1] in _ENDS:
            found = _ESCAPE.search("".join(characters[-_LONGEST_ESCAPE:]))
            if found is None:
                break
            *codes, decimal = found.groups()
            hexadecimal = next((code for code in codes if code), None)
            number = int(hexadecimal, 16) if hexadecimal else int(decimal or 0)
            begin = begins[-len(found[0])]
            del characters[-len(found[0]) :], begins[-len(found[0]) :]
            characters.append(chr(number if number < sys.maxunicode else 0xFFFD))
            begins.append(begin)
    begins.append(len(text))
    kept, read = [], 0
    for found in form.finditer("".join(characters)):
        kept += [text[read : begins[found.start()]], _HIDDEN]
        read = begins[found.end()]
    return "".join([*kept, text[read:]])


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
