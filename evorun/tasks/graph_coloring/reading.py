"""Reading a colouring: the list that was asked for, or another list or table of integers that means one colouring."""

import re
from itertools import chain

from evorun.tasks.graph_coloring.graph import as_text
from evorun.tasks.puzzles.denials import without_dismissed
from evorun.tasks.puzzles.lenient import plain, spans

# A longer colour is refused; one that is out of range is an error of the answer, not of its form.
_DIGITS = 6
_BETWEEN = re.compile(r"\s*,\s*|\s+")
_WORDS = re.compile(r"\b(?:vertex|node|colou?rs?|[vfc](?=[\s_({0-9]))_?", re.IGNORECASE)
_VERB = re.compile(r"\b(?:is|gets|has|receives)\b(?:[ \t]+(?:assigned|given))?(?:[ \t]+to\b)?", re.IGNORECASE)
# `"solution": {`, `(0, 1)` and `{"vertex": 0, "color": 1}`, without quotation marks
_NAME = re.compile(r"\b[A-Za-z_]{2,30}[ \t]*[:=][ \t]*(?=[\[({])")
_COUPLE = re.compile(r"[(\[][ \t]*([0-9]+)[ \t]*,[ \t]*([0-9]+)[ \t]*[)\]]")
_COLUMNS = re.compile(r"^[ \t]*([0-9]+)[ ]*[,\t][ \t]*([0-9]+)[ \t]*$", re.MULTILINE)
_OBJECT = re.compile(r"\b(?:vertex|node)[ \t]*:[ \t]*([0-9]+)[ \t]*,\s*colou?r[ \t]*:[ \t]*([0-9]+)", re.IGNORECASE)
_PAIR = re.compile(rf"(?<![0-9.])([0-9]{{1,{_DIGITS}}}+)[ \t]*(?:[:=|]|->)[ \t]*([0-9]{{1,{_DIGITS}}}+)(?!\.[0-9])")
# What may lead to the pairs of a line, and what makes something else of them
_LEAD = re.compile(r"[^0-9\n]{1,100}")
_DOUBT = re.compile(
    r"\b(?:not|no|never|wrong|invalid|incorrect|improper|false|fail\w*|if|would|could|might|tr(?:y|ied)|first|instead|than)\b"
    r"|n['\u2019]t\b",
    re.IGNORECASE,
)
# A line with the vertices' own numbers above one with their colours
_VERTICES = re.compile(r"^[ \t]*(?:vert(?:ex|ices)|nodes?)\b[ \t]*[:|]", re.IGNORECASE | re.MULTILINE)
_CLASS = re.compile(
    rf"[ \t]*colou?r[ \t]*([0-9]{{1,{_DIGITS}}})[ \t]*(?::|=|->)[^0-9\n]{{0,30}}"
    r"([0-9]{1,9}(?:(?:[ \t]*,)?(?:[ \t]*\band\b)?[ \t]*[0-9]{1,9})*)[ \t}\])]*\.?",
    re.IGNORECASE,
)
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")


def read(block: str, vertices: int) -> str:
    """Return the canonical text of a colouring of so many vertices. Raises ValueError with what is wrong.

    Beside numbers with commas or blanks between them: lists in any brackets and under any name, a colour for each
    vertex by its number (`0: 1`, `{"0": 1}`, `[[0, 1]]`, a table), and the vertices of each colour. A text with two
    different ones has none.
    """
    try:
        return as_text(_asked_for(block, vertices))
    except ValueError:
        text = without_dismissed(plain(block)).translate({ord(mark): None for mark in "\"'"})
        rows = [line.replace("|", " ") for line in text.split("\n") if line.count("|") >= vertices - 1]
        if by_color := _by_color(text, vertices):
            return as_text(by_color)
        # In a table the vertices' own numbers are its header.
        in_rows = (numbers for row in rows for numbers in spans(row) if numbers != [*range(vertices)])
        lists = [numbers for numbers in chain(spans(text), in_rows) if len(numbers) == vertices]
        others = [numbers for numbers in lists if numbers != [*range(vertices)]]
        lists = others if others and _VERTICES.search(text) else lists
        found = {as_text(colors) for colors in lists if _are_colors(colors)}
        by_vertex = _by_vertex(text, vertices)
        found |= {as_text(by_vertex)} if by_vertex else set()
        if len(found) != 1:
            raise
        return found.pop()


def is_color(word: str) -> bool:
    """Tell whether a word is a colour, allowed or not."""
    return 1 <= len(word) <= _DIGITS and word.isascii() and word.isdigit()


def _asked_for(block: str, vertices: int) -> list[int]:
    words = _BETWEEN.split(block.strip())
    wrong = next((word for word in words if not is_color(word)), None)
    if wrong is not None:
        raise ValueError(f"expected colours such as 0,1,2, got '{wrong[:20]}'")
    if len(words) != vertices:
        raise ValueError(f"expected {vertices} colours, one for each vertex, got {len(words)}")
    return [int(word) for word in words]


def _by_color(text: str, vertices: int) -> list[int] | None:
    """Return the colours of a text whose lines with numbers are a colour and its vertices each, every vertex once.

    Where all have one vertex, they may as well be a vertex and its colour each: such lines are left to `_by_vertex`.
    """
    color_of: dict[int, int] = {}
    classes = 0
    for line in text.split("\n"):
        if not any(character.isdigit() for character in line):
            continue
        found = _CLASS.fullmatch(line)
        members = [int(number) for number in re.findall("[0-9]+", found[2])] if found else []
        if found is None or not color_of.keys().isdisjoint(members) or len(set(members)) < len(members):
            return None
        color_of |= dict.fromkeys(members, int(found[1]))
        classes += 1
    is_whole = set(color_of) == set(range(vertices)) and classes < vertices
    return [color_of[vertex] for vertex in range(vertices)] if is_whole else None


def _are_colors(numbers: list[int]) -> bool:
    return all(0 <= number < 10**_DIGITS for number in numbers)


def _by_vertex(text: str, vertices: int) -> list[int] | None:
    """Return the colours of a text that names each vertex with its colour, once and in any order, and no more."""
    text = _OBJECT.sub(r"\1:\2;", _NAME.sub("", text))
    text = _COLUMNS.sub(r"\1:\2", text)
    text = _COUPLE.sub(r"\1:\2;", _VERB.sub(":", _WORDS.sub(" ", text)))
    text = text.translate({ord(bracket): " " for bracket in "()[]{}"})
    pairs = _PAIR.findall(text)
    color_of = {int(vertex): int(color) for vertex, color in pairs}
    # Lines without numbers are titles; another number, or a word beside the pairs, makes something else of them.
    lines = [line for line in text.split("\n") if any(character.isdigit() for character in line)]
    if len(pairs) != vertices or set(color_of) != set(range(vertices)):
        return None
    if any(_LETTER_OR_DIGIT.search(_PAIR.sub("", _without_lead(line))) for line in lines):
        return None
    return [color_of[vertex] for vertex in range(vertices)]


def _without_lead(line: str) -> str:
    """Return a line without the words in front of its first pair, unless they deny or suppose it."""
    lead = _LEAD.match(line)
    return line if lead is None or _DOUBT.search(lead[0]) else line[lead.end() :]
