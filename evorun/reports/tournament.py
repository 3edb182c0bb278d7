"""A tournament's ratings, in the terminal and on their own page. Reads only a tournament's folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from evorun.reports import text
from evorun.reports.drawing import RUNS, SERIES, Drawing, make_drawing, open_figure
from evorun.reports.html import REPORT
from evorun.reports.page import markup, own_file, render, write_page
from evorun.reports.tables import Table, data_table, figure_columns, word_columns
from evorun.reports.text import sentence
from evorun.runs.printable import printable
from evorun.runs.schema import Metric
from evorun.runs.tournaments import Player, Rating, TournamentResults, load_tournament, load_tournament_results

if TYPE_CHECKING:
    from evorun.runs.terminal import Terminal


def ratings_table(results: TournamentResults) -> Table:
    """Return a row per player, the best first."""
    players = results.players
    models = {"bradley_terry": "Bradley-\nTerry", "equal_length": "at equal\nlength"}
    shown = [name for name in models if any(getattr(player, name) for player in players)]
    measured = any(player.words is not None for player in players)
    reported = any(player.reported is not None for player in players)
    columns = ["Elo", "sd", *(["reported", "sd"] if reported else []), "win / tie / loss", "score"]
    columns += [column for name in shown for column in (models[name], "95 % interval")]
    columns += ["words", "no\nresponse"] if measured else []
    table = Table([*word_columns("player"), *figure_columns(*columns)], title="ratings")
    for player in players:
        games = f"{player.wins:,} / {player.ties:,} / {player.losses:,}"
        row = [player.name, f"{player.elo:,.1f}", _decimal(player.sd)]
        row += [text.number(player.reported), text.number(player.reported_sd)] if reported else []
        row += [games, text.percent(_score(player))]
        row += [cell for name in shown for cell in _cells(getattr(player, name))]
        row += [text.count(player.words), text.count(player.unanswered)] if measured else []
        table.rows.append(row)
    return table


def wins_table(results: TournamentResults) -> Table:
    """Return each player's share of the score against each other player, and the number of their matches."""
    players = results.players
    numbers = figure_columns(*(str(number) for number in range(1, len(players) + 1)))
    table = Table([*word_columns("player"), *numbers], title="wins")
    for number, (player, scored, met) in enumerate(zip(players, results.scores, results.meetings, strict=True), 1):
        shares = [f"{text.percent(score / n)} of {n:,}" if n else "" for score, n in zip(scored, met, strict=True)]
        table.rows.append([f"{number}  {player.name}", *shares])
    return table


def facts(results: TournamentResults) -> Iterator[tuple[str, str]]:
    """Yield facts about all matches together: name and value."""
    yield (
        "matches",
        f"{results.matches:,} in {results.repetitions:,} repetition{'s' if results.repetitions > 1 else ''}",
    )
    if results.judgments is not None:
        yield "judgments", f"{results.judgments:,} distinct ones, each asked for once"
    if results.prompts is not None:
        yield "common prompts", f"{results.prompts:,}"
    if results.first_shown is not None:
        yield "position bias", f"{_share(results.first_shown)} of the decided judgments name the response shown first"
    if results.order_agreement is not None and results.order_agreement.n:
        yield "both orders", f"{_share(results.order_agreement)} of the pairs judged in both orders agree"
    if results.length_effect is not None:
        value, interval = _cells(results.length_effect, sign="+")
        yield "effect of length", f"{value} points ({interval}) for a response twice as long as the other"
    if results.invalid:
        reasons = ", ".join(f"{count:,} {text.words(reason)}" for reason, count in results.invalid.items())
        yield "invalid judgments", f"{reasons}; they count as no match"
    if results.forfeits:
        yield "forfeits", f"{results.forfeits:,} pairs that a run loses, since it has no response to the prompt"
    if results.cost is not None:
        cost = results.cost
        yield (
            "cost of the judge",
            f"{cost.calls:,} calls, {cost.prompt_tokens:,} prompt and {cost.completion_tokens:,} completion tokens",
        )


