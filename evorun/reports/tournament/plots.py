"""The figure of a tournament: ratings with their intervals."""

from evorun.reports.drawing import RUNS, SERIES, Drawing, drawing_of, figure_of
from evorun.runs.printable import printable
from evorun.runs.tournaments import Player, TournamentResults

_SHOWN = 40
"""Players drawn at most, the best of them; all are in the table."""

_LONGEST = 60
"""Characters of a name that are drawn."""

_Line = tuple[float, float, float]
"""A rating and the ends of its line."""


def ratings_plot(results: TournamentResults) -> Drawing:
    """Draw Elo with the standard deviation over repetitions, beside Bradley-Terry ratings with 95 % intervals."""
    players = results.players[:_SHOWN]
    kinds: tuple[tuple[str, str, list[_Line | None]], ...] = (
        ("Elo, mean \u00b1 sd", SERIES, [_elo(one) for one in players]),
        ("Bradley-Terry, 95 % interval", RUNS[2], [_model(one, "bradley_terry") for one in players]),
        ("at equal length, 95 % interval", RUNS[4], [_model(one, "equal_length") for one in players]),
    )
    with figure_of(10.4, 1.2 + 0.45 * len(players)) as figure:
        axes = figure.subplots()
        for (label, colour, found), offset in zip(kinds, (-0.2, 0.0, 0.2), strict=True):
            drawn = [(row + offset, *one) for row, one in enumerate(found) if one is not None]
            if drawn:
                heights, values, lows, highs = zip(*drawn, strict=True)
                axes.hlines(heights, lows, highs, color=colour, alpha=0.5)
                axes.plot(values, heights, "o", color=colour, label=label)
        axes.set_yticks(range(len(players)), [_short(printable(one.name)) for one in players])
        axes.set_ylim(len(players) - 0.5, -0.5)
        axes.grid(axis="x")
        axes.set_xlabel("rating in points")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
        return drawing_of(figure, "ratings", "Ratings of a tournament's runs with their intervals")


def _elo(player: Player) -> _Line:
    spread = player.sd or 0.0
    return player.elo, player.elo - spread, player.elo + spread


def _model(player: Player, kind: str) -> _Line | None:
    rating = getattr(player, kind)
    if rating is None:
        return None
    return rating.value, *(rating.value if end is None else end for end in (rating.low, rating.high))


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "\u2026"
