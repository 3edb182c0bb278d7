"""Parses a colouring: the requested list, or another unambiguous list or table of integers."""

import re
from itertools import chain

from evorun.tasks.graph_coloring.graph import format_coloring
from evorun.tasks.puzzles.denials import drop_dismissed
from evorun.tasks.puzzles.lenient import integer_lists, strip_markup

# A colour of more digits is malformed; a colour out of range is an error of the answer, not of its form.
_MAX_DIGITS = 6
_BETWEEN = re.compile(r"\s*,\s*|\s+")
_WORDS = re.compile(r"\b(?:vertex|node|colou?rs?|[vfc](?=[\s_({0-9]))_?", re.IGNORECASE)
_VERB = re.compile(r"\b(?:is|gets|has|receives)\b(?:[ \t]+(?:assigned|given))?(?:[ \t]+to\b)?", re.IGNORECASE)
# `"solution": {`, `(0, 1)` and `{"vertex": 0, "color": 1}`, without quotation marks
_NAME = re.compile(r"\b[A-Za-z_]{2,30}[ \t]*[:=][ \t]*(?=[\[({])")
_COUPLE = re.compile(r"[(\[][ \t]*([0-9]+)[ \t]*,[ \t]*([0-9]+)[ \t]*[)\]]")
_COLUMNS = re.compile(r"^[ \t]*([0-9]+)[ ]*[,\t][ \t]*([0-9]+)[ \t]*$", re.MULTILINE)
_OBJECT = re.compile(r"\b(?:vertex|node)[ \t]*:[ \t]*([0-9]+)[ \t]*,\s*colou?r[ \t]*:[ \t]*([0-9]+)", re.IGNORECASE)
_PAIR = re.compile(
    rf"(?<![0-9.])([0-9]{{1,{_MAX_DIGITS}}}+)[ \t]*(?:[:=|]|->)[ \t]*([0-9]{{1,{_MAX_DIGITS}}}+)(?!\.[0-9])"
)
# Words that may precede the pairs of a line, and words that change their meaning
_LEAD = re.compile(r"[^0-9\n]{1,100}")
_DOUBT = re.compile(
    r"\b(?:not|no|never|wrong|invalid|incorrect|improper|false|fail\w*|if|would|could|might|tr(?:y|ied)|first|instead|than)\b"
    r"|n['\u2019]t\b",
    re.IGNORECASE,
)
# A line with the vertices' numbers above a line with their colours
_VERTICES = re.compile(r"^[ \t]*(?:vert(?:ex|ices)|nodes?)\b[ \t]*[:|]", re.IGNORECASE | re.MULTILINE)
_CLASS = re.compile(
    rf"[ \t]*colou?r[ \t]*([0-9]{{1,{_MAX_DIGITS}}})[ \t]*(?::|=|->)[^0-9\n]{{0,30}}"
    r"([0-9]{1,9}(?:(?:[ \t]*,)?(?:[ \t]*\band\b)?[ \t]*[0-9]{1,9})*)[ \t}\])]*\.?",
    re.IGNORECASE,
)
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")


def read(block: str, vertices: int) -> str:
    """Return the canonical text of a colouring of `vertices` vertices. Raises ValueError with the fault.

    Apart from numbers separated by commas or blanks, it accepts lists in any brackets and under any name, a colour per
    vertex number (`0: 1`, `{"0": 1}`, `[[0, 1]]`, a table), and the vertices of each colour. Two different colourings
    are a fault.
    """
    try:
        return format_coloring(_parse_requested(block, vertices))
    except ValueError:
        text = drop_dismissed(strip_markup(block)).translate({ord(mark): None for mark in "\"'"})
        rows = [line.replace("|", " ") for line in text.split("\n") if line.count("|") >= vertices - 1]
        if by_color := _parse_by_color(text, vertices):
            return format_coloring(by_color)
        # In a table the vertices' numbers are the header.
        in_rows = (numbers for row in rows for numbers in integer_lists(row) if numbers != [*range(vertices)])
        lists = [numbers for numbers in chain(integer_lists(text), in_rows) if len(numbers) == vertices]
        without_headers = [numbers for numbers in lists if numbers != [*range(vertices)]]
        lists = without_headers if without_headers and _VERTICES.search(text) else lists
        colorings = {format_coloring(colors) for colors in lists if _are_colors(colors)}
        by_vertex = _parse_by_vertex(text, vertices)
        colorings |= {format_coloring(by_vertex)} if by_vertex else set()
        if len(colorings) != 1:
            raise
        return colorings.pop()


def is_color(word: str) -> bool:
    """Return whether a word is a colour number, allowed or not."""
    return 1 <= len(word) <= _MAX_DIGITS and word.isascii() and word.isdigit()


def _parse_requested(block: str, vertices: int) -> list[int]:
    words = _BETWEEN.split(block.strip())
    invalid = next((word for word in words if not is_color(word)), None)
    if invalid is not None:
        raise ValueError(f"expected colours such as 0,1,2, got '{invalid[:20]}'")
    if len(words) != vertices:
        raise ValueError(f"expected {vertices} colours, one for each vertex, got {len(words)}")
    return [int(word) for word in words]


def _parse_by_color(text: str, vertices: int) -> list[int] | None:
    """Return the colours of a text in which each line with numbers gives a colour and its vertices.

    Lines with a single vertex each might as well be a vertex and its colour; they are left to `_parse_by_vertex`.
    """
    colors_by_vertex: dict[int, int] = {}
    classes = 0
    for line in text.split("\n"):
        if not any(character.isdigit() for character in line):
            continue
        match = _CLASS.fullmatch(line)
        members = [int(number) for number in re.findall("[0-9]+", match[2])] if match else []
        if match is None or not colors_by_vertex.keys().isdisjoint(members) or len(set(members)) < len(members):
            return None
        colors_by_vertex |= dict.fromkeys(members, int(match[1]))
        classes += 1
    is_complete = set(colors_by_vertex) == set(range(vertices)) and classes < vertices
    return [colors_by_vertex[vertex] for vertex in range(vertices)] if is_complete else None


def _are_colors(numbers: list[int]) -> bool:
    return all(0 <= number < 10**_MAX_DIGITS for number in numbers)


def _parse_by_vertex(text: str, vertices: int) -> list[int] | None:
    """Return the colours of a text that gives each vertex and its colour once, in any order, and nothing else."""
    text = _OBJECT.sub(r"\1:\2;", _NAME.sub("", text))
    text = _COLUMNS.sub(r"\1:\2", text)
    text = _COUPLE.sub(r"\1:\2;", _VERB.sub(":", _WORDS.sub(" ", text)))
    text = text.translate({ord(bracket): " " for bracket in "()[]{}"})
    pairs = _PAIR.findall(text)
    colors_by_vertex = {int(vertex): int(color) for vertex, color in pairs}
    # Lines without numbers are titles; another number, or a word beside the pairs, changes their meaning.
    lines = [line for line in text.split("\n") if any(character.isdigit() for character in line)]
    if len(pairs) != vertices or set(colors_by_vertex) != set(range(vertices)):
        return None
    if any(_LETTER_OR_DIGIT.search(_PAIR.sub("", _strip_lead(line))) for line in lines):
        return None
    return [colors_by_vertex[vertex] for vertex in range(vertices)]


def _strip_lead(line: str) -> str:
    """Remove the words before a line's first pair, unless they deny or suppose it."""
    lead = _LEAD.match(line)
    return line if lead is None or _DOUBT.search(lead[0]) else line[lead.end() :]
