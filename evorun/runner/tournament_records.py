"""The files of a tournament: its matches, its judgments, and its results."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evorun.reports.comparison.reported import find_reported_elo
from evorun.runner.pair_judge import PairJudge
from evorun.runner.pairings import Entrant, Pairing, TournamentSettings
from evorun.runs.directory import load_manifest
from evorun.runs.records import write_json, write_records
from evorun.runs.schema import Metric
from evorun.runs.statistics import Proportion, pooled_share
from evorun.runs.tournaments import (
    JUDGMENTS,
    MATCHES,
    MAX_PLAYERS,
    RESULTS,
    Games,
    JudgmentRecord,
    MatchRecord,
    TournamentResults,
    bradley_terry,
    make_results,
)


def write_tournament(
    folder: Path,
    entrants: Sequence[Entrant],
    judge: PairJudge,
    repetitions: Sequence[Sequence[Pairing]],
    results: TournamentResults,
) -> None:
    """Write the records of a tournament; the results come last."""
    names = [entrant.name for entrant in entrants]
    matches, judgments = [], []
    for number, rows in enumerate(repetitions, 1):
        for pairing in rows:
            score = judge.score(pairing)
            winner = None if score == 0.5 else names[pairing.first if score else pairing.second]
            a, b = names[pairing.first], names[pairing.second]
            forfeit = judge.forfeited(pairing)
            matches.append(
                MatchRecord(a=a, b=b, winner=winner, repetition=number, problem=pairing.problem, forfeit=forfeit)
            )
    for pairing, (judgment, invalid) in judge.judged.items():
        a, b = names[pairing.first], names[pairing.second]
        verdict, reason = judgment.verdict, judgment.reason
        judgments.append(
            JudgmentRecord(problem=pairing.problem, a=a, b=b, verdict=verdict, reason=reason, invalid=invalid)
        )
    write_records(folder / MATCHES, matches)
    write_records(folder / JUDGMENTS, judgments)
    write_json(folder / RESULTS, results)


def rated_matches(judge: PairJudge, drawn: Sequence[Sequence[Pairing]], complete: int) -> list[list[Pairing]]:
    """Return the scored matches of each repetition; the first `complete` repetitions were judged completely.

    A repetition that the budget cut short moves ratings less than a complete one, so it counts only if it is alone.
    """
    return [[pairing for pairing in rows if judge.score(pairing) is not None] for rows in drawn[: max(1, complete)]]


def tournament_results(
    entrants: Sequence[Entrant],
    problems: Sequence[str],
    settings: TournamentSettings,
    judge: PairJudge,
    repetitions: Sequence[Sequence[Pairing]],
) -> TournamentResults:
    """Rate the runs: Elo over the repetitions, everything else over the distinct pairings."""
    index = {problem: number for number, problem in enumerate(problems)}
    forfeits = dict.fromkeys(pairing for rows in repetitions for pairing in rows if judge.forfeited(pairing))
    different = [pairing for pairing in (*judge.judged, *forfeits) if judge.score(pairing) is not None]
    decided = [pairing for pairing in different if pairing not in forfeits]
    words = [
        {problem: len(response.text.split()) for problem, response in entrant.responses.items()} for entrant in entrants
    ]
    longer = [
        np.log(max(words[pairing.first][pairing.problem], 1) / max(words[pairing.second][pairing.problem], 1))
        for pairing in decided
    ]

    def games(rows: Sequence[Pairing]) -> Games:
        return Games.of([(pairing.first, pairing.second, judge.score(pairing) or 0.0) for pairing in rows])

    def clusters(rows: Sequence[Pairing]) -> NDArray[np.int64]:
        return np.array([index[pairing.problem] for pairing in rows], dtype=np.int64)

    plain = controlled = None
    if len(entrants) <= MAX_PLAYERS:
        rate = partial(bradley_terry, len(entrants), initial=settings.initial, resamples=settings.resamples)
        plain = rate(games(different), cluster=clusters(different))
        if any(longer):
            controlled = rate(games(decided), cluster=clusters(decided), longer=np.array(longer))
    results = make_results(
        [entrant.name for entrant in entrants],
        [games(rows) for rows in repetitions],
        games(different),
        k=settings.k,
        initial=settings.initial,
        plain=plain,
        controlled=controlled,
    )
    results.prompts = len(problems)
    results.judgments = len(judge.judged)
    results.invalid = dict(Counter(parsed.invalid for parsed in judge.judged.values() if parsed.invalid is not None))
    results.forfeits = len(forfeits)
    results.first_shown = _first_shown(judge)
    results.order_agreement = _order_agreement(judge)
    by_name = {entrant.name: (entrant, counts) for entrant, counts in zip(entrants, words, strict=True)}
    manifests = {entrant.name: load_manifest(entrant.folder) for entrant in entrants}
    for player in results.players:
        entrant, counts = by_name[player.name]
        player.unanswered = len(problems) - len(entrant.responses)
        player.words = sum(counts.values()) / len(counts) if counts else None
        others = [manifest for name, manifest in manifests.items() if name != player.name]
        player.reported, player.reported_sd = find_reported_elo(manifests[player.name], others)
    return results


def _first_shown(judge: PairJudge) -> Metric:
    """Return the share of decided judgments for the response shown first; intervals resample prompts."""
    shares: dict[str, Proportion] = {}
    for pairing, parsed in judge.judged.items():
        if parsed.judgment.verdict in ("A", "B"):
            shares.setdefault(pairing.problem, Proportion()).add(parsed.judgment.verdict == "A")
    return pooled_share(list(shares.values()))


def _order_agreement(judge: PairJudge) -> Metric:
    """Return the share of pairs judged in both orders on which the judgments agree; intervals resample prompts."""
    shares: dict[str, Proportion] = {}
    for pairing in judge.judged:
        swapped = pairing._replace(first=pairing.second, second=pairing.first)
        scores = judge.score(pairing), judge.score(swapped)
        if pairing.first < pairing.second and None not in scores:
            shares.setdefault(pairing.problem, Proportion()).add(sum(filter(None, scores)) == 1)
    return pooled_share(list(shares.values()))
