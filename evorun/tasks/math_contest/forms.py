r"""Checks of the form of two answers, before an algebra system compares their values.

math-verify is lenient where a grader must not be: it drops units and scales (`8 \text{ million}` is 8), takes sets for
intervals, and the right side of any equation for an answer. It also rejects correct answers: `6√10`,
`-4 < x < 5` for (-4, 5). `comparable` decides such cases, or returns the parts that are still to be compared.
"""

import re
from collections.abc import Iterator

from evorun.tasks.math_contest.equations import has_comparison, stated_value

_UNICODE = str.maketrans(
    {
        **{"\u2212": "-", "\u2013": "-", "\u00b7": r"\cdot ", "\u00d7": r"\times ", "\u00f7": "/", "\u03c0": r"\pi "},
        **{"\u221e": r"\infty ", "\u2264": r"\le ", "\u2265": r"\ge ", "\u2260": r"\neq ", "\u2248": r"\approx "},
        **{
            "\u00b2": "^2",
            "\u00b3": "^3",
            "\u222a": r"\cup ",
            "\u2208": r"\in ",
            "\u00b1": r"\pm ",
            "\u00b0": r"^\circ ",
        },
        **{"\u00a0": " ", "\u202f": " ", "\u2009": " "},
    }
)
_UNICODE_ROOT = re.compile(r"\u221a\s*(?:\{([^{}]*)\}|\(([^()]*)\)|(\d+|[A-Za-z]))")
_ROOT_OF_DIGITS = re.compile(r"\\sqrt\s*(\d+)")
_SIZE = re.compile(r"\\(?:left|right|bigl?|bigr?|Bigl?|Bigr?|displaystyle)(?![A-Za-z])")
# The space below a row of a matrix
_ROW_SPACE = re.compile(r"(\\\\)\s*\[\s*-?[0-9.]+\s*(?:pt|ex|em|mm|cm|in)\s*\]")
_TEX_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|,\\!|\\,)\s*(?=\d{3}(?!\d))")
_GROUPED = re.compile(r"(?<!\\)\{(-?\d{1,3}(?:,\d{3})+)\}")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\overline\s*\{(\d+)\}")
_MIXED = re.compile(r"(-?\d+)\s+(\d+)/(\d+)")
_TEXT = re.compile(r"\\(?:text|mbox|mathrm|textrm|textbf|textit)\s*\{([^{}]*)\}")
_ARTICLE = re.compile(r"(\\text\s*\{)\s*(?:an?|the)\s+", re.IGNORECASE)
_MEMBER = re.compile(r"[A-Za-z]\s*\\in\s*(?=[(\[\\])")
_NUMBER_WORDS = {
    word: str(number)
    for number, word in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    )
}
_NAMED_BASE = re.compile(r"_\s*\{?\s*\\(?:text|mathrm|mbox|textrm)\s*\{\s*([a-z]+)\s*\}\s*\}?")
_BASE_WORDS = {**_NUMBER_WORDS, "sixteen": "16"}
# Functions without a backslash; "5 sec" is a time
_PLAIN_FUNCTION = re.compile(
    r"(?<![\\A-Za-z{])(?<!\d )(?<!\d)(arc(?:sin|cos|tan)|sin|cos|tan|cot|sec|csc|ln|log)(?=\s*(?:\("
    r"|[a-z](?![a-z])|\\|\^|\d))"
)
# math-verify drops the degree sign, and reads the sine of 30 degrees as one of 30 radians
_OF_DEGREES = re.compile(
    r"\\(sin|cos|tan|cot|sec|csc)\s*(?:\(|\{)?\s*(\d+(?:\.\d+)?)\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ)\s*(?:\)|\})?"
)
_PAIR = re.compile(r"\bpairs?\b|\bpoint|\bcoordinates?\b|\bvector", re.IGNORECASE)
_INTERVAL = re.compile(r"\binterval|\binequalit|[<>]|\\(?:[lg]eq?|[lg]t)(?![A-Za-z])", re.IGNORECASE)

