r"""The value that an answer with an equals sign states: `m + n = 113` states 113, `x^2 = 113` states no value."""

import re

_CONSEQUENCE = re.compile(r"\\(?:Rightarrow|Longrightarrow|implies|therefore)(?![A-Za-z])|⇒|∴|=>")
_COMPARISON = re.compile(
    r"[<>≠≤≥≈≡≅~]|!=|\\(?:n?[lg]eq?|[lg]eqslant|[lg]t|neq?|not|approx|approxeq|sim|simeq|cong|equiv|in|notin"
    r"|subset|subseteq|ll|gg|propto|doteq|to|rightarrow)(?![A-Za-z])"
)
_TWO_SIGNS = re.compile(r"[±∓]|\\(?:pm|mp)(?![A-Za-z])")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_GREEK = re.compile(
    r"\\(?:alpha|beta|gamma|delta|epsilon|varepsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|rho|sigma|tau|phi"
    r"|varphi|chi|psi|omega|Delta|Sigma|Omega|ell)(?![A-Za-z])"
)
_NAMES = re.compile(r"[A-Za-z]{1,3}(?:_(?:\{\w+\}|\w))?(?:\s*\+\s*[A-Za-z]{1,3})*")
# Subscripts, and the marks of a derivative: a_{10}, f^{(3)}
_SUBSCRIPT = re.compile(r"_\s*(?:\{[^{}]*\}|\\?[A-Za-z0-9])|\^\s*\{?(?:\s*\\prime|\(\d+\))+\s*\}?")
# What a call holds, and what stands between bars or floors, is part of a name: f(3), |S_2|
_CALLED = re.compile(r"(?<=[A-Za-z'])\s*(?:\([^()]*\)|\[[^\[\]]*\])")
_SUM = re.compile(r"\\(?:sum|prod|int|max|min)(?![A-Za-z])")
_FUNCTION = re.compile(r"\\(?:gcd|lcm|deg|det|max|min|dim|Pr)(?![A-Za-z])\s*(?:\([^()]*\))?")
_BARS = re.compile(r"\|[^|]*\||\\lfloor.*?\\rfloor|\\lceil.*?\\rceil|^\[(?:[A-Z]{3,}|.*:.*)\]$")
_NAME = re.compile(r"[A-Za-z]+")
# The square of a distance, which contests ask for: AC^2
_SQUARED_DISTANCE = re.compile(r"\(?[A-Z]{2}\)?\s*\^\s*\{?2\}?")
_REMAINDER = re.compile(r".*\\(?:bmod|mod|pmod)(?![A-Za-z])|.*\bmod\b", re.DOTALL)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# A remainder: N \equiv 89 \pmod{1000}
_CONGRUENT = re.compile(r"([^=]*?)(?:\\equiv(?![A-Za-z])|≡)([^=]*?)\(?(?:\\p?mod|\\bmod|\bmod\b).*", re.DOTALL)
_NUMBER = re.compile(r"[+-]?[0-9][0-9.,]*")
_SPACING = re.compile(r"\s+|\\(?:left|right|displaystyle)(?![A-Za-z])|\\[,!;:]")
_ASKING = "find|compute|evaluate|determine|calculate|whatis|thevalueof"


def has_comparison(text: str) -> bool:
    r"""Return whether a text has a relation other than an equation: `<`, `\ge`, `\neq`, `\in` and their like."""
    return bool(_COMPARISON.search(_outside_brackets(text)))


