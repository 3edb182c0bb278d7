"""Distinguishes what a text asserts from what it denies, supposes, reports or takes back."""

import re

_TAKEN_BACK = re.compile(
    r"\bsorry\b|\boops\b|\bscratch that\b|\bmy mistake\b|\bdisagree\b|\bI (?:was|am) (?:wrong|mistaken)\b"
    r"|\bI(?:'ve| have)? (?:made|had) an? (?:mistake|error)\b",
    re.IGNORECASE,
)
# Words that may be about something else, unless they follow immediately
_DISOWNED = re.compile(
    r"\b(?:that|this|it|which)(?:'s|\s+is|\s+was) (?:actually |clearly |in fact )?(?:wrong|incorrect|false|mistaken"
    r"|not (?:right|correct|true)|an? (?:mistake|error))\b"
    r"|\b(?:that|this|it|which) (?:isn't|wasn't|can't be|cannot be) (?:right|correct|true)\b"
    r"|[.!?:]\s+(?:wait,?\s+)?no\s*[,.:!]",
    re.IGNORECASE,
)
_AT_ONCE = 120
# A doubt at the very end
_LEFT_OPEN = re.compile(
    r"\b(?:wait|hmm+|hold on|actually)\b[\s,.!\u2026-]{1,4}(?:[\w']{1,12}[\s,]{1,2}){0,6}?"
    r"(?:re-?)?(?:check|verify|think|consider|compute|calculate|examine|read)\b[^.!?\n]{0,60}[.!?\u2026\s]*\Z",
    re.IGNORECASE,
)
_OPTION = re.compile(r"\b(?:option|choice)\b", re.IGNORECASE)

_REACH = 300
"""Maximum characters to look back for the start of a sentence."""
_SENTENCE_END = re.compile(r"[.!?][)\"'*]*\s|\n")
# What follows such a word no longer depends on the condition or the speaker before it
_TURN = re.compile(r"\b(?:but|however|yet|so|thus|hence|therefore|then in fact|nevertheless|still)\b|;", re.IGNORECASE)
_SUPPOSED = re.compile(
    r"\b(?:if|unless|suppos(?:e|ed|ing)|assum(?:e|ed|ing)|imagine|pretend|whether|as though|(?:^|,)\s*(?:had|were))\b",
    re.IGNORECASE,
)
_INVERTED = re.compile(r"(?:^|,)[\s*_]*(?:had|were|should)\b", re.IGNORECASE)
_THINK = r"(?:think|say|believe|claim|argue|guess|conclude|answer|assume|reckon|suggest|choose|pick|expect|object)"
_REPORTED = re.compile(
    rf"\b(?:(?:claim|argue|believe|think|guesse?|assert|insist|reckon|suppose|maintain|object)s|say?s"
    rf"|(?:claim|argu|believ|guess|assert|insist|assum|expect|suspect|maintain)ed|said|thought|wrote|stated)\b[^,.]{{0,60}}$"
    r"|\b(?:people|students?|others|they|many|some(?:one|body)?|you|one|who|friend)\s+"
    rf"(?:\w+\s+){{0,2}}{_THINK}\b[^.]{{0,60}}$"
    r"|\baccording to (?!the (?:options|choices|above|given|calculation))|\bat first\b"
    r"|\bfirst glance\b|\b(?:initially|originally|naively)\b|\bit (?:may |might |could )?(?:seems?|appears?|looks)\b"
    r"|\btempt(?:ed|ing)\b",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"(?:\bnot|n't|\bnever|\bcannot)\s+(?:\w+\s+){0,2}?(?:think|believe|mean|imply|true|correct|right|say|show|follow"
    r"|conclude|case|agree|certain|sure)\w*\b[^,.]{0,30}$"
    r"|\b(?:false|untrue|wrong|incorrect|mistake|mistaken|doubt|doubtful|deny|denies|impossible)\b[^,.]{0,40}$"
    r"|\b(?:neither|nor)\b[^.]{0,40}$|(?:\bnot|n't|\bnever|\bcannot)\s+(?:the\s+)?$",
    re.IGNORECASE,
)
_ANOTHERS = re.compile(
    r"\b(?:wrong|incorrect|false|mistaken|tempting|bad|worst|naive|na\u00efve|obvious|common|popular|typical|intuitive"
    r"|previous|earlier|old|original|initial|his|her|their|your|\w+['\u2019]s)[\s*_]+(?:\w+\s+)?$",
    re.IGNORECASE,
)
_HYPOTHETICAL = re.compile(r"\b(?:would|could|might|may)\b", re.IGNORECASE)
_DISMISSED = re.compile(
    r"[)\]*_$\"']*(?:,?\s+(?:(?:which|that)\s+)?(?:is|was|would be|seems)\s+(?:clearly\s+|obviously\s+)?"
    r"(?:wrong|incorrect|false|not\b|a mistake|impossible)|,?\s+(?:only\s+)?(?:if|unless|assuming|provided)\b|\s*\?)",
    re.IGNORECASE,
)

