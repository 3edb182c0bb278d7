"""Meaning of a boxed answer: an integer, or a text that is equal for answers of nearly the same spelling."""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from evorun.tasks.assertions import is_asserted, is_denied, is_taken_back
from evorun.tasks.boxes import boxes, last_list_of_boxes, unboxed
from evorun.tasks.conclusions import read_conclusion
from evorun.tasks.corrections import settled
from evorun.tasks.json_text import find_object
from evorun.tasks.math_contest.equations import stated_value

MAX_DIGITS = 50
"""Longest integer that is read (ours): no contest's answer comes near it."""

_ESCAPED = re.compile(r"\\([%$#&])")
_MATH_MODE = re.compile(r"\$|\\[()\[\]]")
_THIN = re.compile(r",\\!\s*|\\!")
_SPACES = re.compile(r"\\(?:[,;:> ]|quad\b|qquad\b)|~|\s+")
_WRAPPER = re.compile(
    r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox|operatorname|boldsymbol|bm|texttt|underline)\s*\{([^{}]*)\}"
)
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degree|°")
_UNICODE = str.maketrans(
    {
        **{"\u2212": "-", "\u00a0": " ", "\u202f": " ", "\u2009": " "},
        **{chr(0xFF10 + digit): str(digit) for digit in range(10)},
    }
)
_NAMED_ANSWER = re.compile(r"(?:the )?(?:final )?answer(?: is)? ?[:=]? ?", re.IGNORECASE)
# Words that may follow a number without being a noun that it counts
_NO_NOUN = (
    r"(?:is|was|are|were|be|seems?|looks?|if|unless|when|can|cannot|could|may|might|would|should|must|does|did|has|had|but"
    r"|because|since|as|times|minus|plus|divided|multiplied|less|more|fewer|and|or|to|than|not|with|for|from|by|at|mod)"
)
_KEYS = ("answer", "final_answer", "solution")
# Control characters that JSON makes of a LaTeX command with an unescaped backslash
_CONTROL = re.compile("[\b\f\t\r](?=[A-Za-z])")
_COMMANDS = {"\b": r"\b", "\f": r"\f", "\t": r"\t", "\r": r"\r"}
_BRACKETED = r"[\[({][^\n\[\](){}$*]{1,80}[\])}]"
# A line or sentence that gives the answer without a box: math, a bracketed value, or one word; GSM8K's mark; a tag
_STATED = re.compile(
    r"\bans(?:wer)?(?:\s+is(?:\s+(?:therefore|thus))?\b|[ *_]*[:=]|[ *_]*(?=\n)|\.[*_]{1,3}(?=\s))[\s*_:]*"
    r"(?:[A-Za-z+ ]{1,15}=\s*)?"
    r"(?P<said>\$[^$\n]{1,200}\$|\\\([^\n]{1,200}?\\\)"
    r"|(?:\([A-Z]\)|[A-Z][.)])[ ][A-Za-z][^\n.,;]{1,60}"
    rf"|{_BRACKETED}(?:[ ]?\u222a[ ]?{_BRACKETED}){{0,4}}|[^\s*$]{{1,50}}+)"
    r"(?=(?:[ *_]*(?:square |cubic )?units?)?[ *_]*(?:\n|$|[.!](?:\s|$)))"
    r"|\u7b54\u6848(?:\u5e94\u8be5|\u5e94)?(?:\u662f|\u4e3a|[:\uff1a])[\s*:\uff1a]*"
    r"(?P<chinese>\$[^$\n]{1,200}\$|[^\s*$\u3002\uff0c,]{1,50}+)(?=[*]*(?:[\s\u3002\uff0c]|$))"
    r"|\bans(?:wer)?(?:\s+is\b|[ *_]*[:=])[\s*_:]*(?P<measured>[+-]?[0-9][0-9,]{0,30}(?:\.[0-9]{1,30})?\u03c0?[*$]{0,3}"
    rf"(?:[ ](?!{_NO_NOUN}\b)[a-z]{{1,15}}(?:\^[23]|[\u00b2\u00b3])?){{1,3}})"
    r"(?=[ *_]*(?:\n|$|[.!](?:\s|$)))"
    r"|\bans(?:wer)?(?:\s+is\b|[ *_]*[:=])[\s*_:]*+"
    r"(?!at (?:least|most)\b)(?:(?!\b(?:not|no|never|or|if|unless|but|either|maybe|perhaps|probably|would|unknown"
    r"|unclear|unsure)\b)[^\n$.;?!=]){3,100}?,?\s+"
    r"(?:i\.e\.,?|that is,?|namely|in other words,?)\s+(?P<restated>\$[^$\n]{1,200}\$|\\\([^\n]{1,200}?\\\))"
    r"(?=[ *_]*(?:\n|$|[.!](?:\s|$)))"
    r"|(?:^[ \t]*|[ \t])####[ \t]+(?P<marked>[^\s]{1,50})[ \t]*$"
    r"|<answer>\s*(?P<tagged>[^<]{1,200}?)\s*</answer>",
    re.IGNORECASE | re.MULTILINE,
)

