"""Parses answers in other forms than the requested one: lists and grids as models write them.

The paper's form is strict (XE, section 4.1.1 of the Lyria paper), but an answer that is clear to any reader says more
about the model than its brackets do. Ambiguous answers are refused.
"""

import re
from collections.abc import Iterator

# ASCII equivalents of characters from other scripts and of drawn tables
_CHARACTERS = str.maketrans(
    {
        **{chr(0xFF10 + digit): str(digit) for digit in range(10)},
        **{"\uff0c": ",", "\u3001": ",", "\uff1b": ";", "\uff1a": ":", "\uff0b": "+", "\uff0d": "-", "\u2212": "-"},
        **dict.fromkeys("\u00a0\u2007\u202f\u3000", " "),
        **dict.fromkeys("\u200b\ufeff", None),
        **dict.fromkeys("\u2502\u2503\u2551\u2506\u250a\uff5c", "|"),
        # all other box-drawing characters
        **{chr(code): "-" for code in range(0x2500, 0x2580) if chr(code) not in "\u2502\u2503\u2551\u2506\u250a"},
    }
)
_ARROW = re.compile(r"[\u2192\u21d2\u27f6\u2794]|=>|(?<!-)-++>|\\(?:long)?(?:right)?arrow(?![A-Za-z])|\\to(?![A-Za-z])")
_LATEX = (
    (re.compile(r"\\(?:begin|end)\{[a-z]+\*?\}(?:\{[clr|@! ]*\})?|\\\\|\\newline(?![A-Za-z])"), "\n"),
    (re.compile(r"\\[hc]line(?:\{[0-9-]*\})?|\\(?:left|right|displaystyle)(?![A-Za-z])|\\[,;:! ()\[\]]|\$"), " "),
    (re.compile("&"), "|"),
    (re.compile(r"\\(?:text|textbf|mathbf|mathrm)\{"), "{"),
)
# Marks of quotations, emphasis and code, and tags such as <answer>
_MARKUP = re.compile(r"^[ \t]*+(?:>[ \t]?)++|^[ \t]*+[-*\u2022][ \t]++|\*+|__|`+|</?[A-Za-z]{1,20}>", re.MULTILINE)
# "(start)", and the numbers of a list's items
_ASIDE = re.compile(r"\([A-Za-z][A-Za-z ]*+\)|^[ \t]*+[0-9]{1,3}[.)][ \t]++(?=[A-Za-z])", re.MULTILINE)
_NUMBER = r"[+-]?[0-9]{1,9}+(?![\w]|\.[0-9])"
_SPAN = re.compile(rf"(?<![\w.+-]){_NUMBER}(?:(?:\s*+[,;]\s*+|\s++){_NUMBER})*+")
_WORD = re.compile("[A-Za-z=:]")
_LABEL = re.compile(r"[^\n0-9:]{1,60}:")
# The answer follows an announcement, and at most a remark follows the answer
_LAST_PARAGRAPHS = 2
# A bare list before a remark that does not question it
_ENTRY_WORD = re.compile(
    r"\b(?:city|node|stop|vertex|colou?rs?|v|c|is|gets|has|receives|assigned|to)(?![A-Za-z])", re.IGNORECASE
)
_LETTER = re.compile("[A-Za-z]")
_QUESTIONED = re.compile(
    r"\b(?:not|but|however|though|wrong|longer|shorter|better|worse|fail\w*|cannot|unless|if|instead|would)\b|n['\u2019]t\b",
    re.IGNORECASE,
)
_BLANK_LINE = re.compile(r"\n[ \t]*\n")
_SAYS_ANSWER = re.compile(r"\b(?:answer|solution)\b|\\boxed", re.IGNORECASE)


def strip_markup(text: str) -> str:
    """Remove formatting from a text: markdown, LaTeX, drawn lines, asides; arrows become `->`."""
    text = _ARROW.sub("->", text.translate(_CHARACTERS))
    for pattern, replacement in _LATEX:
        text = pattern.sub(replacement, text)
    return _ASIDE.sub("", _MARKUP.sub("", text))


def integer_lists(text: str) -> Iterator[list[int]]:
    """Yield the lists of integers in a text, separated by commas, semicolons and blanks.

    A list continues in the next line after a comma, or if neither line has words: "k = 3" does not begin a list.
    """
    for passage in _joined_lines(text):
        for span in _SPAN.finditer(passage):
            yield [int(number) for number in span[0].replace(",", " ").replace(";", " ").split()]


def _joined_lines(text: str) -> Iterator[str]:
    joined: list[str] = []
    for line in text.split("\n"):
        behind_comma = bool(joined) and joined[-1].rstrip().endswith((",", ";"))
        if joined and not behind_comma and (_WORD.search(joined[-1]) or _WORD.search(line)):
            yield "\n".join(joined)
            joined = []
        joined.append(line)
    yield "\n".join(joined)


def closing_passages(text: str) -> Iterator[str]:
    """Yield the paragraphs that may hold an answer without a block: the last one, then those that announce it.

    "Final answer:" is often a separate paragraph before the answer. Near the end any announcement or label counts, and
    a remark may follow. A bare list may also be followed by a remark, unless that questions it.
    """
    paragraphs = [paragraph.strip() for paragraph in _BLANK_LINE.split(text) if paragraph.strip()]
    yield from paragraphs[-1:]
    last = len(paragraphs) - 1
    for n in range(last, -1, -1):
        announced = last - n <= _LAST_PARAGRAPHS and paragraphs[n].rstrip("*_ ").endswith(":")
        labelled = n == last - 1 and _LABEL.match(paragraphs[n])
        bare = n == last - 1 and _is_bare(paragraphs[n]) and not _QUESTIONED.search(paragraphs[-1])
        if announced or labelled or bare or _SAYS_ANSWER.search(paragraphs[n]):
            yield "\n".join(paragraphs[n : n + 2])


def _is_bare(paragraph: str) -> bool:
    """Return whether a paragraph is only a list."""
    return not _LETTER.search(_ENTRY_WORD.sub("", strip_markup(paragraph)))