def stated_value(text: str, *, may_branch: bool = False) -> str | None:
    r"""Return the value that an answer states for the quantity asked for; None where it states none.

    `n = 89`, `f(3) = 89`, `m + n = 80 + 9 = 89` and `89 = n` state 89, and a text without any relation states itself.
    Unsolved equations (`2x = 89`, `x + 1 = 89`), several equations, and other relations state no value.
    may_branch: a value may have two signs.
    """
    text = _CONSEQUENCE.split(text)[-1].replace(":=", "=").replace("\u2019", "'").strip()
    if congruent := _CONGRUENT.fullmatch(text):
        text = f"{congruent[1]}={congruent[2]}"
    if has_comparison(text) or (not may_branch and _TWO_SIGNS.search(text)):
        return None
    bounds = [at for at, character in enumerate(_outside_brackets(text)) if character == "="]
    sides = [
        text[begin:end].strip() for begin, end in zip([0, *(at + 1 for at in bounds)], [*bounds, None], strict=True)
    ]
    if len(sides) > 1 and not sides[0]:
        sides = sides[1:]
    if len(sides) == 1:
        return sides[0]
    if len(sides) == 2 and _NAMES.fullmatch(sides[1]):
        sides.reverse()
    *before, value = sides
    # The name stands first; steps may follow it, but no list, and no other number.
    chained = all(
        side and "," not in _THOUSANDS.sub("", _outside_brackets(side)) and _no_other_number(side, value)
        for side in before
    )
    named = _is_quantity(before[0]) or not _has_names(before[0])
    return value if chained and named and value and not _contains_itself(before[0], value) else None


def asked_value(text: str, question: str) -> str | None:
    r"""Return the right side of an answer whose left side is the formula that the question asks for; else None.

    To "Find $(\log_2 x)^2$ if ...", `(\log_2 x)^2 = 27` states 27, though elsewhere it is an unsolved equation.
    """
    left, _, right = text.strip("$ ").partition("=")
    if not left or stated_value(text) is not None or stated_value(right, may_branch=True) is None:
        return None
    left, question = (_SPACING.sub("", part) for part in (left, question))
    asked = rf"(?i:{_ASKING})(?:\$\$?|\\[(\[]){re.escape(left)}(?:\$|\\[)\]]|[.?])"
    return right.strip() if re.search(asked, question) else None


def _has_names(side: str) -> bool:
    """Return whether there is more on a side than numbers, as in `80 + 9`."""
    return bool(_NAME.search(_COMMAND.sub(" ", _GREEK.sub(" x ", side))))


def _is_quantity(side: str) -> bool:
    """Return whether a side can be what a problem asks for, rather than an equation's side that has to be solved."""
    if _SQUARED_DISTANCE.fullmatch(side) or _REMAINDER.match(side) or _SUM.match(side):
        return True
    bare = _GREEK.sub(" x ", _BARS.sub(" S ", side))
    bare = _CALLED.sub("", _FUNCTION.sub(" S ", _SUBSCRIPT.sub("", bare)))
    names = _NAME.findall(_COMMAND.sub(" ", bare))
    if not names or bare.startswith("-") or re.search(r",|;|\\sqrt|\bnot\b", bare):
        return False
    if not re.search("[0-9!]", bare):
        return True
    # Numbers may be factors and powers in a sum of two quantities, `10a + b`: beside one of them, `2x`, they hide it.
    terms = [term for term in re.split(r"[+-]", bare) if term.strip()]
    return len(terms) > 1 and len(set(names)) > 1 and all(map(_has_names, terms))


def _no_other_number(side: str, value: str) -> bool:
    plain = [text.replace(",", "").rstrip(".") for text in (side, value)]
    return not all(map(_NUMBER.fullmatch, plain)) or float(plain[0]) == float(plain[1])


def _contains_itself(name: str, value: str) -> bool:
    """Return whether a name stands in its own value, as in x = 2x + 3."""
    return bool(re.fullmatch("[A-Za-z]", name)) and name in _NAME.findall(_COMMAND.sub(" ", re.sub(r"\d", " ", value)))


def _outside_brackets(text: str) -> str:
    """Return the text with blanks for what stands in brackets of any kind."""
    depth, kept = 0, []
    for character in text:
        depth -= character in ")]}" and depth > 0
        kept.append(" " if depth else character)
        depth += character in "([{"
    return "".join(kept)