_INTEGER = re.compile(
    rf"(?P<sign>[+-]?) ?(?P<digits>[0-9]{{1,3}}(?:[, ][0-9]{{3}}){{1,{MAX_DIGITS // 3}}}|[0-9]{{1,{MAX_DIGITS}}})"
    r"(?:\.0*)?(?: ?[%]| (?P<unit>[A-Za-z][A-Za-z .]*[A-Za-z.](?: ?\^ ?\{?[23]\}?)?))?"
)
# Words that change the value of the number before them, so they are not units
_CHANGES_THE_VALUE = frozenset(
    {
        *("hundred", "thousand", "million", "billion", "trillion", "dozen", "score", "gross", "factorial", "squared"),
        *("cubed", "pi", "root", "half", "halve", "third", "quarter", "fourth", "fifth", "tenth", "hundredth"),
        *("and", "or", "to", "plus", "minus", "time", "by", "over", "choose", "mod", "modulo", "base"),
        *(
            "not",
            "approximately",
            "about",
            "roughly",
            "least",
            "most",
            "more",
            "les",
            "fewer",
            "than",
            "above",
            "below",
        ),
        *("wrong", "incorrect"),
    }
)

_FRACTION_OF_DIGITS = re.compile(r"\\frac\s*(\d)\s*(\d)")
_ROOT_OF_DIGIT = re.compile(r"\\sqrt\s*(\d)")
_LAYOUT = re.compile(
    r"\\(?:left|right|displaystyle|limits|bigl?|bigr?|Bigl?|Bigr?|rm|bf|it|large|Large|LARGE|huge|Huge)"
    r"(?![A-Za-z])|\\color\{[a-z]+\}"
)
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:[, ]\d{3})+")
_RATIO = re.compile(r"(-?)(?:\\frac\{(-?\d{1,30})\}\{(\d{1,30})\}|(\d{1,30})/(\d{1,30}))")
_DECIMAL = re.compile(r"[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})")
_NAMED_VALUE = re.compile(r"([A-Za-z])=([^=]+)")
_LISTED = re.compile(r"\d,\s+\d")
# Blanks, but those between two digits or two letters
_LOOSE = re.compile(r"(?<![0-9])\s+(?![A-Za-z])|(?<![A-Za-z])\s+(?![0-9])")
_LETTERED = re.compile(r"\(?([A-Z])\s?(?:\)|[.:])[.:]?\s+(.+)")
_LONE_LETTER = re.compile(r"\(([A-Za-z])\)")

# A value alone on the last line; an equation might be a step
_ALONE = re.compile(
    r"(?:\A\s*|\n[ \t>]*)(?:(?P<bold>\*\*|__)\$?(?P<number>[+-]?[0-9][0-9,]{0,30}(?:\.[0-9]{1,30})?)\$?(?P=bold)"
    r"|(?:\*\*)?(?:\$\$?|\\\(|\\\[)\s*(?P<math>[^$=<>~\n]{1,200}?)\s*(?:\$\$?|\\\)|\\\])(?:\*\*)?)\.?\s*\Z"
)
_NUMBER_ONLY = re.compile(r"\s*([+-]?[0-9][0-9,]{0,30}(?:\.[0-9]{1,30})?)\.?\s*")
_RELATION = re.compile(
    r"\\(?:[lg]eq?|[lg]t|neq?|approx|equiv|sim|in|to|boxed|cdots|ldots|implies|Rightarrow)(?![A-Za-z])|[\u2260-\u2265\u2248\u2261\u2192]"
)
_MODULUS = re.compile(r"\s*\(?\s*(?:\\[pb]?mod|mod)\s*\{?\s*([0-9]{1,30})\s*\}?\s*\)?\Z")
_PERCENT = re.compile(r"percent|per cent|%", re.IGNORECASE)


