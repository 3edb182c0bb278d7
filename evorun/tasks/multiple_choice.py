"""Multiple choice: option letters, the reply's schema, and the reading of an answer."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from string import ascii_uppercase
from typing import Any

from evorun.tasks.boxes import boxes
from evorun.tasks.corrections import settled
from evorun.tasks.json_text import read_object

_WRAPPER = re.compile(r"\\(?:boxed|text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")
_LEAD = re.compile(r"^(?:the\s+)?(?:final\s+)?(?:answer|option|choice|solution)(?:\s+is)?\s*:?\s+", re.IGNORECASE)
_DECORATION = " \t\r\n*$`\"'"
_BARE = re.compile(r"[(\[]?([A-Za-z])[)\].:]{0,2}")
_LABELLED = re.compile(r"[(\[]?([A-Za-z])[)\].:]{1,2}\s*(\S.*)", re.DOTALL)
_LONE_CAPITAL = re.compile(r"(?<![A-Za-z0-9\\])([A-Z])(?![A-Za-z0-9'])")
# Names that models give to the key `solution`, beside its own
_KEYS = ("solution", "answer", "final_answer", "choice", "option")
_STATED = re.compile(rf'"({"|".join(_KEYS)})"\s*:\s*"([^"]{{0,80}})"', re.IGNORECASE)

# A letter counts as a final one only where the text commits to it: after "answer is"/"Answer:", in a box, or alone
# on the last line. A capital that a sentence goes on from ("the answer is A Cauchy ...") is none.
_COMMITTED = re.compile(
    r"(?i:\bans(?:wer)?(?:\s+(?:letter|choice|option))?|\boutput|\bsolution"
    r"|\b(?:best|correct|right)\s+(?:option|choice|letter))"
    r"\s*(?i:\b(?:is|(?:would|must|should)\s+be)\b(?:\s+(?:therefore|clearly))?\s*+:?+|[:=\u2013\u2014]|-\s)[\s*_$\"'`]*"
    r"(?i:(?:option|choice)\s+)?(?:\\boxed\s*\{)?(?:\\text\s*\{)?"
    r"[(\[]?([A-Z])(?=[ \t]*(?:$|[\n).\],:;!*_}$\"`(]|because\b|since\b))"
)
# Weaker words count only where there are no such: a reasoning has them too
_CHOSEN = re.compile(
    r"(?i:(?<!not )(?<!n't )(?<!never )\b(?:choose|select|pick|go\s+with|match(?:es)?|corresponds\s+to)\s+"
    r"(?:the\s+)?(?:option|choice|answer)?)[\s*_$]*[(\[]?([A-Z])(?=[)\]*_$]*(?:[.,;]|\s*$|\s*\n))"
    r"|(?i:\b(?:so|thus|hence|therefore|it's|it\s+is),?\s+(?:option\s+)?)[*_$]*[(\[]?([A-Z])(?=[)\]*_$]*\.?[*_]*\s*$)"
    r"|(?:(?i:\b(?:option|choice))[\s*_$]+|(?<![\w'] )(?<!\w))[(\[]?([A-Z])[)\]*_$]*\s+"
    r"(?i:is\s+(?:the\s+)?(?:correct|right|best|answer))"
)
_ANSWER_IN_WORDS = re.compile(r"\banswer(?:\s+is\b|:)[\s*_$:]*([^\n]{1,200})", re.IGNORECASE)
_LONE_LETTER = re.compile(r"[(\[]{0,2}([A-Z])[)\].]{0,2}")
_TAG = re.compile(r"</?[a-z]{1,20}>")


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
    letter that it commits to ("the answer is (C)", a box, a letter alone on the last line, an option's text), and it
    must commit to a single one, or take back those before it (`settled`). Otherwise raises ValueError, which starts
    with its kind: `no_json`, `no_solution`, `not_an_option` or `ambiguous`.
    """
    reply = read_object(text)
    if reply is not None:
        reply = {str(key).lower(): value for key, value in reply.items()}
        # Braces in prose are no reply: `{1, 2}`, `\\frac{1}{2}`.
        reply = reply if not reply or not {"reasoning", *_KEYS}.isdisjoint(reply) else None
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
    texts = _with_text(value, options) or _with_text(plain, options)
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
    key = next((key for key in _KEYS if key in reply), None)
    if key is None:
        return None, "no_solution: the JSON object has no key 'solution'"
    value = reply[key]
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None, f"not_an_option: expected a letter, got {_shown(repr(value))}"
    # Several objects in one text, as when a reply is started over: they must agree, or the last one be a correction.
    choice_of = cache(lambda one: read_choice(one, options))
    given = [(found.start(), choice_of(found[2])[0]) for found in _STATED.finditer(text) if found[1].lower() == key]
    stated = [(begin, letter) for begin, letter in given if letter]
    if not stated:
        return choice_of(str(value))
    letter = settled(text, stated)
    if letter is None:
        return None, f"ambiguous: the text gives the solutions {', '.join(sorted({letter for _, letter in stated}))}"
    return letter, None


def _committed_letter(text: str, options: Sequence[str]) -> tuple[str | None, str | None]:
    in_range = letters(len(options))
    # All commitments count, wherever they are: a text that commits to two letters, and corrects neither, has no answer.
    chosen = [(one.start(), one[one.lastindex or 1]) for one in _CHOSEN.finditer(text)]
    found = sorted(_commitments(text, options)) or chosen
    if not found:
        return None, "no_json: neither a JSON object nor a plainly stated option letter"
    letter = settled(text, found)
    if letter is None:
        return None, f"ambiguous: the text commits to {', '.join(sorted({letter for _, letter in found}))}"
    return (letter, None) if letter in in_range else (None, f"not_an_option: expected one of {in_range}, got {letter}")


def _commitments(text: str, options: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield where a text commits to a letter, or to an option's text, and the letter."""
    yield from ((one.start(), one[1]) for one in _COMMITTED.finditer(text))
    for box in boxes(text):
        letter, _ = read_choice(text[box.content], options)
        if letter:
            yield box.start, letter
    for said in _ANSWER_IN_WORDS.finditer(text):
        yield from ((said.start(), letter) for letter in _with_text(said[1].strip(_DECORATION + "."), options))
    body = _WRAPPER.sub(r"\1", _TAG.sub("", text)).rstrip(_DECORATION)
    lines = [line.strip(_DECORATION + "_#>-") for line in body.split("\n")]
    # A lower-case letter is one only where it is the whole reply.
    if lone := _LONE_LETTER.fullmatch(lines[-1] if len(lines) > 1 else lines[-1].upper()):
        yield len(text), lone[1]
    # "C. 18 dollars" alone on the last line; where other options stand so too, the text repeats the question.
    labelled = [
        found for line in lines if (found := _LABELLED.fullmatch(line)) and found[1] in _with_text(found[2], options)
    ]
    if len({found[1] for found in labelled}) == 1 and labelled[-1].string == lines[-1]:
        yield len(text), labelled[-1][1]


def _with_text(words: str, options: Sequence[str]) -> list[str]:
    """Return the letters of the options that read so."""
    return [letter for letter, option in zip(ascii_uppercase, options, strict=False) if _same(option, words)]


def _mentioned(text: str, in_range: str) -> set[str]:
    return {letter for letter in _LONE_CAPITAL.findall(text) if letter in in_range}


def _same(left: str, right: str) -> bool:
    return " ".join(left.split()).casefold() == " ".join(right.split()).casefold()


def _shown(value: str, width: int = 40) -> str:
    return repr(value if len(value) <= width else value[: width - 3] + "...")
