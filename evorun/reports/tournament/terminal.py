"""A tournament in the terminal."""

from typing import TYPE_CHECKING

from evorun.reports.comparison.terminal import grid_table
from evorun.reports.tournament.grids import facts, ratings_grid, reported_note, warnings, wins_grid
from evorun.runs.tournaments import TournamentResults

if TYPE_CHECKING:
    from evorun.runs.terminal import Terminal

_MAX_COLUMNS = 8
"""Maximum players whose matrix of wins is printed."""


def print_tournament(results: TournamentResults, console: "Terminal", *, simulated: bool = False) -> None:
    """Print the ratings, the matrix of wins, and facts about all matches."""
    for line in warnings(results, simulated=simulated):
        console.print(line, style="bold yellow")
    console.print_table(grid_table("ratings", ratings_grid(results)))
    if note := reported_note(results):
        console.print(note)
    if len(results.players) <= _MAX_COLUMNS:
        console.print_table(grid_table("wins", wins_grid(results)))
    for name, value in facts(results):
        console.print(f"{name}: {value}")
