"""Tags in texts that others wrote: they must not end a part of a prompt, begin a turn or pass for a reply's own."""

import re

# Whatever looks like a tag of a chat template, a tool call or a reply, in the ways that models write them. Not the
# verdict of task=ethics, which is no part of any prompt: whoever scores a response must see it in its own form.
_MARK = re.compile(r"<(?!/?(?i:verdict)>)(?=[A-Za-z/|!\uff5c])|\[(?=/?[A-Z_]{3,30}\])")


def inert(text: str) -> str:
    """Return a text in which no tag is left, neither a prompt's own nor a chat template's.

    A blank breaks each tag up, and the text stays readable.
    """
    return _MARK.sub(lambda found: f"{found[0]} ", text)
