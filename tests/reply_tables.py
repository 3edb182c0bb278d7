"""Realistic replies to one problem of each task, right ones and their near misses: the tables in `replies/`, filled in.

A table's replies are templates: what stands between « and » is replaced by the answer in some shape. So the same
replies with another answer in them are the near misses: they must be read as that other answer, or not at all.
"""

import asyncio
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from building import NoTools, load_task
from evorun.runs.candidates import Response
from evorun.tasks.base import Problem
from evorun.tasks.math_contest.math_contest import ContestGrader, MathContest
from evorun.tasks.tsp.tsp import Tsp

FOLDER = Path(__file__).parent / "replies"
_PLACEHOLDER = re.compile("«(\\w+)»")


class Template(NamedTuple):
    """A reply whose answer is yet to be filled in."""

    name: str
    text: str

    def fill(self, shapes: Mapping[str, str]) -> str:
        """Return the reply; Windows's line ends are those of the shape `windows`."""
        text = _PLACEHOLDER.sub(lambda found: shapes[found[1]], self.text)
        return text.replace("\n", "\r\n") if "windows" in self.name else text


class Case(NamedTuple):
    """A task with a problem, its right answer, and the ways to write an answer."""

    task: Any
    problem: Problem
    right: str
    """As `task.read` gives it."""
    shapes: Callable[[str], Mapping[str, str]]
    """Returns the placeholders' values for an answer."""

    def accepts(self, text: str, answer: str | None = None) -> bool:
        """Return whether the reply is read as the answer; None: the right one."""
        read, wanted = self.task.parse(self.problem, text), self.right if answer is None else answer
        if read.answer is None:
            return False
        if isinstance(self.task, MathContest):  # as a run grades it, by value too
            grade = ContestGrader(self.task, {"p": [wanted]}).grade(self.problem, read, NoTools())
            return asyncio.run(grade).correct is True
        same = self.task.signature(self.problem, Response(text="", answer=wanted))
        return bool(self.task.signature(self.problem, read) == same)


@cache
def _loaded(name: str, **settings: Any) -> Any:
    return load_task(name, limit=1, **settings).task


