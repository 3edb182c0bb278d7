"""Parses a completion into its program, its reasoning and its notes."""

import ast
import re
from itertools import chain, takewhile
from textwrap import dedent
from typing import Any

from evorun.tasks.clauses import is_supposed
from evorun.tasks.excerpts import excerpt
from evorun.tasks.json_text import read_object, replace_lone_surrogates
from evorun.tasks.livecodebench.programs import parse

MAX_SOURCE_BYTES = 64 * 1024
"""Maximum bytes of a program, as at AtCoder and Codeforces."""
MEMORY_CHARS = 500
"""Maximum characters of an evolving memory (A.1), of which an excerpt is kept if it is longer."""

# A fence begins only at the first mark of a run: trying every mark of a long run would take quadratic time.
_BLOCK = r"(?<![`~])(?:`{{3,}}+|~{{3,}}+)[ \t]*+{language}[ \t]*+\r?\n(.*?)(?:\r?\n[ \t>]*+(?:```|~~~)|\Z)"
# After the language a fence may have more text: ```python title="main.py", ```{.python}
_LANGUAGE = r"(?:\{\.)?(?:[ic]?python ?[0-9.]*+|py(?:py)?[0-9]*+)(?:[ \t}][^\n]*)?"
_FENCED = re.compile(_BLOCK.format(language=f"(?:{_LANGUAGE})?"), re.DOTALL | re.IGNORECASE)
_PYTHON = re.compile(_BLOCK.format(language=_LANGUAGE), re.DOTALL | re.IGNORECASE)
_ANY = re.compile(_BLOCK.format(language=r"([^\n`]*)"), re.DOTALL)
_QUOTED = re.compile(r"^[ \t]*+>[ ]?", re.MULTILINE)
_TAG = re.compile(r"</?(?:answer|code|pre|python|solution)>|\[/?(?:BEGIN|DONE|PYTHON|ANSWER)\]", re.IGNORECASE)
# The beginning of a program, which does not begin prose
_FIRST_LINE = re.compile(
    r"^(?:import [a-z]|from \w+ import |def \w|class \w|#!|[A-Za-z_]\w*(?:, ?\w+)* = )", re.MULTILINE
)
# A test of a program: it is announced as such, and neither reads nor defines anything
_TRIAL = re.compile(r"\b(?:tests?|usage|examples?|try it|run it|called|calls?)\b[^.\n]{0,30}\s*$", re.IGNORECASE)
_WHOLE = re.compile(r"\b(?:input|stdin|def|class)\b")
_REMARK = re.compile(r"[*#>_ ]{0,6}[A-Z][A-Za-z'\u2019]*[*_]{0,2}[ ,:](?![ ]?=)[^\n]*[a-z]")
_TRIPLE = re.compile(r'"solution"\s*:\s*"""(.*?)"""', re.DOTALL | re.IGNORECASE)
# Keys that models use instead of `solution`
_OTHER_KEYS = ("code", "solution_code", "program", "python", "answer")
_TICKED = re.compile(r"`{1,2}(?:python3?|py)?\s(.*)`{1,2}", re.DOTALL | re.IGNORECASE)


def read_program(text: str) -> str:
    """Return the program in a completion, even one that does not compile, since running it will show that.

    A JSON object's `solution` is the program, without its fence. Near-JSON is repaired; if the repaired program is not
    Python but the text's last ```python block is, that block counts, since unescaped quotes and line breaks can mislead
    a repair. Without such an object, the first of these that exists is the program: the last ```python block; the last
    block without a language that is a program; the whole text, or its part from a line that begins a program; the last
    indented block that is a program.

    Raises ValueError with one of the kinds `no_json`, `no_solution` and `too_long`.
    """
    block = _find_last_block(text)
    if reply := read_object(text, "solution"):
        source, error = _read_solution(reply["solution"])
        if (source is None or not _is_program(source)) and block and _is_python(block):
            source = block
    elif reply := read_object(text, "reasoning", *_OTHER_KEYS):
        # Programs contain objects with such keys, too, so the block comes first.
        other_source = next((_read_solution(reply[key])[0] for key in _OTHER_KEYS if key in reply), None)
        source = block or other_source
        error = "no_solution: neither a key 'solution' in the JSON object nor a fenced Python block"
    else:
        source, error = block, "no_json: neither a JSON object nor a fenced Python block"
    if source is None and (quoted := _TRIPLE.search(text)):
        source = quoted[1].strip("\n") or None
    if source is None:
        raise ValueError(error)
    if _is_too_long(source):
        raise ValueError(f"too_long: the program has more than {MAX_SOURCE_BYTES // 1024} kB")
    return source


