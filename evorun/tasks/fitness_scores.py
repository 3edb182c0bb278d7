"""Reads the score from 0 to 100 that an evaluator gives a response (Lyria, section 4.1.4)."""

import math
import re
from collections import deque

from evorun.tasks.corrections import settled
from evorun.tasks.given_scores import is_given
from evorun.tasks.json_text import Found, find_object
from evorun.tasks.thinking import without_thinking

# Keys that models use instead of `score`
_SCORE_KEYS = ("score", "fitness", "rating", "final_score", "overall_score")

# Blanks and marks of bold numbers
_GAP = r"[\s*_]{0,6}"
_HUNDRED = r"100(?:\.0+)?(?!\.?\d)"
# Mentions of a score's scale. "A score of 100" is none: `of 100` counts only after a number
_SCALE = re.compile(
    rf"""
      / {_GAP} {_HUNDRED}  # 85/100
    | \b out {_GAP} of {_GAP} (?:(?:an?|the)\s)? (?:(?:possible|maximum|total)\s)? (?:of\s)? {_GAP} {_HUNDRED}
    | (?: (?<=[\d%]) | (?<=\d\*\*) ) \s{{1,3}} (?:points?\s|marks?\s)? of {_GAP} {_HUNDRED}  # 85 of 100
    | \b (?: scale \s of | max (?:imum)? \s? [:=]? ) {_GAP} {_HUNDRED}
    | (?<![\w.,]) (?:[01](?:\.0+)?|zero) {_GAP} (?:to|and|[-\u2013\u2014,]|\.{{2,3}}) {_GAP} {_HUNDRED}  # 0 to 100
    | (?<![\w.]) {_HUNDRED} {_GAP} -? {_GAP} point\s+(?:scale|system)
    """,
    re.VERBOSE | re.IGNORECASE,
)
# A decimal number, with a point or (one or two places) a comma, maybe with an exponent
_NUMBER = re.compile(
    r"""
    (?<![^\W_]) (?<!\d\.)
    [-\u2212]? (?: (?<!\d,) \d{1,3},\d{1,2} (?!,?\d) | \d{1,30} (?:\.\d{1,30})? (?:e[-+]?\d{1,3})? )
    (?! (?!\u5206) [^\W_] | \.\d)
    """,
    re.VERBOSE | re.IGNORECASE,
)


_LABEL = (
    r"\b(?:score|fitness|rating|grade)\b[\s*_`\"']{0,4}(?:[:=]|is\b|of\b|\u2248|\s)[\s*_`$]{0,6}"
    r"(?:(?:about|approximately|roughly|therefore|thus|then)\s)?(?:\\boxed\{)?"
)
_LABELLED = re.compile(rf"{_LABEL}$", re.IGNORECASE)
_REACH = 60
_MAX_NUMBERS = 1_000
# A scale after a number identifies a score as a label before it does
_MARK = "\ue000"
_MARKED = re.compile(rf"[\s*_%(\[,]{{0,6}}{_MARK}")
_SCORE_LINE = re.compile(
    rf"^[ \t*_#>-]*(?:score|fitness|rating)[*_`]*[ \t]*[:=][ \t*_`$]*(\d{{1,9}}(?:\.\d{{1,9}})?)[ \t*_`$%.{_MARK}]*$",
    re.IGNORECASE | re.MULTILINE,
)
_LINE_BEFORE = re.compile(r"(?:^|\n)[\s*_#>$`]*(?:\\boxed\{)?$")
_LINE_BEHIND = re.compile(r"[}\s*_$`.%]*(?:\n|$)")
# Things that are counted or numbered, and quantities from which the rules compute scores (C = 2, 5/8)
_THING = (
    r"(?:rows?|columns?|box(?:es)?|cells?|vert(?:ex|ices)|edges?|conflicts?|clash(?:es)?|colou?rs?|nod(?:e|es)|cit(?:y|ies)"
    r"|legs?|steps?|lines?|items?|tests?|examples?|errors?|mistakes?|bugs?|points? off|cases?|parts?|options?|of)"
)
_COUNT_BEFORE = re.compile(
    rf"(?:\b{_THING}[ \t*_#]{{1,3}}(?:\d{{1,9}}(?:,|\sand|,\sand|\sor)\s)*"
    rf"|(?:^|[,;\n])\s?{_THING}:\s|(?<!\w)[A-EG-OQRT-Z]\s?[=\u2248]\s?|#)$",
    re.IGNORECASE,
)
_COUNT_BEHIND = re.compile(rf"[ \t*_]{{1,3}}(?:\w+[ \t]){{0,2}}{_THING}\b", re.IGNORECASE)
_OPERAND_BEFORE = re.compile(r"(?:[*/\u00d7\u00b7^+]|\d\)?\s[-\u2212]|\\(?:times|cdot))[\s*_(]{0,4}$")
_OPERAND_BEHIND = re.compile(
    r"\s{0,2}(?:\s(?:out\s)?of\s\d|[/\u00d7^+]|\*(?!\*)\s?[\d(]|[-\u2212]\s\d|\\(?:times|cdot))"
)
# "70, not 80"
_CONTRASTED = re.compile(r"\d[\s,*_]{1,4}(?:not|rather\sthan|instead\sof)\s$", re.IGNORECASE)
_TURNED = re.compile(r"\b(?:but|however|although|wait|actually|instead|yet)\b", re.IGNORECASE)
# An object that only shows the form
_PLACEHOLDER = re.compile(
    r"[\s._\u2026]*|<[^<>]*>|(?:your |the )?(?:reasoning|reasons|explanation)(?: here)?|string", re.IGNORECASE
)
_STATED = re.compile(r"(?<!\\)[\"']score[\"']\s*:\s*[\"']?(-?\d{1,9}(?:\.\d{1,9})?)[\"']?\s*[,}]", re.IGNORECASE)


