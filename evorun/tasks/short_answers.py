"""Reading of short answers in free text, such as the one behind the last `Answer:`, and SQuAD's measures of them."""

import re
import string
from collections import Counter

from evorun.tasks.assertions import is_asserted, is_denied
from evorun.tasks.json_text import read_object
from evorun.tasks.math_contest.reading import boxed
from evorun.tasks.tool_calls import CLOSING, OPENING

MAX_ANSWER_CHARS = 200
"""Longest answer that is read (ours; the paper asks for one to five words)."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
# A line that begins with the label; markdown may stand around it
_LINE = re.compile(r"^[ \t*_#>-]{0,8}answer[*_ \t]{0,4}:", re.IGNORECASE | re.MULTILINE)
_ANYWHERE = re.compile(r"\banswer[*_ \t]{0,4}:", re.IGNORECASE)
_HEADING = re.compile(
    r"^[ \t]*(?:#{1,6}|\*\*)[ \t]*(?:final[ \t]+)?answer[ \t]*(?:\*\*)?[ \t]*$", re.IGNORECASE | re.MULTILINE
)
_TAGGED = re.compile(r"<answer>\s*([^<>]{1,400}?)\s*</answer>", re.IGNORECASE)
_SENTENCE = re.compile(
    r"\b(?:so|thus|hence|therefore)?,?\s*the\s+(?:final\s+|correct\s+)?answer\s+is:?\s+"
    r"(?P<said>[^\n]{1,200}?)[ \t]*\.?[*_ \t]*\Z",
    re.IGNORECASE,
)
# The last line, or the end of the last sentence, in bold; GSM8K's mark
_BOLD = re.compile(
    r"(?:(?:\A|\n)[ \t]*|\b(?:is|was|are|were)[ \t]+)\*\*(?P<said>[^*\n]{1,200})\*\*[ \t]*\.?\s*\Z", re.IGNORECASE
)
_MARKED = re.compile(r"^[ \t]*####[ \t]+(?P<said>[^\n]{1,200})\s*\Z", re.MULTILINE)
# A name in bold with a remark behind it: "**Rome**, the capital"
_REMARKED = re.compile(r"\*\*([^*\n]{1,100})\*\*,(?!.*(?:\*\*|\b(?:not|or|but|however|unless|if)\b))", re.IGNORECASE)
# A whole reply of a few words that do not form a sentence
_WORDS = re.compile(r"\s*(?P<said>[A-Z0-9$][^\s?]*(?:[ ][^\s?]+){0,4}?)\.?\s*")
_NO_NAME = re.compile(
    r"\b(?:I|me|my|it|we|let|need|search|not|none|nothing|unknown|unclear|unsure|maybe|perhaps|probably|possibly|likely|or"
    r"|might|could|would|should|will|can|cannot|if|is|was|are|were|be|either|sorry|answer|done|sure|yes)\b|\b(?-i:may)\b"
    r"|n['\u2019]t\b|[:{}<>*#|]",
    re.IGNORECASE,
)
_WRAPPER = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")
_KEYS = ("answer", "final_answer", "solution")
_NAMED = re.compile(r'"(?:(?:final_)?answer|solution)"\s*:\s*"([^"\\\n]{1,400})"', re.IGNORECASE)
# A yes-no question, and its answer with a remark behind it
_POLAR = re.compile(
    r"\s*(?:is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|should)\b(?!.*\bor\b)", re.IGNORECASE
)
# The placeholder of the requested form, not filled in
_PLACEHOLDER = re.compile(
    r"[\[<{(][^\[\]<>{}()]*\b(?:answer|your|name|words?|here)\b[^\[\]<>{}()]*[\]>})]\.?|[.\u2026_?\[\]<> ]+",
    re.IGNORECASE,
)
_EITHER = re.compile(r"(?P<either>either\s+)?(?P<first>.+?)\s+or\s+(?P<other>.+?)\.?", re.IGNORECASE)
_YES_OR_NO = re.compile(r"(yes|no)\s*[,.;:\u2013\u2014](?!.*\b(?:but|however|yes|no|unless|if)\b)", re.IGNORECASE)


def read_answer(text: str, question: str = "") -> str:
    """Return what follows the last `Answer:` on its line, or on the next one.

    A label at the beginning of a line precedes one within a line. Without a label, the answer is in tags, in a box, in
    a JSON object, under a heading, in a last sentence "The answer is ...", in bold at the end, or a reply of a few
    words. Where the question is answered by yes or no, "Yes, both were." is yes. Raises ValueError with `kind: reason`
    where there is no answer; a tool call is no answer.
    """
    if OPENING in text or CLOSING in text:
        raise ValueError("tool_call: expected an answer, the turn calls a tool")
    label = None
    for pattern in (_LINE, _ANYWHERE):
        for found in pattern.finditer(text):
            label = found
        if label:
            break
    said = text[label.end() :].lstrip(" \t\r\n*_`").partition("\n")[0] if label else _unlabelled(text)
    answer = said.removesuffix("</answer>").strip(" \t\r*_`")
    if not answer:
        raise ValueError("no_answer: expected a line 'Answer: ...', found none with something behind it")
    if len(answer) > MAX_ANSWER_CHARS:
        raise ValueError(f"too_long: expected an answer of at most {MAX_ANSWER_CHARS} characters, got {len(answer)}")
    if _PLACEHOLDER.fullmatch(answer):
        raise ValueError(f"no_answer: expected an answer, got the place for one: {answer!r:.60}")
    if label and _is_undecided(answer, f"{question}\n{text[: label.start()]}"):
        raise ValueError(f"ambiguous: expected one answer, got {answer!r:.60}")
    polar = _YES_OR_NO.match(answer) if _POLAR.match(question) else None
    return polar[1] if polar else answer


def _unlabelled(text: str) -> str:
    """Return the answer of a text without a label; empty where it has none or several."""
    said = [found[1] for found in _TAGGED.finditer(text)]
    said += [named[1] for named in _NAMED.finditer(text)]
    reply = read_object(text, *_KEYS)
    if reply is not None and not said:
        value = next(reply[key] for key in _KEYS if key in reply)
        said += [str(value)] if isinstance(value, str | int | float) and not isinstance(value, bool) else []
    content = boxed(text)
    if content is not None:
        said.append(_WRAPPER.sub(r"\1", content))
    for heading in _HEADING.finditer(text):
        said.append(text[heading.end() :].lstrip().partition("\n")[0])
    last = _SENTENCE.search(text, max(0, len(text) - 400))
    # "The final answer is $\boxed{Rome}$" is the box's
    if last and "boxed" not in last["said"] and is_asserted(text, last.start(), last.end()):
        remarked = _REMARKED.match(last["said"])
        said.append(remarked[1] if remarked else last["said"])
    for pattern in (_BOLD, _MARKED):
        found = pattern.search(text, max(0, len(text) - 400))
        if found and not is_denied(text, found.start("said"), len(text)) and is_asserted(text, *found.span()):
            said.append(found["said"])
    whole = _WORDS.fullmatch(text)
    if whole and not said and not _NO_NAME.search(whole["said"]):
        said.append(whole["said"])
    return said[-1] if len(set(map(normalise, said))) == 1 and not said[-1].endswith("?") else ""


def _is_undecided(answer: str, before: str) -> bool:
    """Return whether an answer is "X or Y" of two alternatives named before it, not a name that contains "or"."""
    either = _EITHER.fullmatch(answer)
    if either is None:
        return False
    parts = (either["first"].casefold(), either["other"].casefold())
    return bool(either["either"]) or (
        answer.casefold() not in before.casefold() and all(part in before.casefold() for part in parts)
    )


def is_in_form(text: str) -> bool:
    """Return whether a text ends in a line `Answer: ...`, and calls no tool."""
    last = text.rstrip().rpartition("\n")[2].strip()
    return last.startswith("Answer:") and last != "Answer:" and OPENING not in text and CLOSING not in text


def normalise(text: str) -> str:
    """Return the text in lower case, without ASCII punctuation and articles, with single blanks between words."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(answer: str, gold: str) -> bool:
    """Return whether two answers are equal once normalised (Rajpurkar et al., 2016, section 6.1)."""
    return normalise(answer) == normalise(gold)


def f1(answer: str, gold: str) -> float:
    """Return the harmonic mean of precision and recall of the answer's words, in [0, 1]."""
    said, expected = normalise(answer).split(), normalise(gold).split()
    if not said or not expected:  # SQuAD 2.0: without words, only nothing equals nothing
        return float(said == expected)
    common = (Counter(said) & Counter(expected)).total()
    return 2 * common / (len(said) + len(expected))