def boxed(text: str, *, may_list: bool = False) -> str | None:
    r"""Return the content of the last box that a text does not deny; None without such a box.

    may_list: "$\boxed{2}$ and $\boxed{3}$" is the list `2, 3`.
    """
    found = [box for box in boxes(text) if not is_denied(text, box.start, box.end)]
    if not found:
        return None
    listed = [unboxed(text[box.content]) for box in (last_list_of_boxes(text, found) if may_list else found[-1:])]
    return listed[-1] if len(set(map(canonical, listed))) == 1 else ", ".join(listed)


def option_letter(answer: str, question: str) -> str | None:
    r"""Return the letter of an answer `(C) Plane` or `\text{C. Plane}` where the question has that option."""
    lettered = _LETTERED.fullmatch(_plain(answer))
    if lettered is None:
        return None
    option = re.search(rf"\({lettered[1]}\)\s*([^\n(]+)", question)
    return lettered[1] if option and option[1].strip(" .").casefold() == lettered[2].strip(" .").casefold() else None


def final_integer(text: str) -> str | None:
    """Return the integer that a text names as its answer behind its last box; None where there is none."""
    found = boxes(text)
    said = stated(text[found[-1].end :]) if found else None
    return said if said is not None and read_integer(said) is not None else None


def has_percent(text: str) -> bool:
    """Return whether a text speaks of percents."""
    return bool(_PERCENT.search(text))


def stated(text: str, question: str = "") -> str | None:
    """Return the answer of a text without a box: the last that it names ("Final answer: 42"), or its conclusion.

    A JSON object names an answer, too. None where it asserts no answer, or several of which it withdraws none
    (`settled`).
    """
    object_ = find_object(text, *_KEYS)
    begin, end = (object_.start, object_.end) if object_ else (len(text), len(text))
    named = object_ is not None and is_asserted(text, begin, end) and not is_denied(text, begin, end)
    found = [
        (match.start(), str(match[match.lastgroup or 0]).replace("*", "").strip("$ ").rstrip(".,;!"))
        for match in _STATED.finditer(text)
        if not begin <= match.start() < end and is_asserted(text, match.start(), match.end())
    ]
    if object_ and named and (value := _stated_in(object_.value)):
        found = sorted([*found, (begin, value)])
    if not found:
        return _alone(text) or read_conclusion(text, question)
    return None if is_taken_back(text, found[-1][0]) else settled(text, found)


def _stated_in(reply: Mapping[str, Any]) -> str | None:
    """Return the answer of a JSON object: a number, or a text that may lead up to the answer."""
    value = next(reply[key] for key in _KEYS if key in reply)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = _CONTROL.sub(lambda found: _COMMANDS[found[0]], str(value))
    return (stated(text) or text).strip("$ ")


def _alone(text: str) -> str | None:
    """Return the value that stands alone on the last line, set apart, or is the whole reply."""
    if whole := _NUMBER_ONLY.fullmatch(text):
        return whole[1]
    last = _ALONE.search(text, max(0, len(text) - 300))
    if last is None or is_denied(text, last.start(last.lastgroup or 0), len(text)):
        return None
    value = last["number"] or last["math"]
    return None if _RELATION.search(value) else value


