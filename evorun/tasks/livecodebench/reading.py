"""Reading a completion: the program in it, what argues for it, and the notes that it leaves."""

import ast
import re
from itertools import chain, takewhile
from textwrap import dedent
from typing import Any

from evorun.tasks.clauses import is_supposed
from evorun.tasks.excerpts import excerpt
from evorun.tasks.json_text import read_object, replace_lone_surrogates
from evorun.tasks.livecodebench.programs import parsed

MAX_SOURCE_BYTES = 64 * 1024
"""Longest program that is taken; AtCoder's and Codeforces' own bound."""
MEMORY_CHARS = 500
"""Longest evolving memory (A.1); of a longer one an excerpt is kept."""

# A fence begins only where its run of marks does: trying every mark of a long run would take quadratic time.
_BLOCK = r"(?<![`~])(?:`{{3,}}+|~{{3,}}+)[ \t]*+{language}[ \t]*+\r?\n(.*?)(?:\r?\n[ \t>]*+(?:```|~~~)|\Z)"
# Behind the language a fence may say more: ```python title="main.py", ```{.python}
_LANGUAGE = r"(?:\{\.)?(?:[ic]?python ?[0-9.]*+|py(?:py)?[0-9]*+)(?:[ \t}][^\n]*)?"
_FENCED = re.compile(_BLOCK.format(language=f"(?:{_LANGUAGE})?"), re.DOTALL | re.IGNORECASE)
_PYTHON = re.compile(_BLOCK.format(language=_LANGUAGE), re.DOTALL | re.IGNORECASE)
_ANY = re.compile(_BLOCK.format(language=r"([^\n`]*)"), re.DOTALL)
_QUOTED = re.compile(r"^[ \t]*+>[ ]?", re.MULTILINE)
_TAG = re.compile(r"</?(?:answer|code|pre|python|solution)>|\[/?(?:BEGIN|DONE|PYTHON|ANSWER)\]", re.IGNORECASE)
# A line that prose does not begin with, and programs do
_FIRST_LINE = re.compile(
    r"^(?:import [a-z]|from \w+ import |def \w|class \w|#!|[A-Za-z_]\w*(?:, ?\w+)* = )", re.MULTILINE
)
# What tries a program out: announced as that, and neither reads nor defines anything
_TRIAL = re.compile(r"\b(?:tests?|usage|examples?|try it|run it|called|calls?)\b[^.\n]{0,30}\s*$", re.IGNORECASE)
_WHOLE = re.compile(r"\b(?:input|stdin|def|class)\b")
_REMARK = re.compile(r"[*#>_ ]{0,6}[A-Z][A-Za-z'\u2019]*[*_]{0,2}[ ,:](?![ ]?=)[^\n]*[a-z]")
_TRIPLE = re.compile(r'"solution"\s*:\s*"""(.*?)"""', re.DOTALL | re.IGNORECASE)
# Names that models give to the key `solution`
_OTHER_KEYS = ("code", "solution_code", "program", "python", "answer")
_TICKED = re.compile(r"`{1,2}(?:python3?|py)?\s(.*)`{1,2}", re.DOTALL | re.IGNORECASE)


def read_program(text: str) -> str:
    """Return the program that a completion hands in; one that does not compile too, as running it shows that.

    A JSON object's `solution` is the program, its fence stripped. Near-JSON is repaired, and where the repaired program
    is no Python while the text's last ```python block is, that block counts: unescaped quotes and line breaks can
    mislead a repair. A text without such an object counts by its last ```python block, else by its last block without
    a language that is a program, else as a whole or from a line that begins a program on, where that is one, else by
    its last indented block that is a program.

    Raises ValueError with one of the kinds `no_json`, `no_solution` and `too_long`.
    """
    block = _last_block(text)
    if reply := read_object(text, "solution"):
        source, error = _stated(reply["solution"])
        if (source is None or not _is_program(source)) and block and _is_python(block):
            source = block
    elif reply := read_object(text, "reasoning", *_OTHER_KEYS):
        # Programs hold objects with such keys too, so the block comes first.
        other = next((_stated(reply[key])[0] for key in _OTHER_KEYS if key in reply), None)
        source = block or other
        error = "no_solution: neither a key 'solution' in the JSON object nor a fenced Python block"
    else:
        source, error = block, "no_json: neither a JSON object nor a fenced Python block"
    if source is None and (quoted := _TRIPLE.search(text)):
        source = quoted[1].strip("\n") or None
    if source is None:
        raise ValueError(error)
    if _too_long(source):
        raise ValueError(f"too_long: the program has more than {MAX_SOURCE_BYTES // 1024} kB")
    return source


