"""Changes to a program as a model writes them: blocks that name lines, and the lines that replace them.

A block is a line of `<<<<<<< SEARCH`, the lines to find, a line of `=======`, the new lines, and a line of
`>>>>>>> REPLACE`. The form is that of OpenEvolve and ShinkaEvolve.
"""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import islice

_HEAD = re.compile(r"<{5,}[ \t]*SEARCH[ \t]*$")
_MIDDLE = re.compile(r"={5,}[ \t]*$")
_END = re.compile(r">{5,}[ \t]*REPLACE\b")
MAX_BLOCKS = 100
"""Most blocks of a patch (ours): applying one takes time linear in the program's length."""


def apply_patch(program: str, text: str) -> str:
    """Return the program with all blocks of a text applied, in order.

    The first place where the lines stand counts; blanks at the ends of lines do not. Raises ValueError with one of the
    kinds `no_patch`, `no_match` and `no_change`.
    """
    blocks = list(islice(_read_blocks(text), MAX_BLOCKS + 1))
    if not blocks:
        raise ValueError("no_patch: expected a block from <<<<<<< SEARCH over ======= to >>>>>>> REPLACE")
    if len(blocks) > MAX_BLOCKS:
        raise ValueError(f"no_patch: expected at most {MAX_BLOCKS} blocks")
    lines = program.splitlines()
    for number, (search, replacement) in enumerate(blocks, 1):
        sought = _strip_ends(search)
        place = _find(_strip_ends(lines), sought)
        if place is None:
            raise ValueError(f"no_match: the lines of block {number} are not in the program")
        lines[place : place + len(sought)] = replacement
    changed = "\n".join(lines)
    if changed.rstrip() == program.rstrip():
        raise ValueError("no_change: the patch leaves the program as it is")
    return changed


def _read_blocks(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the lines to search for and those that replace them; the head of a block ends an unfinished one."""
    parts: list[list[str]] = []
    for line in text.splitlines():
        if _HEAD.match(line):
            parts = [[]]
        elif len(parts) == 1 and _MIDDLE.match(line):
            parts.append([])
        elif len(parts) == 2 and _END.match(line):
            yield parts[0], parts[1]
            parts = []
        elif parts:
            parts[-1].append(line)


def write_patch(old: str, new: str) -> str:
    """Return a patch from one program to another, of one block: the lines from the first to the last change.

    old: without blanks at the ends of lines.
    """
    before, after = old.splitlines(), new.splitlines()
    codes = SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    changes = [code for code in codes if code[0] != "equal"] or codes  # of equal programs: one that changes nothing
    (_, start, _, new_start, _), (_, _, end, _, new_end) = changes[0], changes[-1]
    if start == end:  # lines are only inserted: a line beside them shows where
        start, new_start = (start - 1, new_start - 1) if start else (start, new_start)
        end, new_end = (end, new_end) if start < end else (end + 1, new_end + 1)
    while start and _find(before, before[start:end]) != start:  # the same lines stand further up, too
        start, new_start = start - 1, new_start - 1
    search, replacement = (
        "".join(f"{line}\n" for line in part) for part in (before[start:end], after[new_start:new_end])
    )
    return f"<<<<<<< SEARCH\n{search}=======\n{replacement}>>>>>>> REPLACE"


def _strip_ends(lines: list[str]) -> list[str]:
    return [line.rstrip() for line in lines]


def _find(lines: list[str], sought: list[str]) -> int | None:
    """Return the first index at which the sought lines stand; None where they do not, or where there are none."""
    if not any(sought):
        return None
    first, width = sought[0], len(sought)
    return next((i for i, line in enumerate(lines) if line == first and lines[i : i + width] == sought), None)
