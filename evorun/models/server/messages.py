"""Texts of a server made fit for our messages and records: one line, cut, without the API key."""

import re

import msgspec

_LONGEST = 500
_HIDDEN = "***"
# Characters searched for secrets before a message is cut to a fraction of them; secrets are shorter.
_SEARCHED = 2**16


class Redactor:
    """Replaces secrets in texts that come from elsewhere."""

    def __init__(self, *secrets: str | None) -> None:
        """secrets: None and the empty string are none."""
        self._secrets = [secret for secret in secrets if secret]
        self._escaped = [re.compile("".join(map(_any_form, secret))) for secret in self._secrets]

    def text(self, text: str) -> str:
        """Return a decoded text without the secrets as they are."""
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return text

    def message(self, text: str) -> str:
        """Return a message on one line, without the secrets in any escaped form (of JSON in JSON, of URLs)."""
        # Before the text is cut for a message: half a key would not be recognised.
        text = text[:_SEARCHED]
        for pattern in self._escaped:
            text = pattern.sub(_HIDDEN, text)
        return one_line(text)


def _any_form(character: str) -> str:
    r"""Return the expression of a character as it is or escaped, perhaps several times over (`/`, `\/`, `\\u002f`)."""
    # At most four backslashes: without a bound, a run of them would be searched in quadratic time.
    code = f"{ord(character):02x}"
    return rf"(?:\\{{0,4}}{re.escape(character)}|\\{{1,4}}u00(?i:{code})|%(?i:{code}))"


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
