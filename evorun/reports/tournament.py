"""A tournament's ratings, in the terminal and on their own page. Reads only a tournament's folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from evorun.reports import text
from evorun.reports.drawing import RUNS, SERIES, Drawing, make_drawing, marked_drawings, open_figure
from evorun.reports.page import markup, own_file, render, write_page
from evorun.reports.tables import Cell, Column, Table, figure_columns, make_data_table, make_table, word_columns
from evorun.reports.text import sentence
from evorun.runs.directory import REPORT
from evorun.runs.printable import printable
from evorun.runs.schema import Metric
from evorun.runs.tournaments import Player, Rating, TournamentResults, load_tournament, load_tournament_results

if TYPE_CHECKING:
    from evorun.runs.terminal import Terminal


def make_ratings_table(results: TournamentResults) -> Table:
    """Return a row per player, the best first."""
    records: list[dict[str, Cell]] = []
    for player in results.players:
        played = player.wins + player.ties + player.losses
        records.append(
            {
                "player": player.name,
                "Elo": f"{player.elo:,.1f}",
                "sd": text.MISSING if player.sd is None else f"{player.sd:,.1f}",
                "reported": None if player.reported is None else text.number(player.reported),
                "reported\nsd": None if player.reported_sd is None else text.number(player.reported_sd),
                "win / tie / loss": f"{player.wins:,} / {player.ties:,} / {player.losses:,}",
                "score": text.percent((player.wins + player.ties / 2) / played if played else None),
                **_format_rating("Bradley-\nTerry", "95 % interval", player.bradley_terry),
                **_format_rating("at equal\nlength", "95 % interval\nat equal length", player.equal_length),
                "words": None if player.words is None else text.count(player.words),
                "no\nresponse": None if player.words is None else text.count(player.unanswered),
            }
        )
    return make_table(records, words=("player",), title="ratings")


def _format_rating(name: str, interval: str, rating: Rating | None, sign: str = "") -> dict[str, Cell]:
    """Return a rating and its interval under these names; None for both without a rating."""
    if rating is None:
        return {name: None, interval: None}

    def show(points: float | None) -> str | None:
        shown = "" if points is None else f"{points:{sign},.0f}"
        return None if points is None else "0" if shown in ("-0", "+0") else shown.replace("-", text.MINUS)

    value, low, high = map(show, (rating.value, rating.low, rating.high))
    return {name: value, interval: text.MISSING if low is None else f"{low} to {high}"}


def make_wins_table(results: TournamentResults) -> Table:
    """Return each player's share of the score against each other player, and the number of their matches."""
    players = results.players
    numbers = figure_columns(*(str(number) for number in range(1, len(players) + 1)))
    table = Table([*word_columns("player"), *numbers], title="wins")
    for number, (player, scored, met) in enumerate(zip(players, results.scores, results.meetings, strict=True), 1):
        shares = [f"{text.percent(score / n)} of {n:,}" if n else "" for score, n in zip(scored, met, strict=True)]
        table.rows.append([f"{number}  {player.name}", *shares])
    return table


def list_facts(results: TournamentResults) -> Iterator[tuple[str, str]]:
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
        yield (
            "position bias",
            f"{_format_share(results.first_shown)} of the decided judgments name the response shown first",
        )
    if results.order_agreement is not None and results.order_agreement.n:
        yield "both orders", f"{_format_share(results.order_agreement)} of the pairs judged in both orders agree"
    if results.length_effect is not None:
        value, interval = _format_rating("value", "interval", results.length_effect, sign="+").values()
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


def list_warnings(results: TournamentResults, *, simulated: bool = False) -> Iterator[str]:
    """Yield warnings about the ratings."""
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


def _format_share(metric: Metric) -> str:
    trials = ", each as one trial," if metric.value in (0, 1) else ""
    interval = "" if metric.ci95 is None else f" (95 % interval over prompts{trials} {text.interval(metric.ci95)})"
    return f"{text.percent(metric.value)}{interval}"


_MAX_PLAYERS = 40
"""Maximum players in the figure, the best ones; the table has all."""

_MAX_NAME = 60
"""Maximum characters of a name in the figure."""

_Line = tuple[float, float, float]
"""A rating and the ends of its line."""