_SCALES = {"hundred": "10^{2}", "thousand": "10^{3}", "million": "10^{6}", "billion": "10^{9}", "trillion": "10^{12}"}
_SCALES["dozen"] = "12"
_SCALE = re.compile(rf"(?<=[\d}}])\s*(?:\\text\s*\{{\s*)?({'|'.join(_SCALES)})s?\b\s*\}}?", re.IGNORECASE)
_PERCENT_WORD = re.compile(r"\\text\s*\{\s*(?:percent|per cent)\s*\}|\b(?:percent|per cent)\b", re.IGNORECASE)
_PERCENT = re.compile(r"\s*\\?%")
_PERCENTAGE = re.compile(r"(-?(?:\d+(?:\.\d+)?|\\frac\{\d+\}\{\d+\}))\s*\\?%")
_OF_PERCENT = re.compile(r"percent|per cent|%", re.IGNORECASE)
_BASED = re.compile(r"([0-9A-Z]+)_\s*\{?\s*(?:\\text\{)?(\d+|[a-z]+)\}?\s*\}?")
_APPROXIMATELY = re.compile(r"\\approx(?![A-Za-z])|\\simeq(?![A-Za-z])|\\doteq(?![A-Za-z])")
_ROUNDED = re.compile(r"nearest|approximat|estimate|\bround|decimal place", re.IGNORECASE)

# Words that change the meaning of the value beside them
_QUALIFIED = re.compile(
    r"\b(?:or|and) (?:more|less|fewer|greater)\b|\bat (?:least|most)\b|\b(?:more|less|fewer|greater) than\b"
    r"|\b(?:not|neither|nor|except|squared|cubed|factorial|approximately|about|roughly)\b",
    re.IGNORECASE,
)
_UNIT_NAMES = {
    "mm": "mm millimeter millimetre",
    "cm": "cm centimeter centimetre",
    "m": "m meter metre",
    "km": "km kilometer kilometre",
    "inch": "in inch inche",
    "foot": "ft foot feet",
    "yard": "yd yard",
    "mile": "mi mile",
    "second": "s sec second",
    "minute": "min minute",
    "hour": "h hr hour",
    "day": "day",
    "week": "week",
    "month": "month",
    "year": "yr year",
    "gram": "g gram",
    "kg": "kg kilogram",
    "pound": "lb pound",
    "ounce": "oz ounce",
    "cent": "cent",
    "dollar": "dollar",
    "radian": "rad radian",
    "degree": "degree deg",
    "am": "am",
    "pm": "pm",
}
_UNITS = {name: unit for unit, names in _UNIT_NAMES.items() for name in names.split()}

# Of two letters and more: `25\pi m` may be a product
_BARE_UNIT = re.compile(
    rf"(?<=[\w}}])[ ]+((?:square |cubic )?(?:{'|'.join(name for name in _UNITS if len(name) > 1)})s?(?:\^[23])?)\Z"
)

_LESS, _LESS_OR_EQUAL, _MORE, _MORE_OR_EQUAL, _OTHER = "<≤>≥≠"
_SIGNS = (
    (re.compile(r"\\leqslant|\\leq|\\le(?![A-Za-z])|<=|\\nless"), _LESS_OR_EQUAL),
    (re.compile(r"\\geqslant|\\geq|\\ge(?![A-Za-z])|>=|\\ngtr"), _MORE_OR_EQUAL),
    (re.compile(r"\\neq|\\ne(?![A-Za-z])|!="), _OTHER),
    (re.compile(r"\\lt(?![A-Za-z])"), _LESS),
    (re.compile(r"\\gt(?![A-Za-z])"), _MORE),
)
_EITHER = re.compile(r"\\text\s*\{\s*or\s*\}|\bor\b|\\lor(?![A-Za-z])|\\vee(?![A-Za-z])|\\cup(?![A-Za-z])")
_AND = re.compile(r"\\text\s*\{\s*and\s*\}|\band\b|\\land(?![A-Za-z])|\\wedge(?![A-Za-z])")
_BOTH = re.compile(rf"{_AND.pattern}|,")
_VARIABLE = re.compile(r"[A-Za-z]|\\(?:theta|alpha|lambda|phi)")


