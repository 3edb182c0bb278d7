"""Distinguishes texts that correct themselves from undecided ones, and answers from withdrawn ones."""

import re
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

_CORRECTION = re.compile(
    r"\b(?:wait|actually|correct(?:ed|ion|ing)|mistaken?|wrong|sorry|oops|instead|hold on|scratch that"
    r"|on second thoughts?|revised?|let me (?:re|double|check)|disagree)|\bno\s*[,.:]",
    re.IGNORECASE,
)

_NOUN = (
    r"(?:grid|board|solution|answer|route|tour|trip|path|colou?ring|assignment|list|program|code|function|script|reply"
    r"|verdict|judge?ment)"
)
_THAT = rf"(?:that|this|it|the\s+above|(?:the|this|that|my)\s+(?:above\s+|final\s+|last\s+)?{_NOUN}(?:\s+above)?)"
_IS_WRONG = (
    r"(?:(?:\s+(?:is|was)|['\u2019]s)\s+(?:(?:actually|also|still|clearly|completely)\s+)?"
    r"(?:wrong|incorrect|invalid|mistaken|flawed|broken|a\s+mistake|not\s+(?:right|correct|valid))"
    r"|\s+(?:is|was)n['\u2019]t\s+(?:right|correct|valid)"
    r"|\s+(?:does|did)(?:\s+not|n['\u2019]t)\s+(?:work|compile)(?=\s*[.,;:!\n]|\s*\Z)"
    r"|\s+(?:has|contains)\s+(?:an?|some)\s+(?:mistake|error|bug)s?"
    r"|\s+(?:does|did)(?:\s+not|n['\u2019]t)\s+(?:solve|satisfy|complete)\s+(?:it|this|the|all)\b"
    r"|\s+(?:breaks|violates|offends\s+against|(?:seems|appears)\s+to\s+(?:break|violate|offend\s+against))\s+(?:an?|the|one|some)\s+(?:\w+\s+){0,3}(?:rule|constraint)s?)(?!\s+(?:to|of|if|unless|when|only)\b)"
)
_EARLIER = r"(?![^.\n]{0,80}\b(?:earlier|before|first|initial(?:ly)?|previous(?:ly)?)\b)"
_WITHDRAWAL = (
    rf"\b(?:wait|sorry|w?oops|hold\s+on|my\s+mistake|apologies|apologi[sz]e)\b[\s,.:;!\u2013\u2014-]{{1,4}}"
    rf"(?:\w{{1,12}}[\s,]{{1,2}}){{0,4}}{_THAT}{_IS_WRONG}"
    r"|\bwait[\s,.!]{1,3}no\b"
    rf"|\b(?:ignore|disregard|scratch|forget|discard)\s+(?:(?:that|this|it|the\s+above)(?=\s*[.,;:!\n]|\s*\Z|\s+and\b)"
    rf"|(?:the|this|that|my)\s+(?:above\s+|last\s+)?{_NOUN}\b)"
    rf"|\bI\s+(?:take|retract|withdraw)\s+(?:that|it|this|my\s+{_NOUN})\b"
    r"|(?<!earlier )(?<!earlier, )(?<!first )(?<!first, )"
    rf"\bI(?:\s+have|['\u2019]ve)?\s+(?:made|see|found|spotted|notice)\s+(?:an?|my)\s+(?:mistake|error)\b{_EARLIER}"
    r"|\blet\s+me\s+(?:fix|correct|redo|revise|start\s+over|try\s+again)\b"
    r"|\b(?:I|we)(?:['\u2019]ll)?\s+(?:have|need|must|ought)\s+(?:to\s+)?(?:re-?(?:do|count|compute|calculate|start|consider)"
    r"|(?:start|begin|count|try|compute|do\s+(?:it|this|that))\s+(?:over|again)|go\s+back)\b"
    rf"|\bI\s+(?:do\s+not|don['\u2019]t|cannot|can['\u2019]?t)\s+(?:really\s+|quite\s+)?(?:trust|believe(?:\s+in)?|stand\s+by|vouch\s+for)"
    rf"\s+{_THAT}(?!\s+(?:was|would|to))"
    # After such a word, a text without a new answer or a confirmation of the old one is left open
    r"|(?:^|(?<=[.!?\u2026*`}$]\s)|(?<=\bbut\s)|(?<=\boh\s)|(?<=\boh,\s))[\s*_>]{0,5}(?:wait|hmm+|hm|hold\s+on|hang\s+on)\b(?=\s*[,.:!\u2026\u2013\u2014-])"
    rf"|\bhere(?:\s+is|['\u2019]s)\s+(?:the|a|my)\s+(?:fix|correction|(?:corrected|fixed)\s+(?:{_NOUN}|version))\b"
    rf"|\b(?:corrected|fixed|revised)\s+(?:{_NOUN}|version)\b[^\n.:]{{0,40}}:"
)
_CLAUSE_END = r"(?=\s*[.,;:!\n]|\s*\Z)"
_CANNOT = r"(?:(?:could|can)(?:\s+not|not|n['\u2019]t)|(?:was|am|['\u2019]m)\s+(?:unable|not\s+able)\s+to)"
_WHOLE = rf"(?:it|this|(?:the|this)\s+(?:puzzle|problem|graph|instance|{_NOUN}))"
_NONE_FOUND = (
    rf"\bI\s+(?:(?:have|found|find|know)\s+no|(?:do\s+not|don['\u2019]t)\s+have\s+(?:an?|any))\s+(?:valid\s+|proper\s+|correct\s+|full\s+)?{_NOUN}{_CLAUSE_END}"
    rf"|\bI\s+have\s+no\s+(?:(?:other|better)\s+)?{_NOUN}\s+of\s+my\s+own\b"
    rf"|\bI\s+{_CANNOT}\s+(?:solve|complete|colou?r|fill)\s+{_WHOLE}(?:\s+itself)?{_CLAUSE_END}"
    rf"|(?:^|[.!?]\s)[\s*_>]{{0,5}}(?:there\s+is|(?:the|this)\s+(?:puzzle|problem|graph|instance)\s+has)\s+no\s+(?:valid\s+|proper\s+|correct\s+)?"
    rf"(?:completion|{_NOUN}){_CLAUSE_END}"
    rf"|\bI\s+{_CANNOT}\s+find\s+(?:an?|any)\s+(?:valid\s+|proper\s+|correct\s+)?(?:completion|{_NOUN})"
    rf"(?:\s+that\s+does(?:\s+not|n['\u2019]t)?)?{_CLAUSE_END}"
)
# All that a match may begin with (tests/tasks/test_corrections.py); the patterns alone take five times as long
_SURE_BEGINS = r"\b[wsohmaidlfcr]|[\s*_>]{1,5}[wh]"
_ANY_BEGINS = r"\b[wsohmaidlfcrtnub]|[.!?]\s|^[\s*_>]|[\s*_>]{1,5}[wh]"
_SURE = re.compile(rf"(?={_SURE_BEGINS})(?:{_WITHDRAWAL})", re.IGNORECASE | re.MULTILINE)
# The sentence calls the answer wrong or follows it directly; elsewhere it may be about another option or an action
_ANY = re.compile(
    rf"(?={_ANY_BEGINS})(?:{_WITHDRAWAL}|{_NONE_FOUND}|(?:^|[.!?]\s)[\s*_>]{{0,5}}(?:"
    rf"(?:(?:no|hmm|actually|unfortunately|but|however)\b[\s,.:;!\u2026-]{{1,4}})?(?:{_THAT}|which){_IS_WRONG}"
    rf"|{_THAT}\s+(?:is|was)\s[^.!?\n]{{0,80}},\s+(?:but|yet|though|although)\s+{_THAT}{_IS_WRONG}"
    r"|(?:is|was)\s+(?:wrong|incorrect|invalid|not\s+(?:right|correct|valid|(?:the|an?|my)\s+(?:\w+\s+)?"
    rf"{_NOUN})){_CLAUSE_END}))",
    re.IGNORECASE | re.MULTILINE,
)
_AFFIRMATION = re.compile(
    rf"\b(?:{_THAT}|everything|all)(?:\s+(?:is|was|are)|['\u2019]s)\s+(?:(?:actually|indeed|in\s+fact|still|all)\s+){{0,2}}"
    r"(?:right|correct|valid|fine|ok(?:ay)?|consistent)\b|\b(?:stands|(?:still|indeed)\s+holds|(?:checks|works)\s+out|matches|agrees|confirm(?:s|ed)|as\s+before)\b|\bstill\s+[\s$*\\]{0,4}\d"
    r"|\bnothing\s+(?:is|was)\s+(?:wrong|missing)\b|(?:^|[.!?:\u2026\u2013\u2014]\s)[\s*_]{0,3}(?:yes|okay|ok|good|fine)\b"
    r"|\bis\s+(?:indeed\s+)?(?:right|correct|fine|consistent|the\s+same)\b",
    re.IGNORECASE,
)
# Fenced blocks and comments are about a program's own values
_CODE = re.compile(r"^[ \t>]*+(```|~~~).*?(?:\1|\Z)|(?:(?<!#)#(?= )|//)[^\n]*", re.MULTILINE | re.DOTALL)
_CODE_MARKS = ("```", "~~~", "# ", "//")
"""Whatever `_CODE` finds contains one of these, which are faster to search for."""

