"""Rubrics as a meta reward model writes them down: whole, or criterion by criterion as MPO's released code has it."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from evorun.methods.meta_prompts import MetaPrompts, read_refinement, reason, said
from evorun.models.base import Message, Reply
from evorun.tasks.base import Prompt
from evorun.tasks.rubric_json import tagged_rubric
from evorun.tasks.rubrics import Rubric, read_rubric

Ask: TypeAlias = Callable[[Prompt, int, int], Awaitable[Reply]]
"""Takes a prompt, the words that its reply may have, and the number of the turn."""


class Written(NamedTuple):
    """A rubric, and what was left out of it."""

    rubric: Rubric
    left_out: Counter[str]
    """Criteria, by the reason."""


async def write_whole(ask: Ask, prompt: Prompt, words: int) -> Written:
    """Ask for a rubric in one reply. Raises ValueError("kind: what is wrong") where none can be read."""
    wrap = str if prompt.json_schema is None else tagged_rubric
    return Written(read_refinement(await ask(prompt, words, 0), words, wrap), Counter())


async def write_by_item(ask: Ask, prompts: MetaPrompts, prompt: Prompt, words: int, most: int) -> Written:
    """Ask how many criteria there are to be, and then for one after the other, in one conversation.

    words: of a criterion at most. most: criteria at most. One that cannot be read, or that stands there already, is
    left out and counted. Raises ValueError("kind: what is wrong") for a number that cannot be read, and where no
    criterion is left.
    """
    reply = await ask(prompt, most, 0)
    count = read_count(said(reply), most)
    items, left_out, rubric = list[str](), Counter[str](), None
    for number in range(1, count + 1):
        heard = Message(role="assistant", content=said(reply) or "(nothing)")
        messages = (*prompt.messages, heard, *prompts.item(number, count).messages)
        prompt = replace(prompt, messages=messages, hints={**prompt.hints, "criterion": number})
        reply = await ask(prompt, words, number)
        try:
            item = _item(reply, words)
            rubric = read_rubric("\n".join(["<rubric>", *items, item, "</rubric>"]))
            items.append(item)
        except ValueError as error:
            left_out[f"items_refused_{reason(error)}"] += 1
            if reply.error is not None:  # the conversation has outgrown the context
                break
    if rubric is None:
        raise ValueError("empty: no criterion could be read")
    return Written(rubric, left_out)


def read_count(text: str, most: int) -> int:
    """Return the first number in a text, `most` where it is larger. Raises ValueError where there is none above 0."""
    words = (word.strip(".,:;*()<>") for word in text.split())
    number = next((word for word in words if word.isascii() and word.isdecimal()), "")
    if not number.strip("0"):
        raise ValueError("count: expected how many criteria there are, got no number")
    return most if len(number) > 9 else min(int(number), most)


def _item(reply: Reply, words: int) -> str:
    """Return a criterion between its tags."""
    rubric = read_refinement(reply, words, wrap=_between_tags)
    if len(rubric.items) > 1:
        raise ValueError(f"several: expected one criterion, got {len(rubric.items)}")
    return f"<item>\n{rubric.items[0].text}\n</item>"


def _between_tags(text: str) -> str:
    return f"<rubric>\n{text if '<item>' in text else f'<item>{text}</item>'}\n</rubric>"
