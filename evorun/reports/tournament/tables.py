"""The tables of a tournament, cell by cell, for both the page and the terminal."""

from collections.abc import Iterator

from evorun.reports import text
from evorun.reports.tables import Table, figure_columns, word_columns
from evorun.runs.schema import Metric
from evorun.runs.tournaments import Player, Rating, TournamentResults


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
