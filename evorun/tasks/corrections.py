"""Telling a text that corrects itself from one that cannot decide."""

import re
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_CORRECTION = re.compile(
    r"\b(?:wait|actually|correct(?:ed|ion|ing)|mistaken?|wrong|sorry|oops|instead|hold on|scratch that"
    r"|on second thoughts?|revised?|let me (?:re|double|check))|\bno\s*[,.:]",
    re.IGNORECASE,
)


def settled(text: str, stated: Sequence[tuple[int, T]]) -> T | None:
    """Return the answer that a text comes to; None where it states different ones and takes none of them back.

    stated: where each statement begins, and the answer that it gives, in order; at least one. The last one counts when
    a word of correction stands between it and the last different one.
    """
    at, last = stated[-1]
    others = [begin for begin, answer in stated if answer != last]
    return last if not others or _CORRECTION.search(text, others[-1], at) else None