def read_reasoning(text: str) -> str:
    """Return a completion's reasoning: the JSON object's `reasoning`, or all but the Python blocks."""
    reply = read_object(text, "solution")
    return _PYTHON.sub("", text).strip() if reply is None else _text(reply, "reasoning")


def read_memory(text: str) -> str:
    """Return the notes in a JSON object with a solution, readable or not; empty if there are none."""
    reply = read_object(text, "solution")
    return "" if reply is None else excerpt(_text(reply, "evolving_memory"), MEMORY_CHARS)


def _find_last_block(text: str) -> str | None:
    """Return the last fenced program of a text, or the text itself if it is a program, or the last indented program."""
    fences = [fence for fence in _PYTHON.finditer(text) if fence[1].strip() and not is_supposed(text, fence.start())]
    programs = [fence for fence in fences if not _is_trial(text, fence)]
    if fences:
        return _strip_quoting((programs or fences)[-1][1])
    unnamed = (_strip_quoting(block) for language, block in reversed(_ANY.findall(text)) if not language.strip())
    bare = _TAG.sub("", text).strip()
    first = _FIRST_LINE.search(bare)
    # After a line that begins a program, indented lines are its body
    indented = [] if first else _indented_blocks(_ANY.sub("", text))
    from_first_line = bare[first.start() :] if first else ""
    candidates = chain(unnamed, [bare, from_first_line, _strip_remarks(from_first_line)], reversed(indented))
    return next((source for source in candidates if _is_program(source)), None)


def _is_trial(text: str, fence: re.Match[str]) -> bool:
    """Return whether a block only tests a program."""
    return bool(_TRIAL.search(text, max(0, fence.start() - 80), fence.start())) and not _WHOLE.search(fence[1])


def _strip_remarks(text: str) -> str:
    """Remove the paragraphs of prose after a program."""
    paragraphs = text.rstrip().split("\n\n")
    remarks = list(takewhile(_REMARK.match, paragraphs[:0:-1]))
    return "\n\n".join(paragraphs[: len(paragraphs) - len(remarks)])


def _indented_blocks(text: str) -> list[str]:
    """Return markdown's unfenced code blocks: indented lines at the beginning or after an empty line."""
    blocks: list[list[str]] = []
    inside, before = False, ""
    for line in text.splitlines():
        if line.startswith(("    ", "\t")) and line.strip():
            if not inside and not before:
                inside = True
                blocks.append([])
        elif line.strip():
            inside = False
        if inside:
            blocks[-1].append(line)
        before = line.strip()
    return [dedent("\n".join(lines)).strip("\n") for lines in blocks]


def _strip_quoting(block: str) -> str:
    """Remove the quotation marks or list indentation around a block."""
    block = block.removesuffix("```")  # a fence can close at the end of the last line
    lines = block.splitlines()
    if all(line.lstrip().startswith(">") for line in lines):
        block = _QUOTED.sub("", block)
    return dedent(block) if block[:1] in (" ", "\t") else block


def _read_solution(value: object) -> tuple[str | None, str]:
    """Return a JSON object's program, or None and the reason."""
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


def _is_too_long(source: str) -> bool:
    return len(source.encode(errors="replace")) > MAX_SOURCE_BYTES


def _is_python(source: str) -> bool:
    return not _is_too_long(source) and parse(source) is not None


def _is_program(source: str) -> bool:
    """Return whether a text is Python with an effect, unlike a mere word or number."""
    tree = None if _is_too_long(source) else parse(source)
    expressions = (ast.Name, ast.Constant, ast.UnaryOp, ast.BinOp, ast.Compare, ast.Tuple, ast.List, ast.Dict, ast.Set)
    return tree is not None and not all(
        isinstance(node, ast.Expr) and isinstance(node.value, expressions) for node in tree.body
    )


def _text(reply: dict[str, Any], key: str) -> str:
    value = reply.get(key)
    return replace_lone_surrogates(value).strip() if isinstance(value, str) else ""
