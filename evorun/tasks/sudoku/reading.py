"""Reading a completed grid: lines in the requested form, or a list or table that means one grid."""

import json
import re
from collections.abc import Iterator

from evorun.tasks.json_text import find_object
from evorun.tasks.puzzles.lenient import strip_markup
from evorun.tasks.sudoku.grid import EMPTY

_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")
_RULER = frozenset("-+|: \t")
_DRAWN_RULER = _RULER | frozenset("=*_~#.")
_COMMENT = re.compile(r"[ \t](?:#|//).*")
# Rows of a list on one line, or in one JSON text; texts of the rows
_ROW_END = re.compile(r"(?<=\]),[ \t]*(?=\[)|(?=\[\[)|;|\\n|[ \t]/[ \t]")
_LIST = re.compile(r"\[[^\[\]]*\]")
_KEYS = ("solution", "answer", "grid", "board")
_ROW_TEXT = re.compile(
    r"(?:([\"'])(?:row|r)?[ _]?[0-9]{1,2}\1[ \t]*:[ \t]*)?([\"'])([0-9][0-9 ,|]*)\2[ \t]*,?", re.IGNORECASE
)
_LABEL = re.compile(
    r"(?:[A-I]\b|(?:row|line|r)[ _]*[0-9]{1,2}\b(?:[ \t]+is\b)?|[0-9]{1,2}[ \t]*[:.)]|[A-Za-z_]{2,20}[ \t]*[:=]"
    r"|[^\W\d_]{1,12}[ \t]*[0-9]{1,2}[^\W\d_]{0,2}[ \t]*:)"
    r"[ \t:|.]*",
    re.IGNORECASE,
)
# Brackets, quotation marks and separators of cells become blanks
_APART = str.maketrans(dict.fromkeys("[](){}\"'|,;", " "))


def read(block: str, size: int) -> str:
    """Return the canonical text of a completed grid. Raises ValueError with what is wrong.

    Besides the canonical form: blanks and empty lines around rows, rows of digits without blanks (up to 9 x 9), rulers
    of `|`, `-` and `+`, commas and brackets, labels of rows and columns, and text before and behind the rows; a JSON
    object's solution, as a text or as lists. A text with two different grids has no answer. A number need not
    lie in 1..n: that is an error of the answer, not of its form.
    """
    try:
        return _read_requested_form(block, size)
    except ValueError:
        grids = {_text(grid) for grid in _grids(strip_markup(_solution_in(block)), size)}
        if len(grids) != 1:
            raise
        return grids.pop()


def _solution_in(block: str) -> str:
    """Return a JSON object's solution as a text, each list of cells on a line; without an object, the whole block."""
    reply = find_object(block, *_KEYS)
    value = next(reply.value[key] for key in _KEYS if key in reply.value) if reply else None
    if isinstance(value, str) and "\n" in value:
        return value
    text = json.dumps(value) if isinstance(value, list) else block
    return _LIST.sub(lambda cells: " ".join(cells[0].split()), text)


def _read_requested_form(block: str, size: int) -> str:
    rows = [line for line in block.splitlines() if line.strip() and not set(line) <= _RULER]
    if len(rows) != size:
        raise ValueError(f"expected {size} rows, got {len(rows)}")
    return _text([_numbers(row, number, size) for number, row in enumerate(rows, 1)])


def _text(rows: list[list[str]]) -> str:
    return "\n".join(" ".join(str(int(cell)) for cell in row) for row in rows)


def _numbers(row: str, number: int, size: int) -> list[str]:
    tokens = _cells(row.replace("|", " "), size)
    wrong = next((token for token in tokens if not _NUMBER.fullmatch(token)), None)
    if wrong == EMPTY:
        raise ValueError(f"row {number} has an empty cell")
    if wrong is not None:
        raise ValueError(f"row {number}: expected {size} whole numbers separated by blanks, got '{wrong[:20]}'")
    if len(tokens) != size:
        raise ValueError(f"row {number}: expected {size} numbers, got {len(tokens)}")
    return tokens


def _cells(row: str, size: int) -> list[str]:
    tokens = row.split()
    digits = "".join(tokens)
    # Digits run together are unambiguous only where every number has one digit.
    return list(digits) if len(tokens) < size == len(digits) and size <= 9 else tokens


def _grids(text: str, size: int) -> Iterator[list[list[str]]]:
    """Yield the runs of lines that are a grid's rows and nothing else; rulers may stand between them."""
    run: list[list[str]] = []
    # A final line that is not a row ends the last run.
    for line in [*_ROW_END.sub("\n", _split_quoted_rows(text, size)).splitlines(), "end"]:
        if set(line) <= _DRAWN_RULER or not line.translate(_APART).strip():
            # A ruler below the first line makes a header of it, if it counts the columns.
            run = [] if run == [_count_to(size)] and line.strip() else run
            continue
        row = _row(_COMMENT.sub("", line), size)
        if row:
            run.append(row)
            continue
        run = _without_labels(run, size)
        if len(run) == size and all(len(cells) == size for cells in run):
            yield run
        run = []


def _split_quoted_rows(text: str, size: int) -> str:
    """Put each quoted text that is a row on a separate line: `["1 2 3 4", "3 4 1 2"]`.

    A key that numbers the row goes with it.
    """

    def apart(found: re.Match[str]) -> str:
        return f"\n{found[3]}\n" if len(_cells(found[3].translate(_APART), size)) == size else found[0]

    return _ROW_TEXT.sub(apart, text)


def _row(line: str, size: int) -> list[str] | None:
    """Return the cells of a line, with a row number in front of them, if any; None for a line that is not a row."""
    bare = line.translate(_APART).strip().rstrip(".")
    for rest in (bare, _LABEL.sub("", bare, count=1) if _LABEL.match(bare) else ""):
        cells = _cells(rest, size)
        if size <= len(cells) <= size + 1 and all(map(_NUMBER.fullmatch, cells)):
            return cells
    return None


def _without_labels(run: list[list[str]], size: int) -> list[list[str]]:
    """Return the rows without a first column of row numbers, and without a first row of column numbers."""
    column_numbers = _count_to(size)
    rows = run[1:] if len(run) == size + 1 and run[0] == column_numbers else run
    numbered = [row[0] for row in rows] in (column_numbers, [str(number) for number in range(size)])
    return [row[1:] for row in rows] if numbered and all(len(row) == size + 1 for row in rows) else run


def _count_to(size: int) -> list[str]:
    return [str(number) for number in range(1, size + 1)]
