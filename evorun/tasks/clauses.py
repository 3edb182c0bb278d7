"""Finds the clause before a position in a text, and whether it supposes or denies what follows."""

import re

_REACH = 300
"""Maximum characters to look back for the start of a sentence."""
_SENTENCE_END = re.compile(r"[.!?][)\"'*_]*\s|\n")
# What follows such a word no longer depends on the condition before it
_TURN = re.compile(r"\b(?:but|however|so|thus|hence|therefore)\b|;", re.IGNORECASE)

_NOUN = (
    r"(?:solution|answer|completion|grid|colou?ring|assignment|list|tour|trip|route|path|attempt|guess|suggestion"
    r"|program|code|function|script)"
)
PAST = (
    r"(?:had|were|was|did|could|(?:had|were|was|did|could)n['\u2019]t|allowed|ignored|forgot|dropped|started|changed|swapped"
    r"|removed|required|needed|used|held|gave)"
)
_SUPPOSED = re.compile(
    rf"\b(?:if|unless|suppos(?:e|ing)|imagine|assuming)\b[^.]{{0,120}}\b{PAST}\b[^.]*\b(?:would|might|could)\b"
    r"|(?:^|,\s)\W{0,3}(?:had|were)\b[^.]*\b(?:would|might|could)\b"
    r"|\bwould have (?:been|looked|read|answered|said|chosen|given)\b"
    r"|\b(?:suppose|imagine|assume)\b[^.]{0,60}\b(?:was|were|is)\W*$"
    r"|\bas (?:if|though)\b[^.]{0,60}\b(?:were|was|is)\b"
    rf"|\b(?:would|might)\b[^.]{{0,80}}\b(?:if|were)\b[^.]{{0,80}}\b{PAST}\b",
    re.IGNORECASE,
)
_DENIED = re.compile(
    rf"\b(?:is|are|was|were)(?:\W{{1,4}}not|n['\u2019]t)\W{{1,4}}(?:the|an?|my)\s(?!only|sole|single|unique)(?:\w+\s){{0,2}}{_NOUN}\b"
    r"(?:,?\s(?:because|since|as|for)\b[^:]*|[^,:;0-9]*)\W*$"
    rf"|\b(?:an?|another)\s(?:\w+\s){{0,2}}(?:wrong|incorrect|invalid|bad|false)\s(?:\w+\s)?{_NOUN}\b[^.,]{{0,40}}$"
    r"|\bexample\b[^.;\n]{0,60}\bform(?:at)?\b[^.;\n]{0,20}$",
    re.IGNORECASE,
)


def clause_before(text: str, at: int, *, across_lines: bool = False) -> str:
    """Return the part of the sentence before `at`, starting after its last contrasting word.

    across_lines: the sentence may span lines.
    """
    before = text[max(0, at - _REACH) : at]
    before = before.rstrip() if across_lines else before
    sentence = before[max([end.end() for end in _SENTENCE_END.finditer(before)], default=0) :]
    return sentence[max([turn.end() for turn in _TURN.finditer(sentence)], default=0) :]


def is_supposed(text: str, at: int) -> bool:
    """Return whether the sentence before `at` is counterfactual, or denies what follows."""
    clause = clause_before(text, at, across_lines=True)
    return bool(_SUPPOSED.search(clause) or _DENIED.search(clause))
