"""The figure of a tournament: ratings with their intervals."""

from evorun.reports.drawing import RUNS, SERIES, Drawing, make_drawing, open_figure
from evorun.runs.printable import printable
from evorun.runs.tournaments import Player, TournamentResults

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
