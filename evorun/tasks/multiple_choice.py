"""Multiple choice: option letters, the schema of replies, and the parsing of answers."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from string import ascii_uppercase
from typing import Any

from evorun.tasks.assertions import is_asserted, is_denied, is_taken_back
from evorun.tasks.boxes import boxes
from evorun.tasks.conclusions import emphasized
from evorun.tasks.corrections import settled
from evorun.tasks.json_text import object_schema, read_object
from evorun.tasks.math_contest.equations import stated_value
from evorun.tasks.math_contest.reading import canonical, read_integer

MAX_OPTION_CHARS = 300
"""Maximum characters of a text to compare with options by meaning (ours)."""

# Maximum sentence ends to try as the end of an answer in words
_MAX_ENDS = 4

_WRAPPER = re.compile(r"\\(?:boxed|text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")
_LEAD = re.compile(r"^(?:the\s+)?(?:final\s+)?(?:answer|option|choice|solution)(?:\s+is)?\s*:?\s+", re.IGNORECASE)
_DECORATION = " \t\r\n*$`\"'"
_BARE = re.compile(r"[(\[]?([A-Za-z])[)\].:]{0,2}")
_LABELLED = re.compile(r"[(\[]?([A-Za-z])(?:[)\].:]{1,2}\s*|\s+(?:[-\u2013\u2014]\s+|(?=\()))(?!\s)(\S.*)", re.DOTALL)
_LONE_CAPITAL = re.compile(r"(?<![A-Za-z0-9\\])([A-Z])(?![A-Za-z0-9'])")
# `solution`, and other keys that models use for it
_KEYS = ("solution", "answer", "final_answer", "choice", "option")
_REFUSED = re.compile(r"(?:is|was)\s+(?:not|wrong|incorrect|false)\b|not\b|wrong\b|incorrect\b", re.IGNORECASE)
_STATED = re.compile(rf'"({"|".join(_KEYS)})"\s*:\s*"([^"]{{0,80}})"', re.IGNORECASE)

# A letter counts as final only where the text commits to it: after "answer is"/"Answer:", in a box, or alone on the
# last line. A capital that begins a phrase ("the answer is A Cauchy ...") does not count. A small letter needs brackets
# or emphasis, or must not be the article "a".
_MARKS = r"[\s*_$\"'`]*"
_LETTER = r"[(\[{]?(?:([A-Z])|(?<=[(\[{*])([a-z])|([b-hj-z]))(?![A-Za-z0-9])"
_COMMITTED = re.compile(
    r"(?i:\bans(?:wer)?(?:\s+(?:letter|choice|option))?|\boutput|\bsolution"
    r"|\b(?:best|correct|right)\s+(?:option|choice|letter))"
    r"\s*(?i:\b(?:is|(?:would|must|should)\s+be)\b(?:\s+(?:therefore|thus|clearly|definitely|indeed|most\s+likely|likely|probably))?\s*+:?+|[:=\u2013\u2014]|-\s)"
    + _MARKS
    + r"(?i:(?:option|choice)\s+)?(?:\\boxed\s*\{)?(?:\\(?:text|textbf|mathrm|mathbf)\s*\{)?"
    + _LETTER
    + r"(?=[ \t]*(?:$|[\n).\],:;!*_}$\"`(\u2013\u2014]|because\b|since\b|-\s))"
)
# Weaker words count only after the last firm commitment, since reasoning contains them, too
_CHOSEN = re.compile(
    r"(?i:(?<!not )(?<!n't )(?<!never )\b(?:choose|select|pick|go(?:ing)?\s+with|match(?:es)?|corresponds\s+to"
    r"|leaves|leaving|should\s+be|(?<=so )only)\s+(?:us\s+with\s+)?(?:only\s+)?(?:the\s+)?"
    r"(?:option|choice|answer)?)[\s*_$]*"
    r"[(\[]?([A-Z])(?=[)\]*_$]*(?:[.,;(]|\s*$|\s*\n|\s+(?i:as\s+the|is\s+left|remains|because|since)\b))"
    r"|(?i:\b(?:so|thus|hence|therefore|it's|it\s+is),?\s+(?:it\s+is\s+|it's\s+)?(?:option\s+)?)[*_$]*[(\[]?([A-Z])"
    r"(?=[)\]*_$]*\.?[*_]*\s*$)"
    r"|(?:(?i:\b(?:option|choice|only|so|thus|hence|therefore)),?[\s*_$]+"
    r"|(?<![\w'] )(?<!\w))[(\[]?([A-Z])[)\]*_$]*\s+(?:\([^()\n]{1,100}\)\s+)?"
    r"(?i:it\s+is\b|is\s+(?:the\s+)?(?:only\s+)?(?:correct|right|best|answer)\b|remains\b|is\s+(?:the\s+only\s+(?:one|option|choice)\s+)?left\b"
    r"|is\s+the\s+only\s+(?:possible|remaining|one|option|choice))"
)
# The same in other languages, and GSM8K's mark; negations and suppositions precede them there, too
_ELSEWHERE = re.compile(
    r"(?:(?<!\u4e0d)(?:\u6545|\u5e94|\u5e94\u8be5|\u56e0\u6b64|\u6240\u4ee5|\u6211|(?:^|(?<=[\s\u3002\uff0c\uff1b,;])))\u9009(?:\u62e9)?"
    r"|\u7b54\u6848(?:\u5e94\u8be5|\u5e94)?(?:\u662f|\u4e3a|\u9009)?)\s*[:\uff1a]?\s*(?:\u9009\u9879)?"
    r"|(?i:\b(?:la\s+(?:respuesta|risposta|r\u00e9ponse)|la\s+bonne\s+r\u00e9ponse"
    r"|die\s+(?:richtige\s+|korrekte\s+)?antwort|a\s+resposta)"
    r"(?:\s+(?:correcta|final|corretta|finale|correcte|correta))?\s*(?:es|\u00e8|est|ist|\u00e9)\b:?"
    r"(?:\s+(?:(?:la|l'|l\u2019|die|a)\s*)?(?:opci\u00f3n|opzione|option|alternativa|r\u00e9ponse))?)"
    r"|(?:^|\s)####(?=\s*[(\[]?[A-Z][)\]]?\.?\s*(?:\n|\Z))"
)
_ELSEWHERE_LETTER = re.compile(r"[\s*_$\uff08(\[]*(?:\\boxed\{)?([A-Z])(?![A-Za-z0-9])(?!['\u2019])")
_ELSEWHERE_SUPPOSED = re.compile(
    r"\b(?:si|wenn|falls|seg\u00fan)\b[^.\n]*\Z|\u9519\u8bef\u7684?\Z"
    r"|(?:\u5982\u679c|\u82e5|\u5047\u5982|\u5047\u8bbe)(?:(?!\u6240\u4ee5|\u56e0\u6b64|\u6545)[^\u3002\n])*\Z",
    re.IGNORECASE,
)
_ELSEWHERE_MORE = re.compile(
    r"[\s*_)\uff09\]]*(?:[\u3001,\uff0c/]|\u548c|\u6216|\u4e0e|\b[yoeu]\b|\bou\b|\bet\b|\boder\b|\bund\b)"
    r"\s*[(\uff08]?([A-Z])(?![A-Za-z0-9])"
)
# "the third option, C": the ordinal must match the letter
_PLACE = re.compile(
    r"(?i:(?<!not )(?<!n't )(?<!never )\b(?:choose|select|pick|go\s+with|is))"
    r"\s+(?i:the\s+(first|second|third|fourth|fifth|last)\s+(?:option|choice|answer|one))"
    r"[,:\s]*[*_]*[(\[]?([A-Z])(?=[)\]*_]*(?:[.,;]|\s*\Z|\s*\n))"
)
_PLACES = ("first", "second", "third", "fourth", "fifth")
# "The sum is 2, which is option C": the value must match the letter
_WITH_VALUE = re.compile(
    r"[^\n]*(?P<verb>\b(?i:is|are|equals?|we\s+(?:get|find|obtain|have))\b|=)\s*"
    r"(?:(?i:therefore|thus|exactly|to|equal\s+to)\s+)?"
    r"(?P<value>[^\s=;,][^\n=;]{0,100}?)"
    r"(?:,?\s+(?i:(?:which|that)\s+is,?|i\.e\.,?|namely)\s+|,\s+|\s+\()(?i:(?:answer\s+)?(?:option|choice))\s+"
    r"[(\[*_$]*(?P<letter>[A-Z])[)\]*_$]*[.)*_]*\s*\Z"
)
# A letter that is a term, or the subject of a sentence about an object of that name
_TERM = re.compile(
    r"[)\]}*_$ ]*(?:\+\s*[(\[]?[A-Z0-9]|\u00d7|\\cdot|\\times|\^|-\s*[(\[]?[A-Z][)\]]?\s*(?:[=+-]|\.?\s*\Z))"
)
_SUBJECT = re.compile(
    r"[)\]}*_$ ]*\s(?:is|has|was|are|commutes|acts|satisfies|divides|maps)\s(?=[a-z])"
    r"(?!(?:therefore |thus |clearly |indeed )?(?:the|my|our|correct|right|true|best|answer|what|chosen|selected)\b)"
)
_ANSWER_IN_WORDS = re.compile(
    r"\b(?:answer(?:\s+is\b|:)|(?:it|answer|that)\s+(?:should|must)\s+be\b)[\s*_$:]*(?=([^\n]{1,200}))", re.IGNORECASE
)
# The end of an answer in words, if its line continues
_WORDS_END = re.compile(r"[.;!?]\s|,\s|\s(?:because|since|as|which)\b|\s[(\u2013\u2014]")
_LONE_LETTER = re.compile(r"[(\[]{0,2}([A-Z])[)\].]{0,2}")
_STANDS_ALONE = re.compile(r"[)\]}*_$`\"']*(?:\s*$|\s*\n|[.,;]|\s+(?:because|since)\b)")
# Separates letters between which a text does not decide
_OR = "/"
_TAG = re.compile(r"</?[a-z]{1,20}>")
# Further letters after the first one: "A, B and C"
_ENUMERATED = re.compile(
    r"[)\]*_$}]*\s*(?:,\s*(?:and\s+|or\s+)?|and\s+|or\s+|/|&)\s*(?:(?i:option|choice)\s+)?[(\[*_$]*([A-Z])(?![A-Za-z0-9'])"
)
# The same as a list: "The answer is:", "A. 12" and "D. 20" on lines of their own
_NEXT_LINE = re.compile(r"[)\].:][^\n]{0,300}\n[\s*_-]*[(\[]?([A-Z])[)\].:]\s")
# The text of the option that a letter names: "(A) 108", "A (108)", "A. 108", "A - 108"
_BEHIND = re.compile(r"[)\].:*_}$]*[ \t]*(?:[(:\u2013\u2014=]|-[ \t])?[ \t]*[*_$]*([^\n]{1,200})")
# The letter of the option whose text comes first: "108 (option D)"
_BESIDE = re.compile(r"\((?:(?i:option|choice)\s+)?([A-Z])\)|\b(?i:option|choice)\s+\(?([A-Z])\b")
_CONCLUDED = re.compile(
    r"(?:(?:so|thus|hence|therefore),?\s+(?:it\s+is\s+|it's\s+)?(?:the\s+)?(?:(?:option|choice)\s+)?|(?:option|choice)\s+)(\S.*)",
    re.IGNORECASE,
)
_LETTER_ALONE = re.compile(r"[(\[{$`\"']*[A-Z][)\]}$*`\"']*[.,;]?[*`\"']*(?:\s|$)")
_FIRST = re.compile(r"([A-Z])(?:[.):,]|\s+[-\u2013\u2014])?\s+(?i:because|since|explanation|reason(?:ing)?\b)")


def letters(count: int) -> str:
    """Return the letters of `count` options: 'ABCD' for four."""
    return ascii_uppercase[:count]


def format_options(options: Sequence[str]) -> str:
    """Format the options for a prompt, one per line: `A. text`."""
    return "\n".join(f"{letter}. {option}" for letter, option in zip(ascii_uppercase, options, strict=False))


def option_text(answer: str, options: Sequence[str]) -> str:
    """Return the text of the option with this letter."""
    return options[ascii_uppercase.index(answer)]


def answer_schema(count: int, reasoning_chars: int) -> dict[str, Any]:
    """Return the schema of a reply to a question with `count` options, reasoning first (Duel-Evolve, B.1.1)."""
    return object_schema(
        reasoning={"type": "string", "maxLength": reasoning_chars},
        solution={"type": "string", "enum": list(letters(count))},
    )


def read_letter(text: str, options: Sequence[str]) -> str:
    """Return the letter that a reply to a multiple-choice question gives.

    A JSON object's `solution` decides; near-JSON is repaired. Only a text without a JSON object is searched for a
    committed letter ("the answer is (C)", a box, a letter alone on the last line, an option's text). It must commit to
    a single letter, or take back earlier ones (`settled`). Otherwise raises ValueError, which begins with its kind:
    `no_json`, `no_solution`, `not_an_option`, `ambiguous` or `withdrawn`.
    """
    reply = read_object(text, *_KEYS) or read_object(text, "reasoning")
    answer, error = _committed_letter(text, options) if reply is None else _stated_choice(text, reply, options)
    if answer is None:
        raise ValueError(error)
    return answer


def read_choice(value: str, options: Sequence[str]) -> tuple[str | None, str | None]:
    r"""Return (letter, None) for a value that means one option, or (None, error).

    Accepted: `b`, `B.`, `(B)`, `Option B`, `\boxed{B}`, `B. text of the option`, and the text of exactly one option.
    """
    # Removes markup, then LaTeX wrappers (at most two levels), then a lead such as "Answer:".
    unwrapped = _WRAPPER.sub(r"\1", _WRAPPER.sub(r"\1", value)).strip(_DECORATION)
    plain = _LEAD.sub("", unwrapped).strip(_DECORATION)
    in_range = letters(len(options))
    # Letters take precedence over texts: even if an option reads "A", the letter A means the first option.
    bare = _BARE.fullmatch(plain)
    if bare and bare[1].upper() in in_range:
        return bare[1].upper(), None
    texts = _match_text(value, options) or _match_text(plain, options)
    if len(texts) == 1:
        return texts[0], None
    labelled = _LABELLED.fullmatch(plain)
    if labelled and labelled[1].upper() in in_range:
        # The text after the letter must not be another option's, or name another letter: "B. or rather C".
        letter, rest = labelled[1].upper(), labelled[2]
        meant = _match_beginning(rest, options)
        if letter in meant:
            return letter, None
        if meant:
            return None, f"ambiguous: option {letter} does not read {_shorten(rest)}, another one does"
        if _mentioned(rest, in_range) - {letter} or _REFUSED.match(rest):
            return None, f"ambiguous: {_shorten(f'{letter}. {rest}')} names more than one option"
        return letter, None
    if len(texts) > 1 or len(_mentioned(plain, in_range)) > 1:
        return None, f"ambiguous: {_shorten(value)} means more than one option"
    return None, f"not_an_option: expected one of {', '.join(in_range)}, got {_shorten(value)}"


def _stated_choice(text: str, reply: Mapping[str, Any], options: Sequence[str]) -> tuple[str | None, str | None]:
    key = next((key for key in _KEYS if key in reply), None)
    if key is None:
        return None, "no_solution: the JSON object has no key 'solution'"
    value = reply[key]
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None, f"not_an_option: expected a letter, got {_shorten(repr(value))}"
    # Several objects, as when a reply starts over, must agree, or the last one must be a correction.
    read_cached = cache(lambda value: read_choice(value, options))
    given = [(match.start(), read_cached(match[2])[0]) for match in _STATED.finditer(text) if match[1].lower() == key]
    stated = [(begin, letter) for begin, letter in given if letter]
    if not stated:
        return read_cached(str(value))
    letter = settled(text, stated)
    if letter is None:
        return None, f"ambiguous: the text gives the solutions {', '.join(sorted({letter for _, letter in stated}))}"
    return letter, None


def _committed_letter(text: str, options: Sequence[str]) -> tuple[str | None, str | None]:
    in_range = letters(len(options))
    # All commitments count, wherever they are: a text that commits to two letters without a correction has no answer.
    choices = sorted(_commitments(text, options))
    firm = max([at for at, _ in choices], default=-1)
    chosen = [*_find_letters(_CHOSEN, text, options), *_by_ordinal(text, options), *_by_value(text, options)]
    choices += sorted(choice for choice in chosen if choice[0] > firm)
    choices = choices or _emphasized(text, options)
    # Only a final "B or C" counts; a later choice resolves an earlier one.
    choices = [choice for at, choice in enumerate(choices, 1) if _OR not in choice[1] or at == len(choices)]
    if not choices:
        return None, "no_json: neither a JSON object nor a plainly stated option letter"
    letter = settled(text, choices)
    if is_taken_back(text, choices[-1][0]):
        return None, "withdrawn: the text takes its answer back and gives no other"
    if letter is None or _OR in letter:
        return None, f"ambiguous: the text commits to {', '.join(sorted({letter for _, letter in choices}))}"
    return (letter, None) if letter in in_range else (None, f"not_an_option: expected one of {in_range}, got {letter}")


def _commitments(text: str, options: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the position and letter of each commitment to a letter or an option's text."""
    yield from _find_letters(_COMMITTED, text, options)
    yield from _in_other_languages(text)
    for box in boxes(text):
        letter, _ = read_choice(text[box.content], options)
        if (
            letter
            and _BARE.fullmatch(text[box.content].strip())
            and (_SUBJECT.match(text, box.end) or _TERM.match(text, box.end))
        ):
            continue
        if letter and is_asserted(text, box.start, box.end) and not is_denied(text, box.start, box.end):
            yield box.start, letter
    for match in _ANSWER_IN_WORDS.finditer(text):
        if is_asserted(text, match.start(), match.start(1)) and not _LETTER_ALONE.match(match[1]):
            meant = _match_beginning(match[1], options)
            yield from ((match.start(), letter) for letter in meant)
            yield from ((match.start(), named[1] or named[2]) for named in _BESIDE.finditer(match[1]) if meant)
    body = _WRAPPER.sub(r"\1", _TAG.sub("", text)).strip(_DECORATION)
    lines = [line.strip(_DECORATION + "_#>-") for line in body.split("\n")]
    # A lower-case letter counts only as the whole reply.
    for at, line in ((0, lines[0]), (len(text), lines[-1])):
        if lone := _LONE_LETTER.fullmatch(line if len(lines) > 1 else line.upper()) or (at == 0 and _FIRST.match(line)):
            yield at, lone[1]
    # A whole reply may be an option's text, and "So option C (18 dollars)" may end one.
    concluded = _CONCLUDED.fullmatch(lines[-1])
    if concluded or len(lines) == 1:
        plain = (concluded[1] if concluded else lines[0]).rstrip(".")
        lettered_text = _LABELLED.fullmatch(plain) or (_BARE.fullmatch(plain) if concluded else None)
        letter = lettered_text[1].upper() if lettered_text else ""
        meant = _match_text(lettered_text[2] if lettered_text and lettered_text.re is _LABELLED else plain, options)
        if len(meant) == 1 and letter in ("", *meant):
            yield len(text), meant[0]
        elif lettered_text and lettered_text.re is _BARE:
            yield len(text), letter
    # "C. 18 dollars" alone on the last line; if other options appear in the same way, the text repeats the question.
    labelled = [
        found
        for line in lines
        if (found := _LABELLED.fullmatch(line)) and found[1].upper() in _match_beginning(found[2], options)
    ]
    if len({found[1].upper() for found in labelled}) == 1 and labelled[-1].string in (lines[0], lines[-1]):
        yield (0 if labelled[-1].string == lines[0] else len(text)), labelled[-1][1].upper()


def _find_letters(pattern: re.Pattern[str], text: str, options: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the letters that a pattern finds and the text asserts, with any further letters beside them."""
    in_range = letters(len(options))
    for match in pattern.finditer(text):
        group = match.lastindex or 1
        letter, end = match[group].upper(), match.end(group)
        # The small letter of a function or a part, as in "y(t)" or "(a) the speed", does not count.
        if match[group].islower() and not (letter in in_range and _STANDS_ALONE.match(text, end)):
            continue
        if _TERM.match(text, end) or not is_asserted(text, match.start(), end):
            continue
        more = _ENUMERATED.match(text, end) or ("\n" in match[0] and _NEXT_LINE.match(text, end))
        yield match.start(), letter + _OR + more[1] if more and more[1] in in_range else letter
        # A letter with the text of another option makes two answers.
        behind = _BEHIND.match(text, end)
        if behind and letter in in_range and not _spaced(behind[1]).startswith(_spaced(option_text(letter, options))):
            meant = _match_beginning(behind[1], options)
            yield from ((match.start(), other) for other in meant if letter not in meant)


def _emphasized(text: str, options: Sequence[str]) -> list[tuple[int, str]]:
    """Return the letters of the bold texts in the last sentence, if all of them mean options."""
    meant = [read_choice(value.text, options)[0] for value in emphasized(text)]
    return [(len(text), letter) for letter in meant if letter] if all(meant) else []


def _in_other_languages(text: str) -> Iterator[tuple[int, str]]:
    """Yield the letters to which a text commits in another language, or after GSM8K's mark."""
    for match in _ELSEWHERE.finditer(text):
        letter = _ELSEWHERE_LETTER.match(text, match.end())
        if letter is None or _ELSEWHERE_SUPPOSED.search(text, max(0, match.start() - 200), match.start()):
            continue
        more = _ELSEWHERE_MORE.match(text, letter.end())
        yield match.start(), letter[1] + _OR + more[1] if more else letter[1]


def _by_ordinal(text: str, options: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the letters that a text names with their ordinals: "the third option, C"."""
    for match in _PLACE.finditer(text):
        place = len(options) - 1 if match[1].lower() == "last" else _PLACES.index(match[1].lower())
        if letters(len(options))[place : place + 1] == match[2] and is_asserted(text, match.start(1), match.end()):
            yield match.start(), match[2]


def _by_value(text: str, options: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the letter at the end of a text that follows its option's text: "The sum is 2, which is option C"."""
    last_line = text.rstrip().rfind("\n") + 1
    match = _WITH_VALUE.match(text, max(last_line, len(text) - MAX_OPTION_CHARS))
    if (
        match
        and _match_text(match["value"].strip(_DECORATION), options) == [match["letter"]]
        and is_asserted(text, match.start("verb"), match.end())
    ):
        yield match.start("verb"), match["letter"]


def _match_beginning(words: str, options: Sequence[str]) -> list[str]:
    """Return the letters of the options that the words match, in whole or up to the end of a sentence."""
    ends = [len(words), *(match.start() for match in _WORDS_END.finditer(words))]
    readings = (_match_text(words[:end].strip(_DECORATION + ".;!()"), options) for end in ends[:_MAX_ENDS])
    return next((reading for reading in readings if reading), [])


def _match_text(words: str, options: Sequence[str]) -> list[str]:
    """Return the letters of options with equal text, else with equal meaning, else with an equal integer."""
    for reading in (_spaced, _meaning, _number):
        meant = reading(words)
        alike = [letter for letter, option in zip(ascii_uppercase, options, strict=False) if reading(option) == meant]
        if meant and alike:
            return alike
    return []


def _mentioned(text: str, in_range: str) -> set[str]:
    return {letter for letter in _LONE_CAPITAL.findall(text) if letter in in_range}


def _spaced(text: str) -> str:
    return " ".join(text.split()).casefold().rstrip(".")


@lru_cache(maxsize=4096)  # the options of a question are compared many times
def _meaning(text: str) -> str:
    if len(text) > MAX_OPTION_CHARS:
        return ""
    return canonical(stated_value(text) or text).casefold()


@lru_cache(maxsize=4096)
def _number(text: str) -> str:
    """Return the integer in a text that has at most a unit beside it; empty where there is none."""
    number = read_integer(text) if len(text) <= MAX_OPTION_CHARS else None
    return "" if number is None else str(number)


def _shorten(value: str, width: int = 40) -> str:
    return repr(value if len(value) <= width else value[: width - 3] + "...")