def warnings(results: TournamentResults, *, simulated: bool = False) -> Iterator[str]:
    """Yield what a reader must know before trusting the ratings."""
    if simulated:
        yield "Simulated: no language model judged, or none wrote the responses; ratings say nothing about real models."
    if results.ended_early:
        yield text.sentence(results.ended_early) + "."
    if results.no_intervals:
        yield text.sentence(results.no_intervals) + "."
    invalid = sum(results.invalid.values())
    if results.judgments and invalid > results.judgments / 10:
        yield f"{text.percent(invalid / results.judgments)} of the judgments were invalid: ratings use the valid ones."


def reported_note(results: TournamentResults) -> str | None:
    """Return a note that explains reported ratings; None without any."""
    if all(player.reported is None for player in results.players):
        return None
    return (
        "Reported: the paper's Elo of such a run, from a tournament with other runs and another judge. Ratings compare "
        "only within a tournament, so only their order and distances can agree."
    )


def _score(player: Player) -> float | None:
    played = player.wins + player.ties + player.losses
    return (player.wins + player.ties / 2) / played if played else None


def _cells(rating: Rating | None, sign: str = "") -> list[str]:
    if rating is None:
        return [text.MISSING] * 2
    value, low, high = (
        None if number is None else f"{number:{sign},.0f}" for number in (rating.value, rating.low, rating.high)
    )
    return [str(value), text.MISSING if low is None else f"{low} to {high}"]


def _decimal(value: float | None) -> str:
    return text.MISSING if value is None else f"{value:,.1f}"


def _share(metric: Metric) -> str:
    interval = "" if metric.ci95 is None else f" ({text.interval(metric.ci95)})"
    return f"{text.percent(metric.value)}{interval}"


_MAX_PLAYERS = 40
"""Maximum players in the figure, the best ones; the table has all."""

_MAX_NAME = 60
"""Maximum characters of a name in the figure."""

_Line = tuple[float, float, float]
"""A rating and the ends of its line."""


def ratings_plot(results: TournamentResults) -> Drawing:
    """Draw Elo with the standard deviation over repetitions, beside Bradley-Terry ratings with 95 % intervals."""
    players = results.players[:_MAX_PLAYERS]
    kinds: tuple[tuple[str, str, list[_Line | None]], ...] = (
        ("Elo, mean \u00b1 sd", SERIES, [_elo(player) for player in players]),
        ("Bradley-Terry, 95 % interval", RUNS[2], [_model(player, "bradley_terry") for player in players]),
        ("at equal length, 95 % interval", RUNS[4], [_model(player, "equal_length") for player in players]),
    )
    with open_figure(10.4, 1.2 + 0.45 * len(players)) as figure:
        axes = figure.subplots()
        for (label, colour, found), offset in zip(kinds, (-0.2, 0.0, 0.2), strict=True):
            drawn = [(row + offset, *line) for row, line in enumerate(found) if line is not None]
            if drawn:
                heights, values, lows, highs = zip(*drawn, strict=True)
                axes.hlines(heights, lows, highs, color=colour, alpha=0.5)
                axes.plot(values, heights, "o", color=colour, label=label)
        axes.set_yticks(range(len(players)), [_short(printable(player.name)) for player in players])
        axes.set_ylim(len(players) - 0.5, -0.5)
        axes.grid(axis="x")
        axes.set_xlabel("rating in points")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
        return make_drawing(figure, "ratings", "Ratings of a tournament's runs with their intervals")


def _elo(player: Player) -> _Line:
    spread = player.sd or 0.0
    return player.elo, player.elo - spread, player.elo + spread


def _model(player: Player, kind: str) -> _Line | None:
    rating = getattr(player, kind)
    if rating is None:
        return None
    return rating.value, *(rating.value if end is None else end for end in (rating.low, rating.high))


def _short(name: str) -> str:
    return name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "\u2026"


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
            "tournament.html.j2",
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
