"""Reads the value at which a reply's last sentence arrives, where no value is labelled as the answer.

Only that sentence counts, and only if it gives a single value: in bold or code, as the last formula or number after a
word of conclusion or a quantity that the question asks for, under a label with such a quantity, or alone.
"""

import re
from typing import NamedTuple

from evorun.tasks.assertions import is_asserted, is_denied


class Value(NamedTuple):
    """A value and its position."""

    text: str
    start: int
    end: int


_TAIL_CHARS = 1000
"""Number of characters at the end of a reply to search (ours)."""
_COURTESY = re.compile(
    r"(?:\A|\n|(?<=[.!?*$])[ \t]+)[ \t]*(?:I hope|hope (?:this|that|it)|let me know|feel free|please let me know"
    r"|thank you"
    r"|thanks|q\.?e\.?d|done|(?:this|which) (?:agrees|matches|confirms|completes))\b(?![^\n]*(?:[0-9*$]"
    r"|n['\u2019]t\b|\b(?:not|but|except)\b))"
    r"[^\n]{0,200}\s*\Z|\s*[\u25a0\u25a1\u220e]\s*\Z",
    re.IGNORECASE,
)
_FENCED = re.compile(r"\n?[ \t]*(?P<mark>```|~~~)[a-z]{0,12}[ \t]*\n\s*(?P<value>[^\n`~]{1,200})\n[ \t]*(?P=mark)\s*\Z")
# A displayed formula continues the sentence before it
_DISPLAYED = re.compile(
    r"\s*(?:\$\$\s*([^$]{1,300}?)\s*\$\$|\\\[\s*(.{1,300}?)\s*\\\])(?=[ \t.*_]*(?:\n|\Z))", re.DOTALL
)
_SENTENCE_END = re.compile(r"[.!?][)*_\"'\u201d]*\s+(?![a-z])|\s*\n\s*|[\u3002\uff01]")
_FORMULA = r"\$[^$\n]{1,300}\$|\\\([^\n]{1,300}?\\\)"
_NUMBER = (
    r"[+-]?(?:[0-9][0-9,]{0,30}(?:\.[0-9]{1,30})?|\.[0-9]{1,30})(?:\s?/\s?[0-9]{1,30})?(?:\u00b0|\u03c0)?"
    r"(?![\w.,/*^=+-]*[0-9=])"
)

_BOLD = re.compile(
    r"(?P<star>\*{2,3}|__)(?=\S)(?P<starred>[^*\n]{1,200}?)(?<=\S)(?P=star)"
    r"|<(?P<tag>b|strong|u|mark)>(?P<tagged>[^<>\n]{1,200})</(?P=tag)>"
    r"|(?<!`)`(?P<code>[^`\n]{1,200})`(?!`)"
)
# Bold within a formula, which ends with it
_BOLD_SYMBOL = re.compile(
    r"\\(?:mathbf|textbf|boldsymbol|bm|bf)\s*\{(?P<value>(?:[^{}]|\{[^{}]*\}){1,200})\}(?=[\s.]*(?:\$|\\\)))"
)
_LEADS = (
    r"(?:so|thus|hence|therefore|consequently|accordingly|altogether|together|overall|finally|in (?:total|all"
    r"|conclusion|summary)"
    r"|as a result|it follows that|this (?:means|shows) that|\u2234|daher|folglich|insgesamt|donc"
    r"|por (?:lo )?tanto|quindi)"
)
_LEAD = re.compile(rf"[\s*_#>-]*(?:and\s+|it\s+)?{_LEADS}\b", re.IGNORECASE)
_VERBS = (
    r"(?:is|are|equals?|becomes?|(?:get|obtain|find|have|has|gives?|yields?|makes?)|(?:simplifies|comes|amounts"
    r"|reduces|evaluates) to"
    r"|given by|there (?:are|is)|ist|sind|es|son|est|sont|\u00e8|sono|lautet)"
)
_COMES_TO = re.compile(
    rf"(?:\b{_VERBS}|{_LEADS})\b[,:]?(?:\s+(?:then|thus|therefore|exactly|simply|equal to|just|indeed"
    rf"|precisely))?[\s:*_]*"
    rf"(?P<value>{_FORMULA}|{_NUMBER})(?:[ ]+(?!{_LEADS}\b)[^\W\d_]{{1,20}}){{0,5}}"
    r"(?:,? in (?:total|all)| \$\((?:[a-z], ?)+[a-z]\)\$)?[\s.!*_]*\Z",
    re.IGNORECASE,
)
# The count that the question asks for
_COUNTED = re.compile(
    r"[\s*_#>-]*(?:there\s+are|we\s+(?:have|get|find|obtain))(?:\s+(?:then|thus|therefore|exactly|just|precisely))?\s+",
    re.IGNORECASE,
)
_COUNT = r"(?:number of|how many) (?:(?!of )[\w-]+ ){0,3}"
_LABELLED = re.compile(
    rf"[\s*_#>-]*(?P<label>[^\W\d_](?:[^\W\d_]|[ '-]){{1,50}}?)[\s*_]*:"
    rf"[\s*_]*(?P<value>{_FORMULA}|{_NUMBER})(?:[ ]+[^\W\d_]{{1,20}}){{0,4}}[\s.*_]*"
)
_GENERAL = (
    "result total solution conclusion value final answer "
    "antwort ergebnis respuesta resultado r\u00e9ponse risposta resposta"
)
_WORD = re.compile(r"[^\W\d_]{3,}")
_FORMULAS = re.compile(_FORMULA)
_DIGITS = re.compile(r"(?<![A-Za-z_{(^])\b[0-9]+\b(?![)}])")
_CALL = re.compile(r"\([^()]*\)")
# "simplified" and "simplify"
_STEM = 5
_COMMON = frozenset(
    ("the", "and", "are", "for", "that", "this", "with", "from", "have", "there", "which", "thus", "our")
)
_LABEL = re.compile(r"[^*]*[:.]\s*\Z")

