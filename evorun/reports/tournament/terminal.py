"""A tournament in the terminal."""

from typing import TYPE_CHECKING

from evorun.reports.tournament.tables import facts, ratings_table, reported_note, warnings, wins_table
from evorun.runs.tournaments import TournamentResults

if TYPE_CHECKING:
    from evorun.runs.terminal import Terminal

_MAX_COLUMNS = 8
"""Maximum players whose matrix of wins is printed."""


def print_tournament(results: TournamentResults, console: "Terminal", *, simulated: bool = False) -> None:
    """Print the ratings, the matrix of wins, and facts about all matches."""
    for line in warnings(results, simulated=simulated):
        console.print(line, style="bold yellow")
    console.print_table(ratings_table(results).in_terminal())
    if note := reported_note(results):
        console.print(note)
    if len(results.players) <= _MAX_COLUMNS:
        console.print_table(wins_table(results).in_terminal())
    for name, value in facts(results):
        console.print(f"{name}: {value}")