def comparable(gold: str, answer: str, question: str = "") -> tuple[str, str] | str:
    r"""Return two answers as math-verify is to compare them, or why they differ.

    question: tells whether a percent sign, a base or a scale goes without saying (`25\%` is 25 where percents are
    asked for).
    """
    if _units(gold) and _units(answer) and _units(gold) != _units(answer):
        return "another_unit: the answer has another unit"
    if _QUALIFIED.search(_words(answer)) and not _QUALIFIED.search(_words(gold)):
        return "qualified: the answer says more than a value"
    gold, answer = (_without_percent(_rewrite(text, question), gold, question) for text in (gold, answer))
    rounded = bool(re.search(r"\d\.\d", gold) or _APPROXIMATELY.search(gold) or _ROUNDED.search(question))
    gold, answer = _exact(gold, rounded), _exact(answer, rounded)
    if "=" in gold and not re.search("[A-Za-z]", gold):
        gold = stated_value(gold) or gold
    based = _BASED.fullmatch(gold), _BASED.fullmatch(answer)
    if any(based):
        return _digits_in_one_base(gold, answer, question)
    expected, given = _kind(gold), _kind(answer)
    if expected in _RANGES and has_comparison(answer):
        answer = _interval(answer) or answer
        given = _kind(answer)
    if (
        {expected, given} in ({"set", "tuple"}, {"set", "interval"}, {"list", "interval"})
        or ({expected, given} == {"value", "interval"} and not has_comparison(gold))
        or ((expected, given) == ("tuple", "list") and _INTERVAL.search(question) and not _PAIR.search(question))
    ):
        return f"another_form: expected a {expected}, got a {given}"
    if r"\equiv" in answer and r"\equiv" not in gold:
        answer = stated_value(answer) or answer
    if has_comparison(answer) and not has_comparison(gold):
        return "a_comparison: the answer compares, and states no value"
    if has_comparison(gold) and given == "set":
        return "another_form: expected a comparison, got a set"
    if "=" in answer and "=" not in gold and given == "value":
        value = stated_value(answer, may_branch=True)
        if value is None:
            return "an_equation: the answer is an equation that states no value of what is asked for"
        answer = value
    return gold, answer


_RANGES = ("tuple", "interval", "union")


def _rewrite(text: str, question: str) -> str:
    """Return a text in the notation that math-verify reads correctly."""
    text = _ROW_SPACE.sub(r"\1", _SIZE.sub("", text.translate(_UNICODE))).strip().rstrip(".")
    text = _UNICODE_ROOT.sub(lambda root: rf"\sqrt{{{root[1] or root[2] or root[3]}}}", text)
    text = _GROUPED.sub(lambda group: "{" + group[1].replace(",", "") + "}", _TEX_THOUSANDS.sub("", text))
    text = _BARE_UNIT.sub(r"\\text{ \1}", text)
    text = _PLAIN_FUNCTION.sub(r"\\\1 ", text)
    text = _REPEATING.sub(_fraction, _ROOT_OF_DIGITS.sub(r"\\sqrt{\1}", text))
    text = _ARTICLE.sub(r"\1", _MEMBER.sub("", text.strip()))
    text = _NAMED_BASE.sub(lambda base: f"_{{{_BASE_WORDS.get(base[1], base[1])}}}", text)
    text = _OF_DEGREES.sub(lambda found: rf"\{found[1]}\left(\frac{{{found[2]}\pi}}{{180}}\right)", text)
    if mixed := _MIXED.fullmatch(text):
        text = rf"{mixed[1]}\frac{{{mixed[2]}}}{{{mixed[3]}}}"
    if scale := _SCALE.search(text):
        asked = re.search(rf"\b(?:how many|number of|in)\s+(?:\w+\s+)?{scale[1]}", question, re.IGNORECASE)
        text = _SCALE.sub("" if asked else rf" \\cdot {_SCALES[scale[1].lower()]} ", text)
    return _NUMBER_WORDS.get(_words(text).strip().lower(), text)


def _fraction(found: re.Match[str]) -> str:
    whole, fixed, period = found[1] or "0", found[2], found[3]
    value = int(whole + fixed + period) - int(whole + fixed)
    return rf"\frac{{{value}}}{{{'9' * len(period)}{'0' * len(fixed)}}}"


def _without_percent(text: str, gold: str, question: str) -> str:
    """Return a text without percents: as bare numbers where percents are asked for, as hundredths elsewhere."""
    text = _PERCENT_WORD.sub(r"\\%", text)
    if _OF_PERCENT.search(gold) or _OF_PERCENT.search(question):
        return _PERCENT.sub("", text)
    return _PERCENTAGE.sub(r"\\frac{\1}{100}", text)