# Denials of a value that is set apart, as in a box. They must be nearer than in `is_asserted`, since a solution may
# mention suppositions, falsehoods and other people before it comes to its answer
_MARKS = r"[\s$\\(\[{*:]*"
_NOT_BEFORE = re.compile(
    rf"(?:\b(?:not|never|cannot|naive|wrong|incorrect)|n['\u2019]t|\\neq?|\u2260)"
    rf"(?:\s+(?:be|equal|to|the|an?|answer|result|value|is|of|was|would)){{0,4}}{_MARKS}\Z",
    re.IGNORECASE,
)
_NOT_AFTER = re.compile(
    r"[\s$)\]*\\]*(?:\?|,?\s*(?:which\s+|that\s+)?(?:is|was|would\s+be)\s+(?:clearly\s+|obviously\s+|actually\s+)?"
    r"(?:wrong\b|incorrect\b|false\b|a\s+mistake\b|impossible\b|not\s+(?:right|correct|it\b|the\b|my\b)"
    r"|(?:only\s+)?what\s+(?:an?|the|one)\b|(?:an?|the)\s+(?:naive|wrong|common|tempting)\b))",
    re.IGNORECASE,
)


def is_denied(text: str, begin: int, end: int) -> bool:
    """Return whether a text denies or questions its part from `begin` to `end`: "not 5", "5 is wrong", "5?"."""
    return bool(_NOT_BEFORE.search(text, max(0, begin - 60), begin) or _NOT_AFTER.match(text, end))


def is_taken_back(text: str, at: int) -> bool:
    """Return whether a text later takes back its statement at `at`."""
    if _TAKEN_BACK.search(text, at) or _LEFT_OPEN.search(text, at):
        return True
    disowned = _DISOWNED.search(text, at, at + _AT_ONCE)
    if disowned is None:
        return False
    _, *sentences = _SENTENCE_END.split(text[at : disowned.start()])
    # "Option A has 12; that is wrong" is only about option A
    return not (sentences and _OPTION.search(sentences[-1]))


def is_asserted(text: str, begin: int, end: int) -> bool:
    """Return whether a text itself asserts its part from `begin` to `end`.

    It does not where the sentence denies it ("the wrong answer is A", "I doubt that"), makes it depend on a condition
    ("if ..., the answer is A"), or attributes it to somebody else ("a student claims that").
    """
    before = text[max(0, begin - _REACH) : begin]
    sentence = before[max([match.end() for match in _SENTENCE_END.finditer(before)], default=0) :]
    clause = sentence[max([match.end() for match in _TURN.finditer(sentence)], default=0) :]
    if _TURN.match(text, begin):
        clause = ""
    # "so the answer would be" depends on the condition; "so the answer is" is an independent conclusion.
    scope = sentence if _HYPOTHETICAL.search(text, begin, end) else clause
    return not (
        _SUPPOSED.search(scope)
        or _INVERTED.search(scope)
        or _REPORTED.search(clause)
        or _DENIED.search(clause)
        or _ANOTHERS.search(clause)
        or _DISMISSED.match(text, end)
    )
