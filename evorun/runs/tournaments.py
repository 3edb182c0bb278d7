"""The records of a tournament's folder, and the ratings computed from its matches."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from evorun.ratings import elo
from evorun.ratings.paired_logit import Fit, Intervals, PairedLogit, resample_clusters, resample_matches
from evorun.runs.candidates import Verdict
from evorun.runs.directory import TOURNAMENT
from evorun.runs.files import read_json
from evorun.runs.manifest import ModelInRun
from evorun.runs.schema import Metric, Spent
from evorun.runs.studies import StudyManifest

MATCHES = "matches.jsonl"
JUDGMENTS = "judgments.jsonl"
RESULTS = "results.json"

MAX_PLAYERS = 300
"""Maximum players for Bradley-Terry ratings (ours): a thousand fits take time cubic in the players."""


class TournamentManifest(StudyManifest, kw_only=True):
    """tournament.json: a tournament's players, settings and status.

    Its identity: the runs, the task, the judge, seed and sampling.
    """

    task: str
    runs: dict[str, str]
    """Folder of each run, by its name in the tournament; absolute."""
    judge: ModelInRun


class MatchRecord(msgspec.Struct, kw_only=True):
    """A line of matches.jsonl: a match of a repetition. The file is also a valid match log."""

    a: str
    """Shown to the judge first."""
    b: str
    winner: str | None
    """None: a tie."""
    repetition: int
    """From 1."""
    problem: str
    forfeit: bool = False
    """True where one side has no response, so that nothing was judged."""


class JudgmentRecord(msgspec.Struct, kw_only=True):
    """A line of judgments.jsonl: the judge's verdict on two responses, shown in this order."""

    problem: str
    a: str
    b: str
    verdict: Verdict
    reason: str
    invalid: str | None = None
    """Why there is no verdict: rejected (the request was refused), cut_off (at the token limit) or unreadable."""


class Rating(msgspec.Struct, frozen=True):
    """A rating on the Elo scale and its 95 % interval, where one can be computed."""

    value: float
    low: float | None = None
    high: float | None = None


class Player(msgspec.Struct, kw_only=True):
    """A player's results."""

    name: str
    elo: float
    """Mean over the repetitions."""
    sd: float | None = None
    """Standard deviation over the repetitions (n - 1); None with one."""
    elo_by_repetition: list[float]
    bradley_terry: Rating | None = None
    equal_length: Rating | None = None
    """The Bradley-Terry rating at equal length."""
    wins: int
    """Counted over distinct judgments, like `ties` and `losses`."""
    ties: int
    losses: int
    unanswered: int = 0
    """Prompts without a response of the run, which count as losses."""
    words: float | None = None
    """Mean length of its responses."""
    reported: float | None = None
    """The Elo rating that the paper reports for this method, which the run's configuration states."""
    reported_sd: float | None = None
    """Its standard deviation over the paper's repetitions."""


class TournamentResults(msgspec.Struct, kw_only=True):
    """results.json of a tournament, and what `output=FILE.json` holds."""

    elo: dict[str, float]
    """By name, the best first; so is `sd`."""
    sd: dict[str, float | None]
    players: list[Player]
    repetitions: int
    """Repetitions behind the Elo ratings."""
    matches: int
    """Matches in all repetitions together."""
    scores: list[list[float]]
    """Points that each player has scored against each other (win 1, tie 0.5), in the order of `players`."""
    meetings: list[list[int]]
    """Number of matches between each two players."""
    prompts: int | None = None
    judgments: int | None = None
    """Distinct judgments, each asked for once; in a log, its matches."""
    invalid: dict[str, int] = {}
    """Judgments without a verdict, by reason; not among the matches."""
    forfeits: int = 0
    first_shown: Metric | None = None
    """Share of decided judgments that name the response shown first."""
    order_agreement: Metric | None = None
    """Share of pairs, judged in both orders, on which the two judgments agree."""
    length_effect: Rating | None = None
    """Points that a response gains by being twice as long as the other."""
    cost: Spent | None = None
    ended_early: str | None = None
    no_intervals: str | None = None
    """The reason why a log's Bradley-Terry ratings have no intervals."""


def load_tournament(folder: Path) -> TournamentManifest:
    """Read a tournament's manifest. Raises RunDirectoryError."""
    return read_json(folder / TOURNAMENT, TournamentManifest)


def load_tournament_results(folder: Path) -> TournamentResults:
    """Read a tournament's results. Raises RunDirectoryError."""
    return read_json(folder / RESULTS, TournamentResults)


