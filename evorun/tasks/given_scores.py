"""Distinguishes the scores that an evaluator gives from those that it only mentions."""

import re
from collections import deque

from evorun.tasks.clauses import clause_before

_REACH = 300
"""Maximum characters to search before and after a number."""
# A line that continues with the number below it
_GOES_ON = re.compile(r"(?:[:,]|\b(?:is|be|been|was|were|of|as|to|give|say|said))[\s*_`$]*$", re.IGNORECASE)
_SCORE = r"(?:scores?|number|rating|grade|mark|figure)"
_RESPONSE = (
    r"(?:this|it|that|(?:the|this|that|your)\s(?:response|solution|answer|reply|program|code|trip|route|grid|essay))"
)
_NUMBER = r"-?\d{1,9}(?:[.,]\d{1,9})?[*_%]{0,2}"
# "raised from 40 to 65" gives 65
_RANGE = re.compile(
    rf"{_NUMBER},?\s?(?:-|\u2013|\u2014|\bto\b|\b(?:or|maybe|perhaps|possibly)\b|\.\.\.?)\s?[*_$]{{0,2}}$"
    r"|\b(?:else|otherwise)\b\W{1,3}$",
    re.IGNORECASE,
)
_BETWEEN = re.compile(rf"\bbetween\s[^.\n]{{0,10}}{_NUMBER}\s(?:points\s)?and\b\s?[*_$]{{0,2}}$", re.IGNORECASE)
_CHANGE = re.compile(
    r"\b(?:rais|lower|chang|correct|reduc|increas|revis|improv|adjust|mov|go|went|drop|fall|fell|cut|r[io]s|updat|bring|brought)"
    r"\w*\b[^\n]{0,40}$",
    re.IGNORECASE,
)
_BOUND = re.compile(
    r"(?:\b(?:at\s(?:least|most|best|worst)|(?:more|less|higher|lower|greater|fewer|better|worse|no\smore)\sthan|above|below|under"
    r"|over|beyond|up\sto|exceeds?|a\s(?:minimum|maximum)\sof"
    r"|(?:(?:can)?not|n['\u2019]t)(?:\s(?:give|assign|award|say)(?:\s(?:it|this))?)?|neither|nor"
    rf"|(?:not|n['\u2019]t)\s(?:think|believe)\s(?:that\s)?{_RESPONSE}\s(?:deserves|merits|earns|is\sworth))\b[\s*_$]{{0,4}}"
    r"|(?<![-=\w\"\'/])[<>\u2264\u2265]=?[\s*_$]{0,4})$",
    re.IGNORECASE,
)
_OPEN_END = re.compile(
    r"[*_%]{0,2}(?:\+|\s(?:points\s)?or\s(?:more|less|higher|lower|above|below|better|worse|so\sbut)|\s?\?"
    rf"|\sn?or\s(?:another|any\sother)\s{_SCORE}\b|\sis\snot\s(?:my|an?|the)\s{_SCORE}\b"
    rf"|\sis\s(?:my|an?|the)\s(?:(?:upper|lower)\sbound|maximum|minimum)|\s?(?:-|\u2013|\u2014|\bto\b|\bor\b)\s?{_NUMBER})",
    re.IGNORECASE,
)
_IF = re.compile(
    r"\b(?:if|unless)\s(?!I\s(?:had|have|must|may|were)\b|pressed|asked|forced)|(?:^|,\s)(?:had|were|should)\b",
    re.IGNORECASE,
)
_WOULD = re.compile(r"\b(?:would|could|might)\b|\w['\u2019]d\b", re.IGNORECASE)
_WOULD_HAVE = re.compile(r"\b(?:would|could|might)\s(?:\w+\s)?have\b|\w['\u2019]d\shave\b", re.IGNORECASE)
_WOULD_BEHIND = re.compile(
    r"[ \t*_%,]{0,4}(?:(?:is|was)\swhat\s[^.\n]{0,30})?\b(?:would|could|might)(?:\shave|\sbe\b|\snot)"
    r"|[ \t*_%,]{0,4}(?:if|had|were|provided|unless)\b",
    re.IGNORECASE,
)
_OF_OTHERS = re.compile(
    r"\b(?:student|author|solution|response|reply|writer|essay|text|candidate|user|he|she|they|it|you)\s(?:\w+\s){0,2}"
    r"(?:claim|say|ask|demand|want|request|tell|insist|believe|think|suggest|wr[io]te)(?:s|ed)?\b[^.,:\d\n]{0,40}$"
    r"|\b(?:previous|others?|another|earlier)\s(?:\w+\s){1,3}(?:scored|got|earned|received|had)\b[^.,:\d\n]{0,20}$"
    r"|\b(?:(?:your|in\sthe|prompt['\u2019]s)\sexample|template|placeholder)\b[^.,;:\n]{0,20}$|\b(?:e\.g\.|such\sas|for\sinstance)[^.\n]{0,20}$",
    re.IGNORECASE,
)
_FORM = re.compile(
    r"\b(?:forma?t?|template|example|schema)\s[^.!?\n]{0,40}\b(?:is|be|asks|looks?)\b[^.!?\n]{0,20}\s*$", re.IGNORECASE
)
_TAKEN_BACK = re.compile(
    r"\b(?:that|this|it|which)(?:\s(?:score|number|figure))?(?:['\u2019]s|\s(?:is|was|seems|looks))\s(?:\w+\s)?(?:too|overly)\s"
    r"(?:high|low|generous|lenient)\b"
    r"|^[^.!?\n]{0,60}\b(?:is|was|seems)\stoo\s(?:high|low|much|generous|harsh|lenient)\b"
    r"|\b(?:that|this|my)\s(?:score|number|figure|rating)\s(?:is|was)\s(?:wrong|incorrect|not\s(?:right|correct))\b"
    r"|\bI\s(?:take|retract|withdraw)\s(?:that|it|this|my|the)\b|\bscratch\sthat\b|\bI\s(?:do\snot|don['\u2019]t)\sknow\s?[.!;]"
    r"|^,?\swhich\sI\s(?:refuse|reject|ignore|decline)"
    r"|\b(?:ignore|disregard)\s(?:that|this|the|my)\s(?:score|number|figure|rating)\b",
    re.IGNORECASE,
)
_DECLINED = re.compile(
    rf"\b(?:cannot|can['\u2019]t|can\snot|could\snot|couldn['\u2019]t|won['\u2019]t|will\snot|(?:am|['\u2019]m)\s(?:un|not\s)able\sto|refuse\sto"
    rf"|decline\sto|do\snot|don['\u2019]t|must\snot)\s(?:\w+ly\s)?"
    rf"(?:(?:give|assign|provide|state|name|compute|calculate|determine|offer|produce)\s(?:it\s|this\s|you\s)?(?:an?\s|any\s|the\s)?(?!perfect|full|high|top|max|better)(?:\w+\s)?{_SCORE}\b"
    r"(?!\s(?:exact|precise|above|over|of|higher|greater|more|below|under|beyond|better|than|lower))"
    rf"|(?:score|grade|rate|judge|assess|evaluate)\s{_RESPONSE}\b(?!\s(?:above|over|higher|more|as|any|below|better|lower|at)))"
    rf"|\bI\s(?:give|have|assign)\s(?:none|no\s{_SCORE})\b|\bno\s{_SCORE}\s(?:can|could|is|will)\b|\bleave\s[^.\n]{{0,40}}\sto\syou\b"
    rf"|\bcan(?:not|['\u2019]t)\sbe\s(?:scored|graded|rated)\b|\bwithout\sgiving\sa\s{_SCORE}\b"
    rf"|(?:\bnot|n['\u2019]t)\s(?:think|believe|see)\s(?:that\s|how\s)?any\s{_SCORE}\s(?:can|could)\sbe\s(?:given|assigned)",
    re.IGNORECASE,
)
_NEVERTHELESS = re.compile(r"\b(?:but|still|nevertheless|nonetheless|however|anyway|yet|so)\b", re.IGNORECASE)


