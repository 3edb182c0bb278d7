"""The thinking of reasoning models, between tags before a reply: it is not part of the reply.

Chat templates often hold the opening tag, so that a completion may begin in the middle of the thinking.
"""

import re

# Qwen, DeepSeek and most others; Magistral; Kimi; OpenThinker; gpt-oss
_END = re.compile(
    r"</(?:seed:)?(?:think|thinking|thought)>|\[/THINK\]|\u25c1/think\u25b7|<\|end_of_thought\|>"
    r"|<\|channel\|>final<\|message\|>",
    re.IGNORECASE,
)
_BEGINNING = re.compile(
    r"^[ \t]*+(?:<(?:seed:)?(?:think|thinking|thought)>|\[THINK\]|\u25c1think\u25b7|<\|begin_of_thought\|>"
    r"|<\|channel\|>analysis<\|message\|>)",
    re.IGNORECASE | re.MULTILINE,
)

_TAG = re.compile(r"<(/?)(?:seed:)?(?:think|thinking|thought)>", re.IGNORECASE)


def without_thinking(text: str) -> str:
    """Return a completion without its thinking: what follows the last closing tag.

    Thinking that is never closed was cut off by the token limit, and extends to the end.
    """
    end = max((closing.end() for closing in _END.finditer(text)), default=0)
    reply = text[end:]
    unfinished = _BEGINNING.search(reply)
    return reply[: unfinished.start()] if unfinished else reply


def outside_thinking(text: str) -> str:
    """Return all of a completion outside its thinking, including text before it: no part may be overlooked.

    A closing tag without an opening one ends thinking that the chat template began.
    """
    kept: list[str] = []
    at, opened = 0, None
    for tag in _TAG.finditer(text):
        if not tag[1]:
            opened = tag.start() if opened is None else opened
        elif opened is None:
            kept, at = [], tag.end()
        else:
            kept.append(text[at:opened])
            at, opened = tag.end(), None
    return without_thinking(" ".join([*kept, text[at:]]))  # a blank: separate texts must not join to a tag