class Games(NamedTuple):
    """Matches as columns of equal length."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    score: NDArray[np.float64]
    """Score of `first`: 1, 0.5 or 0."""

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, float]]) -> "Games":
        """Build the columns from rows (first, second, score of the first)."""
        first, second, score = zip(*rows, strict=True) if rows else ((), (), ())
        return cls(np.array(first, np.int64), np.array(second, np.int64), np.array(score, np.float64))


class BradleyTerryRatings(NamedTuple):
    """Bradley-Terry ratings by player, and the effect of length where the model includes it."""

    ratings: list[Rating]
    length_effect: Rating | None = None


def bradley_terry(
    n_players: int,
    games: Games,
    *,
    initial: float,
    resamples: int,
    cluster: NDArray[np.int64] | None = None,
    longer: NDArray[np.float64] | None = None,
) -> BradleyTerryRatings:
    """Rate all players jointly, on the Elo scale around `initial`, with bootstrap percentile intervals.

    cluster: the number of each match's prompt; the bootstrap resamples prompts, or without them single matches.
    longer: log of the first response's length over the second's; the ratings are then those at equal length.
    """
    counts = np.ones(len(games.score))
    if cluster is None and longer is None:
        games, counts = _count_distinct(n_players, games)
    covariates = None if longer is None else longer[:, None] / np.log(2)
    model = PairedLogit(n_players, *games, covariates)
    fitted, rng = model.fit(counts), np.random.default_rng(0)
    ends: Intervals | None = None
    if (int(counts.sum()) if cluster is None else len(set(cluster.tolist()))) > 1 and resamples > 1:
        resampled_counts = (
            resample_matches(counts, resamples, rng) if cluster is None else resample_clusters(cluster, resamples, rng)
        )
        ends = model.intervals(fitted, resampled_counts)

    def rated(part: str, around: float) -> list[Rating]:
        def points(fit: Fit) -> list[float]:
            values: list[float] = (around + elo.SCALE * getattr(fit, part)).tolist()
            return values

        if ends is None:
            return [Rating(value) for value in points(fitted)]
        return [Rating(*row) for row in zip(points(fitted), points(ends.low), points(ends.high), strict=True)]

    return BradleyTerryRatings(rated("utilities", initial), next(iter(rated("effects", 0)), None))


def _count_distinct(n_players: int, games: Games) -> tuple[Games, NDArray[np.float64]]:
    """Return the distinct matches and the count of each: a log may hold a million."""
    keys = (games.first * n_players + games.second) * 3 + np.rint(2 * games.score).astype(np.int64)
    distinct_keys, counts = np.unique(keys, return_counts=True)
    pairs, halves = np.divmod(distinct_keys, 3)
    first, second = np.divmod(pairs, max(n_players, 1))
    return Games(first, second, halves / 2), counts.astype(np.float64)


def make_results(
    names: Sequence[str],
    repetitions: Sequence[Games],
    judged: Games,
    *,
    k: float,
    initial: float,
    plain: BradleyTerryRatings | None,
    controlled: BradleyTerryRatings | None = None,
) -> TournamentResults:
    """Return the results of players: Elo over the repetitions, all else over the distinct matches `judged`."""
    n = len(names)
    ratings = np.array([elo.rate(n, *games, k=k, initial=initial) for games in repetitions])
    spread = ratings.std(axis=0, ddof=1).tolist() if len(repetitions) > 1 else [None] * n
    scored, met = np.zeros((n, n)), np.zeros((n, n), dtype=np.int64)
    outcomes = np.zeros((n, 3), dtype=np.int64)
    for player_indices, opponent_indices, score in (
        (judged.first, judged.second, judged.score),
        (judged.second, judged.first, 1 - judged.score),
    ):
        np.add.at(scored, (player_indices, opponent_indices), score)
        np.add.at(met, (player_indices, opponent_indices), 1)
        np.add.at(outcomes, (player_indices, np.rint(2 - 2 * score).astype(np.int64)), 1)
    order = np.argsort(-ratings.mean(axis=0), kind="stable").tolist()
    players = [
        Player(
            name=names[i],
            elo=float(ratings[:, i].mean()),
            sd=spread[i],
            elo_by_repetition=ratings[:, i].tolist(),
            bradley_terry=plain.ratings[i] if plain else None,
            equal_length=controlled.ratings[i] if controlled else None,
            wins=int(outcomes[i, 0]),
            ties=int(outcomes[i, 1]),
            losses=int(outcomes[i, 2]),
        )
        for i in order
    ]
    return TournamentResults(
        elo={player.name: player.elo for player in players},
        sd={player.name: player.sd for player in players},
        players=players,
        repetitions=len(repetitions),
        matches=sum(len(games.score) for games in repetitions),
        scores=scored[np.ix_(order, order)].tolist(),
        meetings=met[np.ix_(order, order)].tolist(),
        length_effect=controlled.length_effect if controlled else None,
    )