_SHARE_BEHIND = re.compile(r"[*_]{0,2}\s(?:points\s)?for\s(?:the|its)\b", re.IGNORECASE)
_SHARE_BEFORE = re.compile(rf"{_NUMBER}\s(?:points\s)?for\s(?:the|its)\b", re.IGNORECASE)


def is_given(text: str, begin: int, end: int) -> bool:
    """Return whether a text gives the number from `begin` to `end` as its score, judging by the words around it.

    It does not where the number bounds a range ("between 60 and 65", "at least 60"), is for a part ("40 for the
    style"), is counterfactual ("would have been 85"), is somebody else's ("the student asks for 85"), is taken back,
    or where the text declines to score.
    """
    behind = text[end : end + _REACH]
    before = text[max(0, begin - _REACH) : begin]
    clause = clause_before(text, begin, across_lines=bool(_GOES_ON.search(before)))
    if _BETWEEN.search(clause) or _BOUND.search(clause) or _OPEN_END.match(behind):
        return False
    if _SHARE_BEHIND.match(behind) and _SHARE_BEFORE.search(clause):
        return False
    if _RANGE.search(clause) and not _CHANGE.search(clause):
        return False
    counterfactual = (
        _WOULD_HAVE.search(clause) or (_IF.search(clause) and _WOULD.search(clause)) or _WOULD_BEHIND.match(behind)
    )
    form = _FORM.search(clause)
    return not (
        counterfactual or form or _OF_OTHERS.search(clause) or _TAKEN_BACK.search(behind) or _declines(text, begin, end)
    )


def _declines(text: str, begin: int, end: int) -> bool:
    """Return whether a text declines to score, unless a contrasting word or a line break precedes its number."""
    last = deque(_DECLINED.finditer(text), maxlen=1)
    if not last:
        return False
    refusal = last[0]
    return refusal.start() >= end or not (
        "\n" in text[refusal.end() : begin] or _NEVERTHELESS.search(text, refusal.end(), begin)
    )
