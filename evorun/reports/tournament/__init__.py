"""A tournament's ratings: in the terminal, and on a page of its own. Reads a tournament's folder only."""

from evorun.reports.tournament.page import write_tournament_page
from evorun.reports.tournament.terminal import print_tournament

__all__ = ["print_tournament", "write_tournament_page"]