def templates(table: str) -> list[Template]:
    """Return a table's replies, in order."""
    _, *parts = re.split(r"^#### (.*)\n", (FOLDER / f"{table}.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [Template(name, text.removesuffix("\n")) for name, text in zip(parts[::2], parts[1::2], strict=True)]


# --- sudoku ---

SUDOKU_GRID = "53..7....\n6..195...\n.98....6.\n8...6...3\n4..8.3..1\n7...2...6\n.6....28.\n...419..5\n....8..79"
SUDOKU_RIGHT = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"


def sudoku_case() -> Case:
    grid = "\n".join(" ".join(line) for line in SUDOKU_GRID.splitlines())
    problem = Problem(id="p", stratum="9x9", data={"box": 3, "grid": grid})
    right = "\n".join(" ".join(SUDOKU_RIGHT[i : i + 9]) for i in range(0, 81, 9))
    return Case(_loaded("sudoku", validation_instances=0), problem, right, _grid_shapes)


def _grid_shapes(answer: str) -> dict[str, str]:
    rows = [line.split() for line in answer.splitlines()]
    thirds = [[row[0:3], row[3:6], row[6:]] for row in rows]
    wrong = [row[::-1] for row in rows]
    ruled = _banded([" | ".join(" ".join(part) for part in row) for row in thirds], "------+-------+------")
    bordered = [f"| {' | '.join(' '.join(part) for part in row)} |" for row in thirds]
    border = "+-------+-------+-------+"
    drawn = [f"│ {' │ '.join(' '.join(part) for part in row)} │" for row in thirds]
    double = [f"║ {' ║ '.join(' │ '.join(part) for part in row)} ║" for row in thirds]
    table = [f"| {' | '.join(row)} |" for row in rows]
    head = "| C1 | C2 | C3 | C4 | C5 | C6 | C7 | C8 | C9 |"
    headed = _banded(
        [f"{i} | {' | '.join(' '.join(part) for part in row)}" for i, row in enumerate(thirds, 1)],
        "  +-------+-------+------",
    )
    plain = [" ".join(row) for row in rows]
    return {
        "rows": "\n".join(plain),
        "wrong": "\n".join(" ".join(row) for row in wrong),
        "puzzle": "\n".join(" ".join(line) for line in SUDOKU_GRID.splitlines()),
        "bullets": "\n".join(f"- **Row {i}:** {row}" for i, row in enumerate(plain, 1)),
        "semicolons": f"[{'; '.join(plain)}]",
        "in_a_text": "\\n".join(plain),
        "rows_in_spanish": "\n".join(f"Fila {i}: {row}" for i, row in enumerate(plain, 1)),
        "row_texts": json.dumps(plain),
        "row_keys": json.dumps({f"row{i}": row for i, row in enumerate(plain, 1)}),
        "sentences": "\n".join(f"Row {i} is {row}." for i, row in enumerate(plain, 1)),
        "comments": "\n".join(f"{row}  # row {i}" for i, row in enumerate(plain, 1)),
        "counted": "\n".join(["1 2 3 4 5 6 7 8 9", "=" * 17, *plain]),
        "bracketed": "\n".join(" ".join(f"[{v}]" if v in "13579" else f" {v} " for v in row) for row in rows),
        "zeros": "\n".join(" ".join(line) for line in SUDOKU_GRID.splitlines()).replace(".", "0"),
        "tuples": "(" + ",\n".join(f"({', '.join(row)})" for row in rows) + ")",
        "array_in_a_line": " \\\\ \\hline ".join(" & ".join(row) for row in rows),
        "eight_rows": "\n".join(plain[:8]),
        "eight_labelled": "\n".join(f"Row {i}: {row}" for i, row in enumerate(plain, 1) if i != 4),
        "unsure": "\n".join([*plain[:8], "3 4 5 2 ? 6 1 7 9"]),
        "digits": "\n".join("".join(row) for row in rows),
        "commas": "\n".join(", ".join(row) for row in rows),
        "tight_commas": "\n".join(",".join(row) for row in rows),
        "trailing_commas": "\n".join(", ".join(row) + "," for row in rows),
        "lists": "[\n" + ",\n".join(f"  [{', '.join(row)}]" for row in rows) + "\n]",
        "lists_in_a_line": "[" + ",".join(f"[{','.join(row)}]" for row in rows) + "]",
        "texts": "[\n" + ",\n".join(f'  "{" ".join(row)}"' for row in rows) + "\n]",
        "by_row": "{\n" + ",\n".join(f'  "row{i}": [{", ".join(row)}]' for i, row in enumerate(rows, 1)) + "\n}",
        "rulers": "\n".join(ruled),
        "borders": "\n".join([border, *bordered[:3], border, *bordered[3:6], border, *bordered[6:], border]),
        "drawn": "\n".join(
            ["┌───────┬───────┬───────┐", *_banded(drawn, "├───────┼───────┼───────┤"), "└───────┴───────┴───────┘"]
        ),
        "double": "\n".join(["╔═══╤═══╤═══╦═══╗", *_banded(double, "╠═══╪═══╪═══╬═══╣"), "╚═══╧═══╧═══╩═══╝"]),
        "table": "\n".join([head, "|" + "----|" * 9, *table]),
        "labelled_table": "\n".join(
            ["| " + head, "|:--:|" + "----|" * 9, *(f"| **R{i}** {row}" for i, row in enumerate(table, 1))]
        ),
        "headed": "\n".join(["    1 2 3   4 5 6   7 8 9", "  +-------+-------+------", *headed]),
        "lettered": "\n".join(["   A B C D E F G H I", *(f"{i}  {row}" for i, row in enumerate(plain, 1))]),
        "row_labels": "\n".join(f"Row {i}: {row}" for i, row in enumerate(plain, 1)),
        "r_labels": "\n".join(f"R{i}: {', '.join(row)}" for i, row in enumerate(rows, 1)),
        "bold": "\n".join(
            " ".join(f"**{v}**" if (i + j) % 3 else v for j, v in enumerate(row)) for i, row in enumerate(rows)
        ),
        "wide": "\n".join(plain).translate(_WIDE),
        "plus": "\n".join(" ".join(f"+{v}" for v in row) for row in rows),
        "tabs": "\n".join("\t".join(row) for row in rows),
        "bands": "\n".join(_banded(plain, "")),
        "array": "\\begin{array}{|ccc|ccc|ccc|}\n\\hline\n"
        + "\n".join(_banded([" & ".join(row) + " \\\\" for row in rows], "\\hline"))
        + "\n\\end{array}",
        "bmatrix": "\\begin{bmatrix} " + " \\\\ ".join(" & ".join(row) for row in rows) + " \\end{bmatrix}",
        "quoted_rows": "\n> ".join(plain),
        "windows": "\n".join(f"{row}  " for row in plain),
        "stops": "\n".join(f"{row} ." if i == 8 else f"{row} " for i, row in enumerate(plain)),
        "indented": "\n   ".join(plain),
    }


def _banded(lines: list[str], ruler: str) -> list[str]:
    return [*lines[:3], ruler, *lines[3:6], ruler, *lines[6:]]


# --- graph colouring and TSP ---

COLORING_RIGHT = "0,1,2,0,2,1,1,0,2"
TOUR_RIGHT = "0,3,7,1,9,4,2,8,6,5,0"
_WIDE = str.maketrans("0123456789,", "\uff10\uff11\uff12\uff13\uff14\uff15\uff16\uff17\uff18\uff19\uff0c")


def graph_coloring_case() -> Case:
    right = list(map(int, COLORING_RIGHT.split(",")))
    pairs = [(u, v) for u in range(9) for v in range(u + 1, 9) if right[u] != right[v] and (u * v + u) % 3 != 1]
    problem = Problem(id="p", stratum="9", data={"vertices": 9, "colors": 3, "edges": tuple(pairs)})
    return Case(_loaded("graph_coloring", validation_instances=0), problem, COLORING_RIGHT, _color_shapes)


def _color_shapes(answer: str) -> dict[str, str]:
    colors = answer.split(",")
    numbered = list(enumerate(colors))
    return {
        **_list_shapes(colors),
        "by_vertex": "{" + ", ".join(f'"{v}": {c}' for v, c in numbered) + "}",
        "by_vertex_pretty": "{\n" + ",\n".join(f'  "{v}": {c}' for v, c in numbered) + "\n}",
        "dict": "{" + ", ".join(f"{v}: {c}" for v, c in numbered) + "}",
        "pairs": "[" + ", ".join(f"[{v}, {c}]" for v, c in numbered) + "]",
        "tuples": ", ".join(f"({v}, {c})" for v, c in numbered),
        "lines": "\n".join(f"{v}: {c}" for v, c in numbered),
        "words": "\n".join(f"Vertex {v}: color {c}" for v, c in numbered),
        "arrows": "\n".join(f"{v} -> {c}" for v, c in numbered),
        "equals": "\n".join(f"v{v} = {c}" for v, c in numbered),
        "named": ", ".join(f"f({v}) = {c}" for v, c in numbered),
        "table": "| Vertex | Color |\n|---|---|\n" + "\n".join(f"| {v} | {c} |" for v, c in numbered),
        "assigned": "\n".join(f"- Vertex {v} is assigned color {c}." for v, c in numbered),
        "indexed": "\n".join(f"colors[{v}] = {c}" for v, c in numbered),
        "objects": "[" + ", ".join(f'{{"vertex": {v}, "color": {c}}}' for v, c in numbered) + "]",
        "two_lines": f"Vertex: {' '.join(str(v) for v, _ in numbered)}\nColour: {' '.join(colors)}",
        "by_color": "\n".join(
            f"Colour {color}: vertices {', '.join(str(v) for v, c in numbered if c == color)}"
            for color in sorted(set(colors))
        ),
        "two_rows": "| Vertex | "
        + " | ".join(str(v) for v, _ in numbered)
        + " |\n"
        + "|---" * (len(colors) + 1)
        + "|\n"
        "| Color | " + " | ".join(colors) + " |",
        "columns": "vertex,color\n" + "\n".join(f"{v},{c}" for v, c in numbered),
        "remarks": "\n".join(f"{v + 1}. Vertex {v}: {c} (fits)" for v, c in numbered),
        "upright": " \\\\ ".join(f"{v} & {c}" for v, c in numbered),
        "subscripts": ", ".join(f"c_{{{v}}} = {c}" for v, c in numbered),
        "pipes": " | ".join(colors),
        "text_list": json.dumps(colors),
        "table_rows": "\n".join(f"| {v} | {c} |" for v, c in numbered),
        "wrong": ",".join(colors[::-1]),
    }


def tsp_case() -> Case:
    """Cities on a circle, in the order of the right tour."""
    tour = list(map(int, TOUR_RIGHT.split(",")))[:-1]
    angle = {city: 2 * math.pi * place / 10 for place, city in enumerate(tour)}
    distances = [
        [round(math.dist(*((math.cos(angle[c]) * 10, math.sin(angle[c]) * 10) for c in (u, v))), 2) for v in range(10)]
        for u in range(10)
    ]
    problem = Problem(id="p", stratum="", data={"cities": 10, "distances": distances, "coordinates": None})
    return Case(Tsp({"p": 61.8}), problem, TOUR_RIGHT, _tour_shapes)


def _tour_shapes(answer: str) -> dict[str, str]:
    tour = answer.split(",")
    return {
        **_list_shapes(tour),
        "typographic": " → ".join(tour),
        "dashes": " - ".join(tour),
        "latex_arrows": " \\rightarrow ".join(tour),
        "arrows": " -> ".join(tour),
        "texts": json.dumps(tour),
        "steps": "\n".join(f"{step}. City {city}" for step, city in enumerate(tour, 1)),
        "named": ", ".join(f"City {city}" for city in tour),
        "named_arrows": " -> ".join(f"City {city}" for city in tour),
        "legs": "\n".join(f"{u} → {v}" for u, v in pairwise(tour)),
        "leg_tuples": "[" + ", ".join(f"({u}, {v})" for u, v in pairwise(tour)) + "]",
        "letters": ", ".join(f"C{city}" for city in tour),
        "moves": f"city {tour[0]}, city {', then to city '.join(tour[1:-1])}, and back to city {tour[-1]}",
        "to": " to ".join(tour),
        "labelled_steps": "\n".join(
            f"Step {step}: {'Go to' if 1 < step < len(tour) else 'Start in' if step == 1 else 'Return to'} city {city}"
            for step, city in enumerate(tour, 1)
        ),
        "underscored": " -> ".join(f"city_{city}" for city in tour),
        "greater": " > ".join(tour),
        "bulleted": "\n".join(f"- City {city}" for city in tour),
        "numbered": "\n".join(f"{step}. {city}" for step, city in enumerate(tour, 1)),
        "two_lines": ",".join(tour[:6]) + ",\n" + ",".join(tour[6:]),
        "backwards": ",".join(tour[::-1]),
        "wrong": ",".join([tour[0], *tour[1:-1][::2], *tour[1:-1][1::2], tour[-1]]),
    }


def _list_shapes(values: list[str]) -> dict[str, str]:
    return {
        "commas": ", ".join(values),
        "tight": ",".join(values),
        "column": "\n".join(values),
        "blanks": " ".join(values),
        "plus": ",".join(f"+{value}" for value in values),
        "wide": ",".join(values).translate(_WIDE),
        "semicolons": "; ".join(values),
        "ampersands": " & ".join(values),
    }


# --- multiple choice, contests, programs ---

OPTIONS = ("12 dollars", "15 dollars", "18 dollars", "20 dollars")


def mathbench_case() -> Case:
    data = {"question": "A book costs 12 dollars and a pen half as much. What do both cost?", "options": OPTIONS}
    problem = Problem(id="p", stratum="middle", data=data)
    return Case(_loaded("mathbench", source="sample"), problem, "C", _letter_shapes)


def _letter_shapes(letter: str) -> dict[str, str]:
    other = "B" if letter != "B" else "A"
    texts = {one: OPTIONS["ABCD".index(one)] for one in (letter, other)}
    return {"L": letter, "l": letter.lower(), "text": texts[letter], "X": other, "other": texts[other]}


def aime_case() -> Case:
    problem = Problem(id="p", stratum="AIME", data={"problem": "How many?"})
    task = _loaded("aime", source="sample")
    return Case(task, problem, "42", lambda n: {"n": n, "x": "43", "wide": n.translate(_WIDE)})


CODE = 'n = int(input())\nif n % 2:\n    print("odd")\nelse:\n    print("even")'


def livecodebench_case() -> Case:
    data = {"question": "Print the parity.", "func_name": None, "public_tests": (), "starter_code": ""}
    task = _loaded("livecodebench", source="sample")
    return Case(task, Problem(id="p", stratum="easy", data=data), CODE, _code_shapes)


def _code_shapes(code: str) -> dict[str, str]:
    other = 'n = int(input())\nprint("even")'
    return {
        "code": code,
        "json": json.dumps(code),
        "fenced": json.dumps(f"```python\n{code}\n```"),
        "plain_fenced": json.dumps(f"```\n{code}\n```"),
        "lines": json.dumps(code.split("\n")),
        "single": code.replace('"', "'"),
        "other": other,
        "other_json": json.dumps(other),
        "indented": "\n".join(f"   {line}" for line in code.split("\n")),
        "quoted": "\n> ".join(code.split("\n")),
        "windows": code,
    }


CASES: Mapping[str, Callable[[], Case]] = {
    "sudoku": sudoku_case,
    "graph_coloring": graph_coloring_case,
    "tsp": tsp_case,
    "mathbench": mathbench_case,
    "aime": aime_case,
    "livecodebench": livecodebench_case,
}
"""By table. `math500` stands apart: each of its replies has an answer of its own."""


def expression_case(name: str) -> Case:
    """Return the case of a reply in the table `math500`."""
    asked = "What percent is it?" if name.startswith("percent") else "What is the value?"
    problem = Problem(id="p", stratum="MATH", data={"problem": asked})
    return Case(_loaded("math500", source="sample"), problem, name.partition(" == ")[2], lambda _: {})


# --- near misses ---


def wrong_answers(name: str, right: str) -> Iterator[str]:
    """Yield answers of the right form that are wrong."""
    if name == "sudoku":
        cells = right.split()
        yield right[:-1] + "1"
        yield "\n".join(reversed(right.split("\n")))
        yield "\n".join(" ".join(cells[row::9]) for row in range(9))
    elif name == "graph_coloring":
        yield from ("0,1,2,0,2,1,1,0,1", "0,1,2,0,2,1,1,0,3", "1,1,1,1,1,1,1,1,1")
    elif name == "tsp":
        yield from ("0,3,7,1,9,4,2,6,8,5,0", "0,3,7,1,9,4,2,8,6,0", "0,3,7,1,9,4,2,8,6,5,5,0")
    elif name == "mathbench":
        yield from "ABD"
    elif name == "aime":
        yield from ("41", "7", "999")
    else:
        yield "n = int(input())\nprint('odd' if n else 'even')"


def incomplete_answers(name: str, right: str) -> Iterator[str]:
    """Yield answers with something left out, too much or out of range, that none of the replies makes readable."""
    if name == "sudoku":
        lines = right.split("\n")
        yield "\n".join(lines[:8])
        yield "\n".join([*lines, lines[0]])
        yield "\n".join([lines[0][:-2], *lines[1:]])
        yield "\n".join([lines[0][:-1] + "x", *lines[1:]])
    elif name == "graph_coloring":
        yield from (right[:-2], right + ",0", right.replace("2", "red"), right.replace("2", "0.5"))
    elif name == "tsp":
        yield from (right[:-2], right.replace("5", "10"), right.replace("5", "-5"), right.replace("5", "5.5"))
    elif name == "aime":
        yield from ("1042", "42.5", "4x2")
