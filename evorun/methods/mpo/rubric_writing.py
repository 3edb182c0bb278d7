"""Rubrics as meta reward models write them: whole, or criterion by criterion as MPO's released code has it.

A reply that cannot be read is asked for again, and the model is told what was wrong with it.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

from msgspec.structs import replace

from evorun.methods.mpo.meta_prompts import MetaPrompts, read_refinement, reason, said
from evorun.models.base import Message, Reply
from evorun.tasks.base import Prompt
from evorun.tasks.rubric_json import tagged_rubric
from evorun.tasks.rubrics import Rubric, read_rubric

T = TypeVar("T")

Ask: TypeAlias = Callable[[Prompt, int, int], Awaitable[Reply]]
"""Takes a prompt, the words that its reply may have, and a number that no other call for this rubric has."""


class Written(NamedTuple):
    """The outcome of asking for a rubric."""

    rubric: Rubric | None
    """None: none could be read."""
    refused: str = ""
    """The kind of the last fault, where none could be read."""
    retried: Mapping[str, int] = {}
    """Replies that were asked for again, by the kind of their fault."""
    items_refused: Mapping[str, int] = {}
    """Criteria that were left out, by the kind of their fault."""
    call: int = 0
    """Number of the call that brought the rubric; of one written by items, the call that brought their count."""


class RubricWriter:
    """Asks for rubrics, up to `attempts` times for each reply."""

    def __init__(self, prompts: MetaPrompts, attempts: int) -> None:
        self._prompts = prompts
        self._attempts = attempts

    async def write_whole(self, ask: Ask, prompt: Prompt, words: int) -> Written:
        """Ask for a rubric in one reply. words: of the rubric at most."""
        wrap, retried = str if prompt.json_schema is None else tagged_rubric, Counter[str]()
        try:
            call, _, rubric = await self._ask(
                ask, prompt, words, 0, lambda reply: read_refinement(reply, words, wrap), retried
            )
        except ValueError as error:
            return Written(None, reason(error), retried)
        return Written(rubric, retried=retried, call=call)

    async def write_by_item(self, ask: Ask, prompt: Prompt, words: int, max_items: int) -> Written:
        """Ask how many criteria there are to be, and then for one after the other, in one conversation.

        words: of a criterion at most. A criterion that cannot be read, or that stands there already, is left out.
        """
        items, retried, left_out, rubric = list[str](), Counter[str](), Counter[str](), None

        def read_item(reply: Reply) -> str:
            item = _item(reply, words)
            read_rubric("\n".join(["<rubric>", *items, item, "</rubric>"]))
            return item

        try:
            call, reply, count = await self._ask(
                ask, prompt, max_items, 0, lambda reply: read_count(said(reply), max_items), retried
            )
        except ValueError as error:
            return Written(None, reason(error), retried)
        for number in range(1, count + 1):
            heard = Message(role="assistant", content=said(reply) or "(nothing)")
            messages = (*prompt.messages, heard, *self._prompts.item(number, count).messages)
            prompt = replace(prompt, messages=messages, hints={**prompt.hints, "criterion": number})
            try:
                _, reply, item = await self._ask(ask, prompt, words, number, read_item, retried)
                items.append(item)
            except _Unread as unread:
                left_out[reason(unread)] += 1
                reply = unread.reply
                if reply.error is not None:  # the conversation has outgrown the context
                    break
        if items:
            rubric = read_rubric("\n".join(["<rubric>", *items, "</rubric>"]))
        return Written(rubric, "" if items else "empty", retried, left_out, call)

    async def _ask(
        self, ask: Ask, prompt: Prompt, words: int, turn: int, read: Callable[[Reply], T], retried: Counter[str]
    ) -> tuple[int, Reply, T]:
        """Ask until a reply can be read; return the call's number, the reply and what was read.

        retried: counts the replies that were asked for again. Raises _Unread with the last fault.
        """
        asked = prompt
        for attempt in range(self._attempts):
            number = turn * self._attempts + attempt
            reply = await ask(asked, words, number)
            try:
                return number, reply, read(reply)
            except ValueError as error:
                # What the engine refuses, it refuses again, and all the more with a fault added to it.
                if reply.error is not None or attempt == self._attempts - 1:
                    raise _Unread(str(error), reply) from None
                retried[reason(error)] += 1
                # The reason alone: with the reply that it speaks of, a full context would overflow.
                asked = self._prompts.with_fault(prompt, str(error).partition(": ")[2])
        raise AssertionError("method.refine_attempts is at least 1")


class _Unread(ValueError):
    """The last of the replies cannot be read."""

    def __init__(self, fault: str, reply: Reply) -> None:
        super().__init__(fault)
        self.reply = reply


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
