"""Distinguishes the grids and lists that a text gives as its answer from those that it supposes or rejects."""

import re

from evorun.tasks.clauses import PAST, is_supposed
from evorun.tasks.puzzles.reading import Block

_LIST = re.compile(r"[\[(]?(?<![\w.])[0-9]+(?:[ \t]*,[ \t]*[0-9]+){2,}(?![\w]|\.[0-9])[\])]?")
_WORSE_BEFORE = re.compile(
    r"\b(?:than|beats|instead of|unlike|avoid(?:s|ing)?|not|compared (?:to|with)|improves on|versus|vs\.?|rejected"
    r"|discarded|ruled out|first,? I (?:had|tried|got|took)"
    r"|(?:some(?:one|body)|friend|student|they|he|she|people) (?:\w+ ){0,2}"
    r"(?:answer|believe|claim|propose|said|say|suggest|think)(?:s|d|ed)?(?: that)?)"
    r"\s(?:(?:the|an?)\s)?(?:(?:\w+\s){0,2}(?:list|trip|tour|route|colou?ring)\s)?$",
    re.IGNORECASE,
)
_WORSE_BEHIND = re.compile(
    r"[\"'`*]{0,3}[ \t]{0,3}(?:\([^()\n]{0,30}\)\s)?,?\s?(?:(?:but|yet)\s)?(?:(?:which|that|it|this)\s)?(?:"
    r"(?:is|was|are|would be)\s(?:(?:also|clearly|only|much|slightly|therefore)\s)?"
    r"(?:(?:wrong|incorrect|invalid|improper|impossible|longer|worse)\b"
    r"|not\s(?:(?:an?|the)\s)?(?:valid|proper|right|correct|allowed|possible|shortest|best|optimal|answer|solution|legal"
    r"|short(?:er)?|better)\b)"
    r"|(?:fails|breaks|clashes|violates|conflicts)\b|(?:does|did|would|will)\snot\swork\b|doesn['\u2019]t\swork\b"
    r"|would\s(?:fail|not|clash)\b|(?:has|gives)\s(?:an?\s)?(?:conflict|clash|longer)|(?:costs|takes)\s(?:more|longer)"
    rf"|cannot\sbe\b|\?|I\s(?:reject|discard|doubt)|visits\s[^.\n]{{0,30}}\b(?:twice|again)\b|if\b[^.\n]{{0,60}}\b{PAST}\b)",
    re.IGNORECASE,
)
_LINE_OF_NUMBERS = re.compile(
    r"[ \t>|*_\[({+-]*(?:(?:city|node|vertex)[ \t]*)?[0-9](?:[^A-Za-z\n]|\b(?:city|node|vertex)\b)*$", re.IGNORECASE
)
_OR = re.compile(r"\s*[*_]{0,2}(?:or|alternatively|(?:possibly|perhaps|maybe)\s+also)\b[^\n]{0,80}\s*", re.IGNORECASE)
_OFFERED = re.compile(
    r"\b(?:one of (?:these|those|them|the (?:two|following))|either (?:one|of|this|the|may|might|could|can)\b"
    r"|(?:decide|choose|tell|say|check) (?:between|which)"
    r"|(?:not|un)\s?sure which|which (?:one |of (?:them|these|the two) )?is\b)|\beither\b[^.\n]{0,20}$",
    re.IGNORECASE | re.MULTILINE,
)
_DECIDED = re.compile(
    r"\b(?:I|we|my)\b[^.\n]{0,60}\b(?:(?P<first>first|former)|second|latter|last)\b"
    r"|\bthe (?:(?P<former>first|former)|second|latter|last)(?: (?:one|\w+))? is (?:the\b|right|correct|better"
    r"|shorter|my|it)",
    re.IGNORECASE,
)

# Characters to search for such words, and maximum length of the second block's label, as in "Another trip:" (ours)
_NEAR = 200
_LABEL_CHARS = 20


def choose_block(text: str, first: Block, second: Block) -> Block | None:
    """Return the block that is the answer, of two neighbouring fenced blocks with different answers.

    It is the second one. If the text offers both as alternatives, it is the one for which the text decides, or None.
    """
    between, behind = text[first.end : second.start].strip(), text[second.end :]
    decided = _DECIDED.search(behind)
    around = behind[:_NEAR] if between else f"{text[: first.start][-_NEAR:]}\n{behind[:_NEAR]}"
    if _OR.fullmatch(between) or (len(between) <= _LABEL_CHARS and _OFFERED.search(around)):
        return None if decided is None else first if decided["first"] or decided["former"] else second
    return second


def drop_supposed(text: str) -> str:
    """Remove lines of numbers that a supposing or denying sentence introduces."""
    kept: list[str] = []
    is_dropped = goes_on = False
    at = 0
    for line in text.splitlines(keepends=True):
        if _LINE_OF_NUMBERS.match(line):
            is_dropped = is_dropped if goes_on else is_supposed(text, at)
            goes_on = True
        elif line.strip():
            goes_on = is_dropped = False
        if not is_dropped:
            kept.append(line)
        at += len(line)
    return "".join(kept)


def drop_dismissed(text: str) -> str:
    """Remove lists of numbers that a text supposes, or calls wrong or worse right next to them.

    text: with commas between the numbers of a list.
    """

    def replace(match: re.Match[str]) -> str:
        dismissed = (
            _WORSE_BEFORE.search(text, max(0, match.start() - 80), match.start())
            or _WORSE_BEHIND.match(text, match.end())
            or is_supposed(text, match.start())
        )
        return "#" if dismissed else match[0]

    return _LIST.sub(replace, text)