# The whole last sentence in bold
_WHOLE = re.compile(r"\A[\s>#-]*(?P<mark>\*\*|__)(?P<said>[^*]+?(?: [^*]+? |:)[^*]+)(?P=mark)[.\s]*\Z")
# An expression of the question and its value
_EQUATION = re.compile(
    rf"(?:{_LEADS}\b,?)?[\s$]*(?P<left>[^=$]{{3,200}}?)=(?:[^=$]+=)*(?P<value>[^=$]{{1,100}}?)[\s$.]*", re.IGNORECASE
)
_PLAIN_WORD = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{2,}")

# Words that leave open whether the sentence's value is the answer
_UNSURE = re.compile(
    r"\b(?:if|unless|suppos\w+|assum\w+|imagine|let|would|could|might|(?-i:may)|perhaps|maybe|possibly|probably|likely"
    r"|guess\w*|estimate\w*|either|neither|nor|except|so far|still|remains to|examples?|instance|hints?|steps?"
    r"|cases?|bounds?"
    r"|checks?|tr(?:y|ied)|attempt\w*|drafts?|claims?|wrong|incorrect|mistake\w*|unsure|doubt\w*|unknown|attained|reached|achieved|occurs?"
    r"|wenn|falls|w\u00fcrde\w*|nicht|keine?|vielleicht|si|pas|peut-\u00eatre|ser\u00eda|serait|sarebbe|quiz\u00e1s?)\b|n['\u2019]t\b",
    re.IGNORECASE,
)
_HEDGED = re.compile(
    r"(?:\b(?:at (?:least|most)|(?:less|more|fewer|greater|smaller|larger|other|rather) than|about|approximately"
    r"|roughly|around|nearly"
    r"|almost|over|under|up to|between|no|only for|instead of|from|out of|among)|(?:\bnot|\bnever|\bcannot"
    r"|\bno)\s+(?:\w+\s+){0,3}|[<>\u2264\u2265\u2248\u2260])[\s*_$`]*\Z",
    re.IGNORECASE,
)
_QUALIFIED = re.compile(
    r"\b(?:or|if|unless|but|except|less|more|fewer|not|than|would|so far|only|each|too|yet|when|where|until"
    r"|cannot)\b|[,;:?<>=\u2264\u2265\u2248]",
    re.IGNORECASE,
)
# The sentence breaks off, or continues computing
_BROKEN = re.compile(
    r"\b(?:minus|plus|times|divided|multiplied|squared|choose|per)\b|\b(?:the|an?|of|in|for|with|and|by|from|to|that|which|because)\s*\Z",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"\([^()]{0,80}\)|, as (?:required|desired|claimed|wanted|expected|needed)|, (?:in total|altogether|overall"
    r"|in all)\b"
)