def _exact(text: str, rounded: bool) -> str:
    r"""Return one side of `2\sqrt{3} \approx 3.46`: the rounded side where a rounded value is asked for."""
    first, *rest = (part.strip() for part in _APPROXIMATELY.split(text))
    return (rest[-1] if rest else first) if rounded else text if not first or _VARIABLE.fullmatch(first) else first


def _digits_in_one_base(gold: str, answer: str, question: str) -> tuple[str, str] | str:
    """Return the digits to compare, or why they differ; a base that the question asks for may be omitted."""
    (digits, base), (given, other) = (
        (found[1], found[2]) if (found := _BASED.fullmatch(text)) else (text, "") for text in (gold, answer)
    )
    if base and other and base != other:
        return "another_base: the answer is in another base"
    if other and not base and other != "10" and "base" not in question:
        return "another_base: the answer is in a base that is not asked for"
    return (digits, given) if digits == given else "another_base: the digits differ"


def _kind(text: str) -> str:
    """Return the kind of a text: set, tuple (or open interval), interval, union, list or value."""
    text = text.strip()
    if re.search(r"\\cup(?![A-Za-z])", text):
        return "union"
    if text.startswith(r"\{") and text.endswith(r"\}"):
        return "set"
    parts = list(_split(text))
    inner = text[1:-1]
    if len(parts) == 1 and text[:1] in "([" and text[-1:] in ")]" and len(list(_split(inner))) > 1 and inner:
        return "tuple" if (text[0], text[-1]) == ("(", ")") else "interval"
    return "list" if len(parts) > 1 or _EITHER.search(text) or _AND.search(text) else "value"


def _split(text: str) -> Iterator[str]:
    """Yield the parts of a text that commas outside of brackets separate."""
    depth = begin = 0
    for at, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if character in ",;" and depth == 0:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]


def _words(text: str) -> str:
    """Return the words of a text, those within LaTeX's text commands included."""
    return " ".join(_TEXT.sub(r" \1 ", text).split())


def _units(text: str) -> frozenset[str]:
    """Return the units that are named beside a number."""
    named = [word for found in _TEXT.findall(text) for word in re.findall("[a-z]+", found.lower().replace(".", ""))]
    if plain := re.search(r"\d\s*([a-z][a-z. /]*)$", text):
        named += re.findall("[a-z]+", plain[1].replace(".", ""))
    if "mph" in named:
        named += ["mile", "hour"]
    units = {_UNITS.get(word) or _UNITS.get(word.removesuffix("s")) for word in named}
    return frozenset(unit for unit in units if unit) | ({"dollar"} if r"\$" in text else set())


def _interval(text: str) -> str | None:
    r"""Return the interval that inequalities describe, `-4 < x \le 5` as (-4, 5]; None where there is none."""
    for pattern, sign in _SIGNS:
        text = pattern.sub(sign, text)
    parts = [_bounded(part) for part in _EITHER.split(text)]
    return r" \cup ".join(part for part in parts if part) if all(parts) else None


def _bounded(text: str) -> str | None:
    low: list[tuple[str, bool]] = []
    high: list[tuple[str, bool]] = []
    names = set()
    for piece in _BOTH.split(text):
        terms = [
            term.strip() for term in re.split(f"([{_LESS}{_LESS_OR_EQUAL}{_MORE}{_MORE_OR_EQUAL}{_OTHER}])", piece)
        ]
        if len(terms) == 5 and _VARIABLE.fullmatch(terms[2]):
            comparisons = [terms[:3], terms[2:]]
        elif len(terms) == 3:
            comparisons = [terms]
        else:
            return None
        for left, sign, right in comparisons:
            if not _VARIABLE.fullmatch(left):
                left, sign, right = right, sign.translate(str.maketrans("<≤>≥", ">≥<≤")), left
            if not _VARIABLE.fullmatch(left) or not right:
                return None
            names.add(left)
            if sign == _OTHER:
                return rf"(-\infty,{right})\cup({right},\infty)" if len(terms) == 3 and piece == text else None
            (high if sign in "<≤" else low).append((right, sign in "≤≥"))
    if len(names) != 1 or len(low) > 1 or len(high) > 1:
        return None
    (begin, closed), (end, shut) = (low or [(r"-\infty", False)])[0], (high or [(r"\infty", False)])[0]
    return f"{'[' if closed else '('}{begin},{end}{']' if shut else ')'}"
