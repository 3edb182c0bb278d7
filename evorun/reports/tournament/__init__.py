"""A tournament's ratings, in the terminal and on their own page. Reads only a tournament's folder."""

from evorun.reports.tournament.page import write_tournament_page
from evorun.reports.tournament.terminal import print_tournament

__all__ = ["print_tournament", "write_tournament_page"]