def read_fitness(text: str) -> float | None:
    """Return the score that a completion gives, clipped to [0, 100]; None without one. Never raises.

    If there is a JSON object with a score, only its `score` counts. Otherwise the last number in the text counts, apart
    from those in an object's reasoning; see `read_last_score`. A text that declines to give a score has none.
    """
    text = without_thinking(text)
    found = find_object(text, *_SCORE_KEYS)
    score: object
    if found is not None:
        score = next(found.value[key] for key in _SCORE_KEYS if key in found.value)
        if not _is_meant(text, found):
            return None
    else:
        reasoned = find_object(text, "reasoning")
        score = read_last_score(text if reasoned is None else f"{text[: reasoned.start]} {text[reasoned.end :]}")
    if isinstance(score, str):
        score = read_last_score(score)
    # `bool` is an int in Python, and JSON's 1e999 is infinite: neither is a score.
    if isinstance(score, bool) or not isinstance(score, int | float) or not -math.inf < score < math.inf:
        return None
    return float(min(100, max(0, score)))


def read_last_score(text: str) -> float | None:
    """Return the last decimal number in a text that does not name the scale (`/100`, `0 to 100`); None without one.

    If that number counts something or is an operand, the last number that is called a score or stands alone is used.
    Also None where the text does not give the number as its score (`is_given`). Takes linear time.
    """
    # Mentions of the scale are removed first: in "70 out of 100" the last number is not the score.
    text = _SCALE.sub(f" {_MARK} ", without_thinking(text).replace(_MARK, " "))
    numbers = deque(_NUMBER.finditer(text), maxlen=_MAX_NUMBERS)
    if not numbers:
        return None
    number = numbers.pop()
    if numbers and _CONTRASTED.search(text, max(0, number.start() - _REACH), number.start()):
        number = numbers.pop()
    if not _is_score(text, number):
        # A contrast after a number may take it back
        turns = [turn.end() for turn in _TURNED.finditer(text)]
        earlier = [
            candidate
            for candidate in numbers
            if candidate.start() >= max(turns, default=0) and _is_called_score(text, candidate)
        ]
        if not earlier:
            return None
        number = earlier[-1]
    if not is_given(text, number.start(), number.end()):
        return None
    in_lines = [(line.start(), line[1]) for line in _SCORE_LINE.finditer(text)]
    if in_lines and in_lines[-1][1] == number[0] and settled(text, in_lines) is None:
        return None
    value = float(number[0].replace(",", ".").replace("\u2212", "-"))
    return value if math.isfinite(value) else None


def _is_meant(text: str, found: Found) -> bool:
    """Return whether an object is the actual reply: without placeholders, and not taken back."""
    reasoning = found.value.get("reasoning")
    if isinstance(reasoning, str) and reasoning and _PLACEHOLDER.fullmatch(reasoning.strip()):
        return False
    before, behind = text[: found.start], text[found.end :]
    stated = [(match.start(), float(match[1])) for match in _STATED.finditer(text)]
    if stated and settled(text, stated) is None:
        return False
    return is_given(f"{before}{_MARK}{behind}", found.start, found.start + 1)


def _is_score(text: str, number: re.Match[str]) -> bool:
    """Return whether a number may be a score: it is called one, or it is neither a count nor an operand."""
    if _is_called_score(text, number):
        return True
    before = text[max(0, number.start() - _REACH) : number.start()]
    return not (
        _COUNT_BEFORE.search(before)
        or _OPERAND_BEFORE.search(before)
        or _COUNT_BEHIND.match(text, number.end())
        or _OPERAND_BEHIND.match(text, number.end())
    )


def _is_called_score(text: str, number: re.Match[str]) -> bool:
    before = text[max(0, number.start() - _REACH) : number.start()]
    if _OPERAND_BEHIND.match(text, number.end()):
        return False
    alone = _LINE_BEFORE.search(before) and _LINE_BEHIND.match(text, number.end())
    return bool(_LABELLED.search(before) or _MARKED.match(text, number.end()) or alone)