def read_integer(answer: str) -> int | None:
    r"""Return the integer that an answer states, or None unless it states exactly one.

    Understood around the digits: a sign, leading zeros, `.0`, thousands set apart (`1,000`, `1{,}000`, `1\,000`), math
    mode, `\text{...}` and its like, degrees, `%`, `\$`, a unit in words after a blank, a full stop, and the name of
    the quantity (`m + n = 113`, see `stated_value`). Nothing is computed: `84/2` and `2^5` are not integers here.
    """
    plain = " ".join(_LAYOUT.sub("", _plain(answer)).split()).strip("{}() ").rstrip(".,; ")
    # A remainder names its dividend; `1024 \bmod 1000` is not computed yet.
    modulus = _MODULUS.search(plain)
    if modulus and (remainder := read_integer(plain[: modulus.start()])) is not None:
        return remainder if 0 <= remainder < int(modulus[1]) else None
    named = _NAMED_ANSWER.match(plain)
    plain = plain[named.end() :] if named else plain
    value = stated_value(plain)
    match = _INTEGER.fullmatch(value.removeprefix("#").strip()) if value is not None else None
    if match is None:
        return None
    words = {word.removesuffix("s") for word in re.findall("[a-z]+", (match["unit"] or "").lower())}
    # "5 million" is no 5: a unit must leave the value alone.
    if not _CHANGES_THE_VALUE.isdisjoint(words):
        return None
    return int(match["sign"] + re.sub("[, ]", "", match["digits"]))


def canonical(answer: str) -> str:
    r"""Return a text that is equal for two answers only if they mean the same, and for most spelt alike.

    Layout goes (`\left`, `\displaystyle`, spaces, math mode, units of degrees, `\text{...}`), `\dfrac12` becomes
    `\frac{1}{2}`, and an integer, a decimal or a fraction of integers becomes one reduced fraction (`0.50`, `1/2`,
    `\frac{2}{4}`: `1/2`). Values that take algebra to compare (`\sqrt{12}`, `2\sqrt{3}`) stay apart.
    """
    plain = _plain(answer)
    plain = _LAYOUT.sub(
        "", plain.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").replace("\\cfrac", "\\frac")
    )
    plain = _FRACTION_OF_DIGITS.sub(r"\\frac{\1}{\2}", plain)
    plain = _ROOT_OF_DIGIT.sub(r"\\sqrt{\1}", plain)
    listed = _LISTED.search(plain)
    plain = _LOOSE.sub("", plain.strip()).rstrip(".,;")
    # "x=5" is 5, but "x=5=y" and "x=2x+3" are not.
    named = _NAMED_VALUE.fullmatch(plain)
    if named and not re.search(rf"(?<![A-Za-z\\]){named[1]}(?![A-Za-z])", named[2]):
        plain = named[2]
    letter = _LONE_LETTER.fullmatch(plain)
    # "1, 234" is a list, "1,234" a number.
    return letter[1] if letter else (None if listed else _rational(plain)) or plain


def named_alike(left: str, right: str) -> bool:
    """Return whether two answers can name the same quantity: x = 5 and 5 can, x = 5 and y = 5 cannot."""
    names = {named[1] for text in (left, right) if (named := _NAMED_VALUE.match(_LOOSE.sub("", _plain(text))))}
    return len(names) < 2


def _plain(answer: str) -> str:
    """Remove typesetting from an answer; blanks between words stay."""
    plain = answer.translate(_UNICODE)
    plain = _ESCAPED.sub(lambda found: "" if found[1] in "$&" else found[1], plain)
    plain = _THIN.sub("", _MATH_MODE.sub("", plain)).replace("{,}", ",")
    plain = _SPACES.sub(" ", plain)
    for _ in range(2):  # \textbf{\text{...}}
        plain = _WRAPPER.sub(r" \1 ", plain)
    return _DEGREES.sub("", plain).strip()


def _rational(plain: str) -> str | None:
    """Return a plain number as a reduced fraction; None for everything else."""
    if _THOUSANDS.fullmatch(plain):
        plain = re.sub("[, ]", "", plain)
    if _DECIMAL.fullmatch(plain):
        return str(Fraction(plain))
    ratio = _RATIO.fullmatch(plain)
    if ratio is None:
        return None
    numerator, denominator = int(ratio[2] or ratio[4]), int(ratio[3] or ratio[5])
    return str(Fraction(-numerator if ratio[1] else numerator, denominator)) if denominator else None
