"""A problem's candidates and what came of their duels, as a table for the terminal."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from evorun.reports import text
from evorun.reports.browser import BrowserProblem
from evorun.reports.packing import cut
from evorun.reports.tables import Cell, Table, figure_columns, prose_columns, word_columns
from evorun.runs.formats import counted
from evorun.runs.printable import printable
from evorun.runs.scores import Score

MAX_CANDIDATES = 20
"""Maximum candidates of a problem in a terminal (ours); the page has all."""
_MAX_ANSWER = 60
"""Characters of an answer, which may be a whole program (ours)."""


def make_problem_table(problem: BrowserProblem, measure: Score, step: str) -> Table:
    """Return the candidates of a problem, the highest rated first; without ratings, the latest in order of arrival.

    measure: says how good a response is. step: the word for the steps that make candidates.
    """
    # what the page carries, so that both say the same
    data = msgspec.json.decode(problem.packed.json)
    candidates, chosen = data["candidates"], data["chosen"]
    ratings = [c["mean"] if c["fitness"] is None else c["fitness"] for c in candidates]
    if any(rating is not None for rating in ratings):
        order = "highest rated"
        ranked = sorted((place for place, rating in enumerate(ratings) if rating is not None), key=ratings.__getitem__)
        unrated = [place for place, rating in enumerate(ratings) if rating is None]
        shown = [*reversed(ranked), *unrated][:MAX_CANDIDATES]
    else:
        order = "latest"
        shown = list(range(len(candidates)))[-MAX_CANDIDATES:]
    if chosen is not None and chosen not in shown:
        shown[-1] = chosen
    results = _count_results(data["duels"])
    rows = list[list[Cell]]()
    for place in shown:
        one = candidates[place]
        answer = cut(" ".join((one["answer"] or "none").split()), _MAX_ANSWER)
        parents = ", ".join(candidates[parent]["id"] for parent in one["parents"])
        row: list[Cell] = [f"{one['id']} (returned)" if place == chosen else one["id"], one["generation"]]
        row += [parents or None, answer, _show_grade(one, measure), _show_rating(one)]
        # made printable before a column takes the width of its cells
        row = [printable(cell) if isinstance(cell, str) else cell for cell in row]
        rows.append(row + ([results[place, result] for result in _RESULTS] if data["duels"] else []))
    rating = "fitness" if any(c["fitness"] is not None for c in candidates) else "rating ± sd"
    columns = [
        *word_columns("candidate"),
        *figure_columns(step),
        *word_columns("parents"),
        *prose_columns("answer"),
        *figure_columns("graded" if measure.is_correctness else text.name_score(measure)),
        *figure_columns(rating),
        *(figure_columns(*_RESULTS) if data["duels"] else []),
    ]
    whole = len(shown) == len(candidates)
    title = f"{problem.id}: {counted(len(candidates), 'candidate')}"
    return Table(
        columns,
        [*rows],
        title=title if whole else f"{title}, the {MAX_CANDIDATES} {order} here",
        caption=_describe_duels(data["duels"]),
    )


_RESULTS = ("won", "lost", "undecided")


def _count_results(duels: list[list[Any]]) -> Counter[tuple[int, str]]:
    """Count the duels by place of a candidate and what came of them for it."""
    found = Counter[tuple[int, str]]()
    for _, first, second, _, outcome, _ in duels:
        for place, side in ((first, "first"), (second, "second")):
            found[place, "undecided" if outcome is None else "won" if outcome == side else "lost"] += 1
    return found


def _describe_duels(duels: list[list[Any]]) -> str:
    if not duels:
        return ""
    decided = sum(duel[4] is not None for duel in duels)
    return f"{counted(len(duels), 'duel')} in all: {decided:,} decided, {len(duels) - decided:,} undecided."


def _show_grade(candidate: Mapping[str, Any], measure: Score) -> str:
    if not measure.is_correctness:
        return text.value(measure, candidate["value"])
    return {True: "right", False: "wrong", None: text.MISSING}[candidate["correct"]]


def _show_rating(candidate: Mapping[str, Any]) -> str:
    if candidate["fitness"] is not None:
        return text.number(candidate["fitness"])
    mean, sd = candidate["mean"], candidate["sd"]
    return text.number(mean) if mean is None or sd is None else f"{text.number(mean)} ± {text.number(sd)}"
