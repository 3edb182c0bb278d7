"""Multiple choice: option letters, the reply's schema, and the reading of an answer."""

import re
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from evorun.tasks.json_text import read_object

_WRAPPER = re.compile(r"\\(?:boxed|text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")
_LEAD = re.compile(r"^(?:the\s+)?(?:final\s+)?(?:answer|option|choice|solution)(?:\s+is)?\s*:?\s+", re.IGNORECASE)
_DECORATION = " \t\r\n*$`\"'"
_BARE = re.compile(r"[(\[]?([A-Za-z])[)\].:]{0,2}")
_LABELLED = re.compile(r"[(\[]?([A-Za-z])[)\].:]{1,2}\s*(\S.*)", re.DOTALL)
_LONE_CAPITAL = re.compile(r"(?<![A-Za-z0-9\\])([A-Z])(?![A-Za-z0-9'])")
_STATED = re.compile(r'"solution"\s*:\s*"([^"]{0,80})"')

# A letter counts as a final one only where the text commits to it: after "answer is"/"Answer:", in a box, or alone
# on the last line. A capital that a sentence goes on from ("the answer is A Cauchy ...") is none.
_COMMITTED = re.compile(
    r"(?i:\banswer(?:\s+(?:letter|choice|option))?|\bsolution|\b(?:best|correct|right)\s+(?:option|choice))"
    r"\s*(?i:\bis\b\s*+:?+|:)[\s*_$\"'`]*(?i:\boption\s+)?(?:\\boxed\s*\{)?(?:\\text\s*\{)?"
    r"[(\[]?([A-Z])(?=[ \t]*(?:$|[\n).\],:;!*_}$\"`(]|because\b|since\b))"
)
_BOXED = re.compile(r"\\boxed\s*\{\s*+(?:\\text\s*\{\s*+)?\(?([A-Z])\)?\s*\}")
_LONE_LETTER = re.compile(r"[\s*_$`]*[(\[]?([A-Z])[)\].]?[\s*_$`]*")


def letters(count: int) -> str:
    """Return the letters of `count` options: 'ABCD' for four."""
    return ascii_uppercase[:count]


def lettered(options: Sequence[str]) -> str:
    """Return the options as a prompt shows them, one a line: `A. text`."""
    return "\n".join(f"{letter}. {option}" for letter, option in zip(ascii_uppercase, options, strict=False))


def option_text(answer: str, options: Sequence[str]) -> str:
    """Return the text of the option with this letter."""
    return options[ascii_uppercase.index(answer)]


def answer_schema(count: int, reasoning_chars: int) -> dict[str, Any]:
    """Return the schema of a reply to a question of `count` options: reasoning first (Duel-Evolve, B.1.1)."""
    return {
        "type": "object",
        "properties": {
            "reasoning": {"type": "string", "maxLength": reasoning_chars},
            "solution": {"type": "string", "enum": list(letters(count))},
        },
        "required": ["reasoning", "solution"],
        "additionalProperties": False,
    }


def read_letter(text: str, options: Sequence[str]) -> str:
    """Return the letter that a reply to a multiple-choice question gives.

    A JSON object's `solution` decides; near-JSON is repaired. Only a text without any JSON object is searched for a
    letter that it commits to ("the answer is (C)", a box, a letter alone on the last line), and it must commit to a
    single one. Otherwise raises ValueError, which starts with its kind: `no_json`, `no_solution`, `not_an_option` or
    `ambiguous`.
    """
    reply = read_object(text)
    answer, error = _committed_letter(text, options) if reply is None else _stated_choice(text, reply, options)
    if answer is None:
        raise ValueError(error)
    return answer


def read_choice(value: str, options: Sequence[str]) -> tuple[str | None, str | None]:
    r"""Return (letter, None) for a value that means one option, or (None, error).

    Understood: `b`, `B.`, `(B)`, `Option B`, `\boxed{B}`, `B. text of the option`, and the text of exactly one option.
    """
    # Markup goes first, then LaTeX wrappers (at most one inside another), then a lead such as "Answer:".
    unwrapped = _WRAPPER.sub(r"\1", _WRAPPER.sub(r"\1", value)).strip(_DECORATION)
    plain = _LEAD.sub("", unwrapped).strip(_DECORATION)
    in_range = letters(len(options))
    # A letter comes before an option's text: where an option reads "A", the letter A means the first option.
    bare = _BARE.fullmatch(plain)
    if bare and bare[1].upper() in in_range:
        return bare[1].upper(), None
    texts = [letter for letter, option in zip(in_range, options, strict=True) if _same(option, value)]
    if len(texts) == 1:
        return texts[0], None
    labelled = _LABELLED.fullmatch(plain)
    if labelled and labelled[1].upper() in in_range:
        # The text behind the letter must not be another option's, or name another letter: "B. or rather C".
        letter, rest = labelled[1].upper(), labelled[2]
        if _same(option_text(letter, options), rest):
            return letter, None
        if any(_same(option, rest) for option in options):
            return None, f"ambiguous: option {letter} does not read {_shown(rest)}, another one does"
        if _mentioned(rest, in_range) - {letter}:
            return None, f"ambiguous: {_shown(f'{letter}. {rest}')} names more than one option"
        return letter, None
    if len(texts) > 1 or len(_mentioned(plain, in_range)) > 1:
        return None, f"ambiguous: {_shown(value)} means more than one option"
    return None, f"not_an_option: expected one of {', '.join(in_range)}, got {_shown(value)}"


def _stated_choice(text: str, reply: Mapping[str, Any], options: Sequence[str]) -> tuple[str | None, str | None]:
    if "solution" not in reply:
        return None, "no_solution: the JSON object has no key 'solution'"
    value = reply["solution"]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None, f"not_an_option: expected a letter, got {_shown(repr(value))}"
    # Several objects in one text, as when a reply is started over: they must agree.
    choices = {one: read_choice(one, options) for one in {*_STATED.findall(text), str(value)}}
    stated = {choices[one][0] for one in _STATED.findall(text)} - {None}
    if len(stated) > 1:
        return None, f"ambiguous: the text gives the solutions {', '.join(sorted(map(str, stated)))}"
    return choices[str(value)]


def _committed_letter(text: str, options: Sequence[str]) -> tuple[str | None, str | None]:
    in_range = letters(len(options))
    # All commitments count, wherever they are: a text that commits to two letters has no answer.
    found = {letter.upper() for pattern in (_COMMITTED, _BOXED) for letter in pattern.findall(text)}
    last = _LONE_LETTER.fullmatch(text.rstrip().rsplit("\n", 1)[-1])
    found |= {last[1]} if last else set()
    if not found:
        return None, "no_json: neither a JSON object nor a plainly stated option letter"
    if len(found) > 1:
        return None, f"ambiguous: the text commits to {', '.join(sorted(found))}"
    letter = found.pop()
    return (letter, None) if letter in in_range else (None, f"not_an_option: expected one of {in_range}, got {letter}")


def _mentioned(text: str, in_range: str) -> set[str]:
    return {letter for letter in _LONE_CAPITAL.findall(text) if letter in in_range}


def _same(left: str, right: str) -> bool:
    return " ".join(left.split()).casefold() == " ".join(right.split()).casefold()


def _shown(value: str, width: int = 40) -> str:
    return repr(value if len(value) <= width else value[: width - 3] + "...")
