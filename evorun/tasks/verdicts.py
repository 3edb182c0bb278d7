"""A judge's verdict in its own words: which of two candidates it prefers, or that they tie."""

import re
from collections.abc import Iterator

from evorun.runs.candidates import Verdict
from evorun.tasks.assertions import is_asserted, is_taken_back
from evorun.tasks.corrections import settled

_NOUN = r"(?:candidate|response|solution|assistant|model|answer|option|submission|proof|essay)"
# Digits need the noun: "Response 1"
_NAME = (
    rf"(?:(?:the\s+)?{_NOUN}\s+[(\[]*([AB12])[)\]]*|[(\[]{{0,2}}((?-i:[AB]))[)\]]{{0,2}}"
    rf"|the\s+(first|second)(?:\s+(?:{_NOUN}|one))?)(?![\w'\u2019])"
)
_TIE = r"((?-i:T)|tied?|draw|neither|both|equal)(?![\w'\u2019])"
_VERDICTS: dict[str, Verdict] = {"a": "A", "1": "A", "first": "A", "b": "B", "2": "B", "second": "B"}
_BEST = (
    rf"(?:better|best|superior|more\s+convincing|stronger|preferable|preferred|(?:the\s+)?(?:clear\s+|overall\s+)?"
    rf"(?:winner|better|best|stronger|superior|preferred)(?:\s+(?:one|{_NOUN}|of\s+the\s+two))?)"
)
# Where a statement ends, rather than going on to "better in style" or "A or B"
_END = (
    r"(?=\s*(?:[)\]]*\s*(?:$|[.!;,:](?!\w)|\n|\(|[\u2013\u2014]|-\s)|because\b|since\b|as\s+it\b|overall\b|by\s+far\b))"
    r"(?!\s*,?\s*(?:or|/|and)\s+(?:the\s+)?(?:candidate\s+)?(?-i:[ABT])\b)"
)
_LABEL = (
    r"(?:(?:my|the|final|overall)\s+){0,2}(?:verdict|winner|decision|judge?ment|preference|choice|vote|solution|conclusion"
    rf"|(?:preferred|better|best|winning|stronger)\s+{_NOUN})"
)
_LABELLED = re.compile(
    rf"(?:(?:^|[.!]\s)[ \t-]*{_LABEL}\s*?(?:[:=\u2013\u2014\n]|-\s|\bis\b:?)|\b{_LABEL}\s*(?::|is\b:?))\s*"
    rf"(?:{_NAME}|(?:it(?:'s|\s+is)\s+)?(?:a[ \t]+)?{_TIE})(?:\s+(?:is\s+)?{_BEST}|\s+wins)?{_END}",
    re.IGNORECASE | re.MULTILINE,
)
_BRACKETED = re.compile(r"\[\[\s*([ABT]|tie)\s*\]\]", re.IGNORECASE)
# A lone letter, or "The final answer is B": only where at most a courtesy stands beside it
_LONE = re.compile(
    r"(?:(?:so|therefore|thus|hence),?\s+)?(?:(?:final\s+)?answer\s*:\s*)?(?:(?:the|my)\s+final\s+answer\s+is:?\s*)?"
    r"(?P<letter>[(\[]{0,2}(?-i:[ABT])[)\]]{0,2})\.?(?:\s+I\s+hope\s+it\s+is\s+correct\.?)?",
    re.IGNORECASE,
)
_ADVERBS = (
    r"(?:(?:therefore|thus|clearly|slightly|strongly|much|definitely|ultimately|also|still|overall|narrowly)\s+)*"
)
_PREFERRED = re.compile(
    rf"(?P<overall>\boverall,?\s+)?(?:{_NAME}\s+(?:is\s+{_ADVERBS}{_BEST}(?:\s+overall)?"
    rf"(?:\s+(?:than|to|over)\s+(?:(?:the\s+)?{_NOUN}\s+)?(?:(?-i:[AB])|1|2|the\s+other(?:\s+one)?))?|wins"
    rf"|(?:gives|has|provides|offers)\s+the\s+(?:better|best|stronger)\s+{_NOUN})"
    rf"|\bI(?:'d|\s+would|\s+must|\s+will|'ll)?\s+{_ADVERBS}(?:prefer|choose|pick|select|favou?r|go\s+with|vote\s+for)\s+{_NAME}"
    rf"(?:\s+(?:over|to)\s+(?:{_NOUN}\s+)?(?-i:[AB12]))?|\bmy\s+vote\s+goes\s+to\s+{_NAME}){_END}",
    re.IGNORECASE | re.MULTILINE,
)
_TIED = re.compile(
    rf"(?P<overall>\boverall,?\s+)?(?:\b(?:it(?:'s|\s+is)|this\s+is|that\s+is|I(?:'d|\s+would)?\s+(?:call|declare|consider)\s+(?:it|this))\s+{_ADVERBS}a\s+(?:tie|draw)"
    rf"|\b(?:both(?:\s+{_NOUN}s)?|they|the\s+two(?:\s+{_NOUN}s)?|(?:{_NOUN}s?\s+)?(?-i:A)\s+and\s+(?:{_NOUN}\s+)?(?-i:B))\s+are\s+{_ADVERBS}"
    r"(?:equally\s+(?:good|strong|bad|poor|convincing)|tied|on\s+a\s+par|of\s+equal\s+quality)"
    rf"|\bneither(?:\s+{_NOUN}|\s+one)?(?:\s+of\s+(?:the\s+two|them))?\s+is\s+{_ADVERBS}(?:better|superior)"
    rf"(?:\s+than\s+the\s+other)?){_END}",
    re.IGNORECASE | re.MULTILINE,
)
_UNSURE = re.compile(
    r"\b(?:perhaps|maybe|possibly|probably|arguably|nearly|almost|(?:not|un)\s*(?:sure|certain|clear)|hard\s+to\s+(?:say|tell)"
    r"|(?:cannot|can't|could\s+not|unable\s+to)\s+(?:say|tell|decide|judge)|(?:claim|idea|view|notion|argument)\s+that)\b",
    re.IGNORECASE,
)
# "In style, A is better" is about one aspect
_ASPECT = re.compile(
    r"^\s*(?:in|on|for|regarding|concerning|as\s+(?:to|for)|with\s+respect\s+to|when\s+it\s+comes\s+to|stylistically)\b"
    r"(?!\s+(?:conclusion|summary|short|sum|balance|general|total|the\s+(?:end|whole)|my\s+\w+|th(?:ese|is|at)\s+reasons?|all)\b)",
    re.IGNORECASE,
)
_LIMITED = re.compile(
    r"[^.!?\n]{0,200}?\b(?:but|however|except|unless|if|yet)\b(?!\s+(?:only|just|slightly|barely|both|neither|not\s+by)\b)"
    r"|\s*\?",
    re.IGNORECASE,
)
_HOWEVER = re.compile(r"[.!?\n]\s*(?:however|but|yet|still|then\s+again)\b", re.IGNORECASE)
_TAGGED = re.compile(r"<(verdict|winner|decision|preference|answer|solution)>([^<]{1,60})</\1>", re.IGNORECASE)
_OR = re.compile(r"\bor\s*\Z")
_SENTENCE = re.compile(r"[.!?:;\n]\s*")
_QUOTED = re.compile(
    r'"[^"\n]{2,400}"|\u201c[^\u201d\n]{2,400}\u201d|(?<![\w])\'[^\n]{2,400}?\'(?!\w)|^[ \t]*>[^\n]*', re.MULTILINE
)
_FENCE = re.compile(r"^[ \t]*(```|~~~)[^\n]*\n.*?(?:^[ \t]*\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_WRAPPER = re.compile(r"\\(?:boxed|text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")
_MARKUP = re.compile(r"[*_`$#]|[\U0001f000-\U0001faff\u2600-\u27bf\ufe0f]")
MAX_CHARS = 20_000
"""Longest text that is read (ours); the asked-for verdict is one line."""


def read_verdict(text: str) -> Verdict:
    """Return the verdict that a judge states in prose; `invalid` where it states none or several.

    A label ("Verdict: A", "Winner: Candidate B", "[[A]]") or "overall, ..." counts before the sentences that lead up to
    it ("Candidate A is better.", "I prefer B", "It's a tie"). A statement that is denied, doubted, supposed,
    quoted, limited to an aspect or withdrawn does not count. "Response 1" and "the first one" are the candidate shown
    first, A.
    """
    if len(text) > MAX_CHARS:
        return "invalid"
    plain = _plain(text)
    firm = sorted(_firm(plain))
    found = [statement for statement in _sentences(plain) if not firm or statement[0] > firm[0][0]]
    found = sorted({*firm, *found})
    if not found:
        return "invalid"
    verdict = settled(plain, found)
    last = found[-1][0]
    left_open = is_taken_back(plain, last) or _UNSURE.search(plain, last) or _HOWEVER.search(plain, last)
    return "invalid" if verdict is None or left_open else verdict


def _plain(text: str) -> str:
    """Return the text without markup, and with blanks for what it quotes."""
    text = text.strip()
    if (fence := _FENCE.fullmatch(text)) and text.endswith(fence[1]) and text.count(fence[1]) == 2:
        text = "\n".join(text.split("\n")[1:-1])
    text = _FENCE.sub("\n", text)
    text = _TAGGED.sub(r"\n\nVerdict: \2\n", text)
    text = _WRAPPER.sub(r"\1", _WRAPPER.sub(r"\1", text))
    text = _QUOTED.sub(lambda quoted: quoted[0] if _LONE.fullmatch(quoted[0].strip("\"'\u201c\u201d")) else " ", text)
    return "\n".join(line.strip() for line in _MARKUP.sub("", text).split("\n")).strip()


def _firm(plain: str) -> Iterator[tuple[int, Verdict]]:
    for label in _LABELLED.finditer(plain):
        if _is_meant(plain, label):
            yield label.start(), _named(label)
    for mark in _BRACKETED.finditer(plain):
        if is_asserted(plain, mark.start(), mark.end()):
            yield mark.start(), _named(mark)
    for pattern in (_PREFERRED, _TIED):
        for found in pattern.finditer(plain):
            if found["overall"] and _is_meant(plain, found):
                yield found.start(), "T" if pattern is _TIED else _named(found)
    lines = plain.split("\n")
    alone = [(line, lone["letter"].strip("()[]")) for line in lines if (lone := _LONE.fullmatch(line))]
    if len({letter for _, letter in alone}) == 1:
        letter = alone[-1][1]
        # A letter that begins a last line might have been cut off
        if alone[-1][0] == lines[-1] and (alone[-1][0] != letter or len(lines) == 1):
            yield len(plain) - len(lines[-1]), _VERDICTS.get(letter.lower(), "T")
        elif alone[0][0] == lines[0]:
            yield 0, _VERDICTS.get(letter.lower(), "T")


def _sentences(plain: str) -> Iterator[tuple[int, Verdict]]:
    for pattern in (_PREFERRED, _TIED):
        for found in pattern.finditer(plain):
            if not found["overall"] and _is_meant(plain, found):
                yield found.start(), "T" if pattern is _TIED else _named(found)


def _is_meant(plain: str, found: re.Match[str]) -> bool:
    begin, end = found.span()
    sentence = _SENTENCE.split(plain[max(0, begin - 300) : begin])[-1]
    return (
        is_asserted(plain, begin, end)
        and not _UNSURE.search(sentence)
        and not _ASPECT.match(sentence)
        and not _OR.search(sentence)
        and not _LIMITED.match(plain, end)
    )


def _named(found: re.Match[str]) -> Verdict:
    named = [group for name, group in zip(range(1, 20), found.groups(), strict=False) if group and name]
    words = [word.strip().lower() for word in named if word.strip().lower() in _VERDICTS]
    return _VERDICTS[words[0]] if words else "T"
