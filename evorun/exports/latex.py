r"""The tables of a comparison for a paper: LaTeX with booktabs, every cell escaped, figures aligned at their points."""

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from evorun.reports.comparison import ComparedRuns, notes, tables
from evorun.reports.comparison.evolution import OVERHEAD_NOTE, make_overhead_table
from evorun.reports.comparison.findings import describe_finding
from evorun.reports.tables import Table
from evorun.reports.text import MISSING, sentence

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
    "\u2212": "$-$",
    MISSING: "--",
    "\u00a0": "~",
    "\u2009": r"\,",
    "\u202f": r"\,",
}

_NUMBER = re.compile(r"\d[\d,]*(?:\.(\d+))?")


class _Part(NamedTuple):
    """A table of the file."""

    label: str
    heading: str
    note: str
    table: Table


def comparison_tables(comparison: ComparedRuns) -> str:
    r"""Return all tables of a comparison's page as `table` environments with captions, in the page's order.

    Needs `\usepackage{booktabs}`, and `\usepackage[T1]{fontenc}` for quotes. The warnings of the page are comments;
    what makes figures no benchmark result (simulated models, a sample set) is said in each caption, too.
    """
    warnings = "".join(f"% {' '.join(line.split())}\n" for line in comparison.warnings)
    origins = _describe_origins(comparison)
    return warnings + "\n".join(_environment(part, origins) for part in _list_parts(comparison) if part.table.rows)


def _describe_origins(comparison: ComparedRuns) -> str:
    """Say which of the runs are simulated, or on other data than the benchmark; empty where none is."""
    compared = [run.origins for run in comparison.compared_runs]
    found = dict.fromkeys(origin for origins in compared for origin in origins)
    shared = [origin for origin in found if all(origin in origins for origins in compared)]
    partial = [origin for origin in found if origin not in shared]
    return " ".join(
        f"{whose}: {', '.join(words)}." for whose, words in (("All runs", shared), ("Some runs", partial)) if words
    )


def _list_parts(comparison: ComparedRuns) -> Iterator[_Part]:
    primary, pairs = notes.primary_words(comparison), comparison.pairs
    against = notes.pairs_heading(comparison)
    rows, runs, scores = comparison.rows, comparison.run_rows, comparison.common_scores
    main = tables.make_main_table(comparison, rows, [], scores)
    about = f"{notes.intervals_note(comparison)} {notes.cost_note(comparison)}"
    yield _Part("main", f"{primary} and cost", about, main)
    yield _Part("scores", "scores", "", tables.make_scores_table(rows))
    search = tables.make_search_table(rows, comparison.step)
    yield _Part("search", "search and judge", notes.search_note(comparison), search)
    if comparison.strata:
        strata = tables.make_strata_table(comparison, rows, with_intervals=True)
        yield _Part("strata", f"{primary} by stratum", "With 95 % intervals.", strata)
    yield _Part("reported-strata", "reported by stratum", "", tables.make_reported_strata_table(comparison))
    yield _Part("reported-steps", "reported by training step", "", tables.make_reported_steps_table(comparison))
    findings = [notes.pairs_note(comparison), *map(describe_finding, pairs.main_pairs)]
    yield _Part("pairs", against, " ".join(findings), tables.make_pairs_table(pairs.main_pairs))
    score_pairs = tables.make_score_pairs_table(pairs.main_pairs)
    yield _Part("score-pairs", f"{against}: scores", notes.SCORE_PAIRS_NOTE, score_pairs)
    yield _Part("rubrics", "cost of refinement", OVERHEAD_NOTE, make_overhead_table(comparison))
    yield _Part("run-cost", "cost of whole runs", "", tables.make_run_cost_table(comparison))
    yield _Part("cost", "cost per problem, by role", "", tables.make_cost_table(comparison))
    if runs:
        yield _Part("runs", "single runs", "", tables.make_main_table(comparison, runs, [], scores))
        yield _Part("run-pairs", f"{against}, seed by seed", "", tables.make_pairs_table(pairs.seed_pairs))


def _environment(part: _Part, origins: str) -> str:
    caption = escape(" ".join(filter(None, (f"{sentence(part.heading)}.", origins, part.note))))
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption}}}",
            rf"\label{{tab:{part.label}}}",
            render(part.table) + r"\end{table}",
            "",
        ]
    )


def render(table: Table) -> str:
    """Return a table as a `tabular`, figures aligned to the right and at their decimal points."""
    alignment = "".join("r" if column.kind == "figure" else "l" for column in table.columns)
    headings = [escape(heading.replace("\n", " ")) for heading in table.headings]
    cells = [[escape(cell) for cell in column] for column in zip(*table.shown(), strict=True)]
    for place, column in enumerate(table.columns):
        if column.kind == "figure" and cells:
            cells[place] = _align(cells[place])
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            _line(headings),
            r"\midrule",
            *map(_line, zip(*cells, strict=True)),
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def escape(text: str) -> str:
    """Return a text that LaTeX typesets as it is; line breaks and control characters become spaces."""
    return "".join(_ESCAPES.get(character, character if character.isprintable() else " ") for character in text)


def _align(cells: Sequence[str]) -> list[str]:
    r"""Return a column's cells in which each number takes as many decimals as any at its place.

    Zeros that a format drops from its three figures come back; other decimals would claim a precision that the figure
    does not have, so they are invisible.
    """
    decimals = [[len(found[1] or "") for found in _NUMBER.finditer(cell)] for cell in cells]
    widest = [max(places) for places in zip_longest(*decimals, fillvalue=0)]

    def pad(cell: str) -> str:
        places = iter(widest)

        def fill(found: re.Match[str]) -> str:
            shown, wanted = found[0], next(places)
            point, has = ("" if found[1] else "."), len(found[1] or "")
            zeros = min(wanted, 2) - has if re.match(r"[1-9](\.|$)", shown) else 0
            if zeros > 0:
                shown, point, has = f"{shown}{point}{'0' * zeros}", "", has + zeros
            return shown + (rf"\phantom{{{point}{'0' * (wanted - has)}}}" if has < wanted else "")

        return _NUMBER.sub(fill, cell)

    return [pad(cell) for cell in cells]


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
