"""Tags in untrusted texts: they must not end a part of a prompt, begin a turn or pass for a reply's own."""

import re
from collections.abc import Sequence

# Whatever looks like a tag of a chat template, a tool call or a reply, in the ways that models write them. Not the
# verdict of task=ethics, which is no part of any prompt: whoever scores a response must see it in its own form.
_MARK = re.compile(
    r"<(?!/?(?i:verdict)>)(?=[A-Za-z/|!\uff5c])|\[(?=/?[A-Z_]{3,30}(?:\d{1,4})?\]|\||gMASK\]|e~\[)|\](?=~!?b\[|~b\])"
)
_PLAIN_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z_]{0,30})>")


def escape_tags(text: str, known: Sequence[str] = ()) -> str:
    """Return a text without intact tags, of prompts or of chat templates.

    A blank breaks each tag up, so the text stays readable. known: tags that stay intact.
    """
    kept = tuple(known)
    return _MARK.sub(lambda found: found[0] if text.startswith(kept, found.start()) else f"{found[0]} ", text)


def tags_in(text: str) -> tuple[str, ...]:
    """Return the tags that a text both opens and closes (`<name>`, `</name>`): the tags that it asks replies to use."""
    found = set(_PLAIN_TAG.findall(text))
    names = sorted(name for slash, name in found if not slash and ("/", name) in found)
    return tuple(tag for name in names for tag in (f"<{name}>", f"</{name}>"))
