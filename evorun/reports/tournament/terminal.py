"""A tournament in the terminal."""

from typing import TYPE_CHECKING

from evorun.reports.comparison.terminal import grid_table, print_uncut
from evorun.reports.tournament.grids import facts, ratings_grid, reported_note, warnings, wins_grid
from evorun.runs.tournaments import TournamentResults

if TYPE_CHECKING:
    from evorun.runs.terminal import Terminal

_MOST_COLUMNS = 8
"""Players at most whose matrix of wins is printed."""


def print_tournament(results: TournamentResults, console: "Terminal", *, simulated: bool = False) -> None:
    """Print the ratings, who won against whom, and what is told of all matches."""
    from rich.text import Text

    for line in warnings(results, simulated=simulated):
        console.print(Text(line, style="bold yellow"))
    print_uncut(grid_table("ratings", ratings_grid(results)), console)
    if note := reported_note(results):
        console.print(Text(note))
    if len(results.players) <= _MOST_COLUMNS:
        print_uncut(grid_table("wins", wins_grid(results)), console)
    for name, value in facts(results):
        console.print(Text(f"{name}: {value}"))