_NEXT_QUESTION = re.compile(r"\n[ \t]*\n[ \t#*]{0,8}(?:question|problem|q)[ \t*]{0,4}:", re.IGNORECASE)
# Maximum headings at which to try reading the text before (ours)
_MAX_HEADINGS = 5


def settled(text: str, stated: Sequence[tuple[int, T]]) -> T | None:
    """Return the final answer of a text; None where it states different answers and takes none back.

    stated: the start and the answer of each statement, in order; at least one. The last answer counts if a word of
    correction separates it from the last different one.
    """
    at, last = stated[-1]
    different = [begin for begin, answer in stated if answer != last]
    return last if not different or _CORRECTION.search(text, different[-1], at) else None


def read_unless_withdrawn(read: Callable[[str], T], text: str, begin: int = 0, *, only_sure: bool = False) -> T:
    """Read the final answer of a text; after a withdrawal, read only the text that follows.

    read: raises ValueError where it finds no answer. begin: text before it withdraws nothing (a JSON object's
    reasoning). only_sure: "That is wrong" alone is no withdrawal. A withdrawal without an answer before it is about
    something else. Raises ValueError as `read` does, or "withdrawn: ...".
    """
    withdrawal = _find_last_withdrawal(text, begin, _SURE if only_sure else _ANY)
    if withdrawal is None or not _can_read(read, text[: withdrawal.start()]):
        return read(text)
    try:
        return read(text[withdrawal.end() :])
    except ValueError as error:
        raise ValueError(f"withdrawn: the answer is taken back, and none can be read after that ({error})") from error


def cut_at_next_question(read: Callable[[str], T], text: str) -> str:
    """Cut a reply before a further question, which models add when they imitate a series of examples.

    Only an unnumbered heading after a readable answer counts; an earlier heading repeats the reply's own question.
    """
    for heading in islice(_NEXT_QUESTION.finditer(text), _MAX_HEADINGS):
        if _can_read(read, text[: heading.start()]):
            return text[: heading.start()]
    return text


def _can_read(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except ValueError:
        return False
    return True


def _find_last_withdrawal(text: str, begin: int, pattern: re.Pattern[str]) -> re.Match[str] | None:
    """Return the last withdrawal outside of fences and comments, unless the text then confirms the answer."""
    if not text[begin:].strip():
        return None
    prose = _CODE.sub(lambda code: " " * len(code[0]), text) if any(mark in text for mark in _CODE_MARKS) else text
    last = None
    for match in pattern.finditer(prose, begin):
        last = match
    return None if last is None or _AFFIRMATION.search(prose, last.end()) else last
