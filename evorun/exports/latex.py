r"""A table for a paper: LaTeX with booktabs, every cell escaped."""

from evorun.reports.comparison import Comparison
from evorun.reports.comparison.tables import make_main_table
from evorun.reports.facts import SIMULATED_LINE
from evorun.reports.tables import Table
from evorun.reports.text import MISSING

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "\u2013": "--",
    "\u2212": "$-$",
    MISSING: "--",
    "\u00a0": "~",
    "\u2009": r"\,",
    "\u202f": r"\,",
}


def comparison_table(comparison: Comparison) -> str:
    r"""Return the first table of a comparison: scores with 95 % intervals, n and cost, a row for each arm.

    Needs `\usepackage{booktabs}`, and `\usepackage[T1]{fontenc}` for quotes.
    """
    table = make_main_table(comparison, comparison.rows, [], comparison.common_scores)
    simulated = any(run.manifest.simulated for run in comparison.runs)
    return (f"% {SIMULATED_LINE}\n" if simulated else "") + render(table)


def render(table: Table) -> str:
    """Return a table as a `tabular`, figures aligned to the right."""
    alignment = "".join("r" if column.kind == "figure" else "l" for column in table.columns)
    headings = [escape(heading.replace("\n", " ")) for heading in table.headings]
    rows = [[escape(cell) for cell in row] for row in table.shown()]
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            _line(headings),
            r"\midrule",
            *map(_line, rows),
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def escape(text: str) -> str:
    """Return a text that LaTeX typesets as it is; line breaks and control characters become spaces."""
    return "".join(_ESCAPES.get(character, character if character.isprintable() else " ") for character in text)


def _line(cells: list[str]) -> str:
    return " & ".join(cells) + r" \\"
