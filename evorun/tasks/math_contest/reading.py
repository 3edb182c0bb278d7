"""Meaning of a boxed answer: an integer, or a text that is equal for answers written nearly alike."""

import re
from fractions import Fraction

from evorun.tasks.corrections import settled

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
# A line or sentence that gives the answer without a box: one word, or math; GSM8K's mark; a tag; a JSON object
_STATED = re.compile(
    r"\bans(?:wer)?(?:\s+is(?:\s+(?:therefore|thus))?\b|[ *_]*[:=]|[ *_]*(?=\n))[\s*_:]*(?:[A-Za-z+ ]{1,15}=\s*)?"
    r"(?P<said>\$[^$\n]{1,200}\$|\\\([^\n]{1,200}?\\\)|[^\s*$]{1,50}+)(?=[ *_]*(?:\n|$|[.!](?:\s|$)))"
    r"|^[ \t]*####[ \t]+(?P<marked>[^\s]{1,50})[ \t]*$"
    r"|<answer>\s*(?P<tagged>[^<]{1,200}?)\s*</answer>"
    r"|\"(?:final_)?answer\"\s*:\s*\"?(?P<named>[^\"{}\n,]{1,50})\"?\s*[,}]",
    re.IGNORECASE | re.MULTILINE,
)

_INTEGER = re.compile(
    rf"(?P<sign>[+-]?) ?(?P<digits>[0-9]{{1,3}}(?:[, ][0-9]{{3}}){{1,{MAX_DIGITS // 3}}}|[0-9]{{1,{MAX_DIGITS}}})"
    r"(?:\.0*)?(?: ?[%]| (?P<unit>[A-Za-z][A-Za-z .]*[A-Za-z.](?: ?\^ ?\{?[23]\}?)?))?"
)
# Words that make something else of the number before them, so that they are no unit
_CHANGES_THE_VALUE = frozenset(
    {
        *("hundred", "thousand", "million", "billion", "trillion", "dozen", "factorial", "squared", "cubed", "pi"),
        *("and", "or", "to", "plus", "minus", "times", "by", "over", "choose", "mod", "modulo"),
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
_NAMED_VALUE = re.compile(r"[A-Za-z]=([^=]+)")
# Blanks, but those between two digits or two letters
_LOOSE = re.compile(r"(?<![0-9])\s+(?![A-Za-z])|(?<![A-Za-z])\s+(?![0-9])")
_LONE_LETTER = re.compile(r"\(([A-Za-z])\)")


def stated(text: str) -> str | None:
    """Return the answer of a text without a box: the last one that it names so ("Final answer: 42").

    None where it names none, or different ones of which it takes none back (`settled`).
    """
    found = [(one.start(), str(one[one.lastgroup or 0]).strip("$ ").rstrip(".,;!")) for one in _STATED.finditer(text)]
    return settled(text, found) if found else None


def read_integer(answer: str) -> int | None:
    r"""Return the integer that an answer states, or None when it does not state exactly one.

    Understood around the digits: a sign, leading zeros, `.0`, thousands set apart (`1,000`, `1{,}000`, `1\,000`), math
    mode, `\text{...}` and its like, degrees, `%`, `\$`, a unit in words after a blank, a full stop, and an equation's
    left side (`m + n = 113`). Nothing is computed: `84/2` and `2^5` are no integers here.
    """
    plain = " ".join(_LAYOUT.sub("", _plain(answer)).split()).strip("{}() ").rstrip(".,; ")
    named = _NAMED_ANSWER.match(plain)
    plain = plain[named.end() :] if named else plain
    # "m + n = 113" states 113.
    plain = plain.rpartition("=")[2].strip().removeprefix("#").strip()
    match = _INTEGER.fullmatch(plain)
    if match is None:
        return None
    words = re.findall("[a-z]+", (match["unit"] or "").lower())
    # "5 million" is no 5: a unit must leave the value alone.
    if not _CHANGES_THE_VALUE.isdisjoint(words):
        return None
    return int(match["sign"] + re.sub("[, ]", "", match["digits"]))


def canonical(answer: str) -> str:
    r"""Return a text that is equal for two answers only if they mean the same, and for most that look nearly alike.

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
    plain = _LOOSE.sub("", plain.strip()).rstrip(".,;")
    # "x=5" is 5, but "x=5=y" is not.
    named = _NAMED_VALUE.fullmatch(plain)
    plain = named[1] if named else plain
    letter = _LONE_LETTER.fullmatch(plain)
    return letter[1] if letter else _rational(plain) or plain


def _plain(answer: str) -> str:
    """Take off what only sets an answer in type; blanks that separate words stay."""
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
