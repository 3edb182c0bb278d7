"""Telling what a text itself says from what it denies, supposes, reports or takes back."""

import re

_TAKEN_BACK = re.compile(
    r"\bsorry\b|\boops\b|\bscratch that\b|\bmy mistake\b|\bdisagree\b|\bI (?:was|am) (?:wrong|mistaken)\b"
    r"|\bI(?:'ve| have)? (?:made|had) an? (?:mistake|error)\b",
    re.IGNORECASE,
)
# Words that may be about something else, unless they come at once
_DISOWNED = re.compile(
    r"\b(?:that|this|it|which)(?:'s|\s+is|\s+was) (?:actually |clearly |in fact )?(?:wrong|incorrect|false|mistaken"
    r"|not (?:right|correct|true)|an? (?:mistake|error))\b"
    r"|\b(?:that|this|it|which) (?:isn't|wasn't|can't be|cannot be) (?:right|correct|true)\b"
    r"|[.!?:]\s+(?:wait,?\s+)?no\s*[,.:!]",
    re.IGNORECASE,
)
_AT_ONCE = 120
# A doubt that nothing follows
_LEFT_OPEN = re.compile(
    r"\b(?:wait|hmm+|hold on|actually)\b[\s,.!\u2026-]{1,4}(?:[\w']{1,12}[\s,]{1,2}){0,6}?"
    r"(?:re-?)?(?:check|verify|think|consider|compute|calculate|examine|read)\b[^.!?\n]{0,60}[.!?\u2026\s]*\Z",
    re.IGNORECASE,
)
_OPTION = re.compile(r"\b(?:option|choice)\b", re.IGNORECASE)

_REACH = 300
"""How far back a sentence is followed, in characters."""
_SENTENCE_END = re.compile(r"[.!?][)\"'*]*\s|\n")
# What follows such a word no longer hangs on the condition or the speaker before it
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

# What denies a value that is set apart from the sentence, as boxes are: nearer than in `is_asserted`, for a solution
# may speak of suppositions, of what is false, and of other people before it comes to its answer
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
    """Say whether a text denies, or asks, what stands from `begin` to `end`: "not 5", "5 is wrong", "5?"."""
    return bool(_NOT_BEFORE.search(text, max(0, begin - 60), begin) or _NOT_AFTER.match(text, end))


def is_taken_back(text: str, at: int) -> bool:
    """Say whether a text takes back what it says at `at`."""
    if _TAKEN_BACK.search(text, at) or _LEFT_OPEN.search(text, at):
        return True
    disowned = _DISOWNED.search(text, at, at + _AT_ONCE)
    if disowned is None:
        return False
    _, *sentences = _SENTENCE_END.split(text[at : disowned.start()])
    # "Option A has 12; that is wrong" speaks of option A alone
    return not (sentences and _OPTION.search(sentences[-1]))


def is_asserted(text: str, begin: int, end: int) -> bool:
    """Say whether a text itself says what stands from `begin` to `end`.

    It does not where the sentence denies it ("the wrong answer is A", "I doubt that"), makes it depend on a condition
    ("if ..., the answer is A"), or has it from somebody else ("a student claims that").
    """
    before = text[max(0, begin - _REACH) : begin]
    sentence = before[max([found.end() for found in _SENTENCE_END.finditer(before)], default=0) :]
    clause = sentence[max([found.end() for found in _TURN.finditer(sentence)], default=0) :]
    if _TURN.match(text, begin):
        clause = ""
    # "so the answer would be" goes back to the condition, "so the answer is" is a conclusion of its own.
    hanging = sentence if _HYPOTHETICAL.search(text, begin, end) else clause
    return not (
        _SUPPOSED.search(hanging)
        or _INVERTED.search(hanging)
        or _REPORTED.search(clause)
        or _DENIED.search(clause)
        or _ANOTHERS.search(clause)
        or _DISMISSED.match(text, end)
    )
