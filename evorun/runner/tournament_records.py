"""The files of a tournament: its matches, its judgments, and its results."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evorun.reports.comparison.reported import reported_elo
from evorun.runner.pair_judge import PairJudge
from evorun.runner.pairings import Entrant, Pairing, TournamentSettings
from evorun.runs.directory import load_manifest
from evorun.runs.records import write_json, write_records
from evorun.runs.schema import Metric
from evorun.runs.statistics import Proportion, pooled_share
from evorun.runs.tournaments import (
    JUDGMENTS,
    MATCHES,
    MOST_PLAYERS,
    RESULTS,
    Games,
    JudgmentRecord,
    MatchRecord,
    TournamentResults,
    bradley_terry,
    results_of,
)


def write_tournament(
    folder: Path,
    entrants: Sequence[Entrant],
    judge: PairJudge,
    repetitions: Sequence[Sequence[Pairing]],
    results: TournamentResults,
) -> None:
    """Write the records of a tournament; the results come last."""
    names = [one.name for one in entrants]
    matches, judgments = [], []
    for number, rows in enumerate(repetitions, 1):
        for one in rows:
            score = judge.score(one)
            winner = None if score == 0.5 else names[one.first if score else one.second]
            a, b = names[one.first], names[one.second]
            forfeit = judge.forfeited(one)
            matches.append(
                MatchRecord(a=a, b=b, winner=winner, repetition=number, problem=one.problem, forfeit=forfeit)
            )
    for one, (judgment, invalid) in judge.said.items():
        a, b = names[one.first], names[one.second]
        verdict, reason = judgment.verdict, judgment.reason
        judgments.append(JudgmentRecord(problem=one.problem, a=a, b=b, verdict=verdict, reason=reason, invalid=invalid))
    write_records(folder / MATCHES, matches)
    write_records(folder / JUDGMENTS, judgments)
    write_json(folder / RESULTS, results)


def rated_matches(judge: PairJudge, drawn: Sequence[Sequence[Pairing]], complete: int) -> list[list[Pairing]]:
    """Return the matches of each repetition that have a score; `complete` repetitions were judged as a whole.

    One that the budget cut short moves ratings less than a whole one: it counts only where there is no other.
    """
    return [[one for one in rows if judge.score(one) is not None] for rows in drawn[: max(1, complete)]]


def tournament_results(
    entrants: Sequence[Entrant],
    problems: Sequence[str],
    settings: TournamentSettings,
    judge: PairJudge,
    repetitions: Sequence[Sequence[Pairing]],
) -> TournamentResults:
    """Rate the runs: Elo over the repetitions, all else over the different pairings, each once."""
    index = {problem: number for number, problem in enumerate(problems)}
    forfeits = dict.fromkeys(one for rows in repetitions for one in rows if judge.forfeited(one))
    different = [one for one in (*judge.said, *forfeits) if judge.score(one) is not None]
    decided = [one for one in different if one not in forfeits]
    words = [{problem: len(response.text.split()) for problem, response in one.responses.items()} for one in entrants]
    longer = [np.log(max(words[one.first][one.problem], 1) / max(words[one.second][one.problem], 1)) for one in decided]

    def games(rows: Sequence[Pairing]) -> Games:
        return Games.of([(one.first, one.second, judge.score(one) or 0.0) for one in rows])

    def clusters(rows: Sequence[Pairing]) -> NDArray[np.int64]:
        return np.array([index[one.problem] for one in rows], dtype=np.int64)

    plain = controlled = None
    if len(entrants) <= MOST_PLAYERS:
        rate = partial(bradley_terry, len(entrants), initial=settings.initial, resamples=settings.resamples)
        plain = rate(games(different), cluster=clusters(different))
        if any(longer):
            controlled = rate(games(decided), cluster=clusters(decided), longer=np.array(longer))
    results = results_of(
        [one.name for one in entrants],
        [games(rows) for rows in repetitions],
        games(different),
        k=settings.k,
        initial=settings.initial,
        plain=plain,
        controlled=controlled,
    )
    results.prompts = len(problems)
    results.judgments = len(judge.said)
    results.invalid = dict(Counter(asked.invalid for asked in judge.said.values() if asked.invalid is not None))
    results.forfeits = len(forfeits)
    results.first_shown = _first_shown(judge)
    results.order_agreement = _order_agreement(judge)
    by_name = {one.name: (one, counts) for one, counts in zip(entrants, words, strict=True)}
    manifests = {one.name: load_manifest(one.folder) for one in entrants}
    for player in results.players:
        entrant, counts = by_name[player.name]
        player.unanswered = len(problems) - len(entrant.responses)
        player.words = sum(counts.values()) / len(counts) if counts else None
        others = [manifest for name, manifest in manifests.items() if name != player.name]
        player.reported, player.reported_sd = reported_elo(manifests[player.name], others)
    return results


def _first_shown(judge: PairJudge) -> Metric:
    """Return the share of decided judgments that name the response shown first; intervals draw prompts again."""
    shares: dict[str, Proportion] = {}
    for one, asked in judge.said.items():
        if asked.judgment.verdict in ("A", "B"):
            shares.setdefault(one.problem, Proportion()).add(asked.judgment.verdict == "A")
    return pooled_share(list(shares.values()))


def _order_agreement(judge: PairJudge) -> Metric:
    """Return the share of pairs judged in both orders on which the judgments agree; intervals draw prompts again."""
    shares: dict[str, Proportion] = {}
    for one in judge.said:
        other = one._replace(first=one.second, second=one.first)
        scores = judge.score(one), judge.score(other)
        if one.first < one.second and None not in scores:
            shares.setdefault(one.problem, Proportion()).add(sum(filter(None, scores)) == 1)
    return pooled_share(list(shares.values()))