def draw_ratings(results: TournamentResults) -> Drawing:
    """Draw Elo with the standard deviation over repetitions, beside Bradley-Terry ratings with 95 % intervals."""
    players = results.players[:_MAX_PLAYERS]
    kinds: tuple[tuple[str, str, list[_Line | None]], ...] = (
        ("Elo, mean \u00b1 sd", SERIES, [_list_elo(player) for player in players]),
        ("Bradley-Terry, 95 % interval", RUNS[2], [_list_rating(player, "bradley_terry") for player in players]),
        ("at equal length, 95 % interval", RUNS[4], [_list_rating(player, "equal_length") for player in players]),
    )
    with open_figure(10.4, 1.2 + 0.45 * len(players)) as figure:
        axes = figure.subplots()
        for (label, colour, found), offset in zip(kinds, (-0.2, 0.0, 0.2), strict=True):
            drawn = [(row + offset, *line) for row, line in enumerate(found) if line is not None]
            if drawn:
                heights, values, lows, highs = zip(*drawn, strict=True)
                axes.hlines(heights, lows, highs, color=colour, alpha=0.5)
                axes.plot(values, heights, "o", color=colour, label=label)
        axes.set_yticks(range(len(players)), [_shorten(printable(player.name)) for player in players])
        axes.set_ylim(len(players) - 0.5, -0.5)
        axes.grid(axis="x")
        axes.set_xlabel("rating in points")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
        return make_drawing(figure, "ratings", "Ratings of a tournament's runs with their intervals")


def _list_elo(player: Player) -> _Line:
    spread = player.sd or 0.0
    return player.elo, player.elo - spread, player.elo + spread


def _list_rating(player: Player, kind: str) -> _Line | None:
    rating = getattr(player, kind)
    if rating is None:
        return None
    return rating.value, *(rating.value if end is None else end for end in (rating.low, rating.high))


def _shorten(name: str) -> str:
    return name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "\u2026"


def write_tournament_page(folder: Path) -> Path:
    """Write the page of a tournament that has ended, atomically replacing an earlier one, and return its path.

    Raises RunDirectoryError for a folder that is not a tournament's or cannot be written.
    """
    return write_page(folder / REPORT, render_tournament(folder))


def render_tournament(folder: Path) -> str:
    """Return the page of a tournament that has ended. Raises RunDirectoryError for another folder."""
    manifest, results = load_tournament(folder), load_tournament_results(folder)
    judge = f"{manifest.judge.label}, engine {manifest.judge.engine}"
    about = [("task", manifest.task), ("judge", judge), ("started", manifest.started), *list_facts(results)]
    settings = [Column("setting", str, "code"), *word_columns("value")]
    with marked_drawings("simulated" if manifest.simulated else ""):
        plot = draw_ratings(results)
    return render(
        "tournament.html.j2",
        {
            "script_hash": None,
            "title": f"Tournament of {len(results.players)} runs on {manifest.task}",
            "warnings": list(list_warnings(results, simulated=manifest.simulated)),
            "facts": [(sentence(name), value) for name, value in about],
            "ratings": make_ratings_table(results),
            "reported_note": reported_note(results),
            "wins": make_wins_table(results),
            "plot": plot,
            "table": _make_data_table(results),
            "runs": Table(word_columns("run", "folder"), list(manifest.runs.items())),
            "settings": manifest.settings,
            "settings_table": Table(settings, list(manifest.settings.items())),
            "command": " ".join(manifest.command),
            "style": markup(own_file("report.css") + own_file("comparison/comparison.css")),
        },
    )


def _make_data_table(results: TournamentResults) -> Table:
    """Return the ratings as a table for other programs."""
    columns = ["run", "elo", "sd", "wins", "ties", "losses", "no_response", "words", "reported", "reported_sd"]
    columns += [f"{model}{end}" for model in ("bradley_terry", "equal_length") for end in ("", "_low", "_high")]
    table = make_data_table("ratings", columns, [])
    for player in results.players:
        cells: list[Cell] = [player.name, player.elo, player.sd, player.wins, player.ties, player.losses]
        cells += [player.unanswered, player.words, player.reported, player.reported_sd]
        for rating in (player.bradley_terry, player.equal_length):
            cells += [None] * 3 if rating is None else [rating.value, rating.low, rating.high]
        table.rows.append(cells)
    return table


_MAX_COLUMNS = 8
"""Maximum players whose matrix of wins is printed."""


def print_tournament(results: TournamentResults, console: "Terminal", *, simulated: bool = False) -> None:
    """Print the ratings, the matrix of wins, and facts about all matches."""
    for line in list_warnings(results, simulated=simulated):
        console.print(line, style="bold yellow")
    console.print_table(make_ratings_table(results).to_rich())
    if note := reported_note(results):
        console.print(note)
    if len(results.players) <= _MAX_COLUMNS:
        console.print_table(make_wins_table(results).to_rich())
    for name, value in list_facts(results):
        console.print(f"{name}: {value}")
