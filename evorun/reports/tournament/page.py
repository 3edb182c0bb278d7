"""report.html of a tournament: a page that opens from disk, loads nothing, and escapes hostile texts."""

from pathlib import Path

from evorun.reports.html import REPORT
from evorun.reports.page import markup, own_file, render, write_page
from evorun.reports.tables import Table, data_table
from evorun.reports.text import sentence
from evorun.reports.tournament.plots import ratings_plot
from evorun.reports.tournament.tables import facts, ratings_table, reported_note, warnings, wins_table
from evorun.runs.tournaments import TournamentResults, load_tournament, load_tournament_results


def write_tournament_page(folder: Path) -> Path:
    """Write the page of a tournament that has ended, atomically replacing an earlier one, and return its path.

    Raises RunDirectoryError for a folder that is not a tournament's or cannot be written.
    """
    manifest, results = load_tournament(folder), load_tournament_results(folder)
    judge = f"{manifest.judge.label}, engine {manifest.judge.engine}"
    about = [("task", manifest.task), ("judge", judge), ("started", manifest.started), *facts(results)]
    return write_page(
        folder / REPORT,
        render(
            "tournament/tournament.html.j2",
            {
                "title": f"Tournament of {len(results.players)} runs on {manifest.task}",
                "warnings": list(warnings(results, simulated=manifest.simulated)),
                "facts": [(sentence(name), value) for name, value in about],
                "ratings": ratings_table(results),
                "reported_note": reported_note(results),
                "wins": wins_table(results),
                "plot": ratings_plot(results),
                "table": _data(results),
                "runs": manifest.runs,
                "settings": manifest.settings,
                "command": " ".join(manifest.command),
                "style": markup(own_file("report.css") + own_file("comparison/comparison.css")),
            },
        ),
    )


def _data(results: TournamentResults) -> Table:
    """Return the ratings as a table for other programs."""
    columns = ["run", "elo", "sd", "wins", "ties", "losses", "no_response", "words", "reported", "reported_sd"]
    models = ("bradley_terry", "equal_length")
    columns += [f"{model}{end}" for model in models for end in ("", "_low", "_high")]
    rows = []
    for player in results.players:
        ratings = [getattr(player, model) for model in models]
        ends = [
            None if rating is None else getattr(rating, end) for rating in ratings for end in ("value", "low", "high")
        ]
        played = [
            player.wins,
            player.ties,
            player.losses,
            player.unanswered,
            player.words,
            player.reported,
            player.reported_sd,
        ]
        rows.append([player.name, player.elo, player.sd, *played, *ends])
    return data_table("ratings", columns, rows)