def read_reasoning(text: str) -> str:
    """Return what a completion says for its program: the JSON object's `reasoning`, or all but the Python blocks."""
    reply = read_object(text, "solution")
    return _PYTHON.sub("", text).strip() if reply is None else _text(reply, "reasoning")


def read_memory(text: str) -> str:
    """Return the notes of a JSON object that states a solution, readable or not; empty without any."""
    reply = read_object(text, "solution")
    return "" if reply is None else excerpt(_text(reply, "evolving_memory"), MEMORY_CHARS)


def _last_block(text: str) -> str | None:
    """Return the last fenced program of a text, or the text itself where that is one, or its last indented one."""
    fences = [fence for fence in _PYTHON.finditer(text) if fence[1].strip() and not is_supposed(text, fence.start())]
    programs = [fence for fence in fences if not _is_trial(text, fence)]
    if fences:
        return _unindented((programs or fences)[-1][1])
    unnamed = (_unindented(block) for language, block in reversed(_ANY.findall(text)) if not language.strip())
    bare = _TAG.sub("", text).strip()
    first = _FIRST_LINE.search(bare)
    # Behind a line that begins a program, indented lines are its body
    indented = [] if first else _indented_blocks(_ANY.sub("", text))
    rest = bare[first.start() :] if first else ""
    candidates = chain(unnamed, [bare, rest, _without_remark(rest)], reversed(indented))
    return next((source for source in candidates if _is_program(source)), None)


def _is_trial(text: str, fence: re.Match[str]) -> bool:
    """Tell whether a block only tries a program out."""
    return bool(_TRIAL.search(text, max(0, fence.start() - 80), fence.start())) and not _WHOLE.search(fence[1])


def _without_remark(text: str) -> str:
    """Return a program without the paragraphs of prose behind it."""
    paragraphs = text.rstrip().split("\n\n")
    remarks = list(takewhile(_REMARK.match, paragraphs[:0:-1]))
    return "\n\n".join(paragraphs[: len(paragraphs) - len(remarks)])


def _indented_blocks(text: str) -> list[str]:
    """Return markdown's blocks without fences: indented lines at the beginning or behind an empty line."""
    found: list[list[str]] = []
    inside, before = False, ""
    for line in text.splitlines():
        if line.startswith(("    ", "\t")) and line.strip():
            if not inside and not before:
                inside = True
                found.append([])
        elif line.strip():
            inside = False
        if inside:
            found[-1].append(line)
        before = line.strip()
    return [dedent("\n".join(lines)).strip("\n") for lines in found]


def _unindented(block: str) -> str:
    """Return a block without the marks of a quotation or the indentation of a list that it stands in."""
    block = block.removesuffix("```")  # a fence can close at the end of the last line
    lines = block.splitlines()
    if all(line.lstrip().startswith(">") for line in lines):
        block = _QUOTED.sub("", block)
    return dedent(block) if block[:1] in (" ", "\t") else block


def _stated(value: object) -> tuple[str | None, str]:
    """Return a JSON object's program, or None and why there is none."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "\n".join(value)
    if not isinstance(value, str):
        return None, f"no_solution: expected a program as text, got {type(value).__name__}"
    source = replace_lone_surrogates(value)
    blocks = _FENCED.findall(source)
    if blocks:
        source = str(blocks[-1])
    elif ticked := _TICKED.fullmatch(source.strip()):
        source = str(ticked[1])
    return (source, "") if source.strip() else (None, "no_solution: the program is empty")


def _too_long(source: str) -> bool:
    return len(source.encode(errors="replace")) > MAX_SOURCE_BYTES


def _is_python(source: str) -> bool:
    return not _too_long(source) and parsed(source) is not None


def _is_program(source: str) -> bool:
    """Tell whether a text is Python that does something: a word or a number is Python too."""
    tree = None if _too_long(source) else parsed(source)
    expressions = (ast.Name, ast.Constant, ast.UnaryOp, ast.BinOp, ast.Compare, ast.Tuple, ast.List, ast.Dict, ast.Set)
    return tree is not None and not all(
        isinstance(node, ast.Expr) and isinstance(node.value, expressions) for node in tree.body
    )


def _text(reply: dict[str, Any], key: str) -> str:
    value = reply.get(key)
    return replace_lone_surrogates(value).strip() if isinstance(value, str) else ""