def read_conclusion(text: str, question: str = "") -> str | None:
    """Return the value at which a text's end arrives; None where there is none or there are several.

    question: words from it may label the value or describe it.
    """
    text = _cut_tail(text)
    if fenced := _FENCED.search(text):
        lead = text[: fenced.start()].rstrip()
        sentence = lead[_find_sentence_start(lead) :]
        return None if _is_unsure(sentence) or sentence.endswith("?") else _strip_marks(fenced["value"])
    text = _DISPLAYED.sub(lambda match: f" ${(match[1] or match[2]).rstrip(' .')}$", text).rstrip()
    begin = _find_sentence_start(text)
    if whole := _WHOLE.match(text[begin:]):
        text = text[:begin] + whole["said"].strip()
    if bold := emphasized(text):
        return bold[0].text if len({value.text for value in bold}) == 1 else None
    if (labelled := _read_labelled(text, question)) is not None:
        return labelled or None
    solved = _EQUATION.fullmatch(text, begin)
    if (
        solved
        and _spaceless(solved["left"]) in _spaceless(question)
        and not _PLAIN_WORD.search(text, solved.end("left"))
    ):
        return _strip_marks(solved["value"])
    match = _COMES_TO.search(text, begin)
    if match is None:
        return None
    head = text[begin : match.start("value")]
    earlier_numbers = set(_DIGITS.findall(_CALL.sub("", head)))
    # A sentence may repeat the question's numbers; any other number may be a value, too
    if "=" in head or not earlier_numbers.issubset(_DIGITS.findall(question)):
        return None
    counted = _COUNTED.fullmatch(head) and _is_counted(text[match.end("value") :], question)
    if not (_LEAD.match(head) or earlier_numbers or counted or _is_asked_for(head, question)):
        return None
    return _strip_marks(match["value"]) if _is_given(text, begin, *match.span("value")) else None


def emphasized(text: str) -> list[Value]:
    """Return the values in bold or code in a text's last sentence, if it states them without reserve."""
    text = _cut_tail(text)
    begin = _find_sentence_start(text)
    values = [
        Value(_strip_marks(match[name]), match.start(), match.end())
        for match in _BOLD.finditer(text, begin)
        for name in ("starred", "tagged", "code")
        if match[name]
    ]
    values += [Value(match["value"].strip(), *match.span()) for match in _BOLD_SYMBOL.finditer(text, begin)]
    # "**Therefore**," and "**Total:**" are no values
    values = [
        value
        for value in values
        if not _LEAD.fullmatch(value.text.rstrip(",")) and not (_LABEL.match(value.text) and text[value.end :].strip())
    ]
    numbers = [value for value in values if re.search(r"[0-9\\]", value.text)] or values
    return numbers if all(_is_given(text, begin, value.start, value.end) for value in numbers) else []


def _strip_marks(value: str) -> str:
    """Return a value without the marks of a formula."""
    value = value.strip(" .$")
    return value[2:-2].strip(" .") if value.startswith("\\(") and value.endswith("\\)") else value


def _cut_tail(text: str) -> str:
    """Return the end of a text without courtesies."""
    end = text.rstrip()[-_TAIL_CHARS:]
    return _COURTESY.sub("", end).rstrip()


def _find_sentence_start(text: str) -> int:
    """Return the start of the last sentence."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text) if match.end() < len(text)]
    return max(ends, default=0)


def _is_given(text: str, begin: int, start: int, end: int) -> bool:
    """Return whether the sentence from `begin` on states its part from `start` to `end` without reserve."""
    head, tail = text[begin:start], _ASIDE.sub("", text[end:])
    return not (
        _is_unsure(head)
        or _QUALIFIED.search(tail)
        or _BROKEN.search(tail)
        or _UNSURE.search(tail)
        or is_denied(text, start, end)
        or not is_asserted(text, start, end)
    )


def _is_unsure(head: str) -> bool:
    return bool(_UNSURE.search(head) or _HEDGED.search(head))


def _read_labelled(text: str, question: str) -> str | None:
    """Return the value under a label that the question asks for; "" for other labels; None without final labels."""
    labelled = []
    for line in reversed([line for line in text.split("\n") if line.strip()]):
        match = _LABELLED.fullmatch(line)
        if match is None:
            break
        labelled.append(match)
    if not labelled:
        return None
    values = {
        _strip_marks(match["value"])
        for match in labelled
        if _is_given(match.string, 0, *match.span("value"))
        and (_LEAD.fullmatch(match["label"]) or _is_asked_for(match["label"], question))
    }
    return values.pop() if len(values) == 1 else ""


def _is_counted(words: str, question: str) -> bool:
    """Return whether the question asks for the count of these things, as in "34 ordered pairs"."""
    counted_thing = re.sub(r"^such | in (?:total|all)$| \$.*\$$", "", words.strip(" .!*_\n").lower())
    return bool(
        counted_thing and re.search(rf"{_COUNT}{re.escape(counted_thing)}\b", " ".join(question.lower().split()))
    )


def _spaceless(text: str) -> str:
    return "".join(text.split())


def _is_asked_for(words: str, question: str) -> bool:
    """Return whether words name an answer or something from the question."""
    return not _stems(words).isdisjoint(_stems(f"{question} {_GENERAL}"))


def _stems(words: str) -> set[str]:
    return {word.lower()[:_STEM] for word in _WORD.findall(_FORMULAS.sub(" ", words))} - _COMMON
