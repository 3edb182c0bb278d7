"""The candidates that serve all problems, as tables for other programs and as data for the page's script."""

from collections.abc import Mapping, Sequence
from typing import Any

from evorun.reports import text
from evorun.reports.evolution.rollouts import MAX_BLAMED
from evorun.reports.lineage import item_words, parse_key
from evorun.reports.packing import Packed, cut, pack_within, rounded
from evorun.reports.population import Played, Population
from evorun.reports.tables import Table, data_table
from evorun.runs.candidates import CandidateId
from evorun.runs.schema import CandidateRecord, RolloutRecord

MAX_BYTES = 4_000_000
"""Size of the candidates' data on a page, compressed."""
TEXT_LIMITS = (40_000, 10_000, 4000, 2000, 1000, 400, 100, 0)
"""Longest text kept, in characters: the first limit that fits."""


def rewards_table(rewards: Mapping[int, Mapping[CandidateId | None, float]]) -> Table:
    """Return the mean reward of each step and candidate."""
    rows = [
        (step, candidate, reward)
        for step, by_candidate in rewards.items()
        for candidate, reward in by_candidate.items()
    ]
    return data_table("rewards_by_prompt", ("step", "candidate", "reward"), rows)


def members_table(population: Population, played: Mapping[CandidateId, Played]) -> Table:
    """Return a row per candidate: its origin, its rating and the rollouts under it."""
    rows = []
    for member in population.members:
        own = played.get(member.id)
        low, high = own.reward.ci95 or (None, None) if own else (None, None)
        reward = (own.rollouts, own.reward.value, low, high, own.gain) if own else (0, None, None, None, None)
        origin = (member.id, member.kind, member.generation, member.operator, " ".join(member.parents))
        rows.append((*origin, member.mean, member.sd, int(member.survivor), *reward))
    columns = ("id", "kind", "step", "operator", "parents", "rating_mean", "rating_sd", "kept")
    return data_table("population", (*columns, "rollouts", "reward", "reward_low", "reward_high", "gain"), rows)


def _length(candidate: CandidateRecord) -> str | None:
    """Return a rubric's length in words; None for other candidates."""
    if candidate.kind != "rubric":
        return None
    return f"{text.count(len(candidate.text.split()))} words, {text.number(item_words(candidate.text))} per item"


def pack_members(
    population: Population, played: Mapping[CandidateId, Played], shown: Sequence[RolloutRecord]
) -> Packed:
    """Return the candidates for the page's script, which refers to them by their position."""
    calls = {rollout.call for rollout in shown}
    scores: dict[CandidateId, list[list[float | int | None]]] = {}
    for score in population.scores:
        scores.setdefault(score.candidate, []).append([score.step, rounded(score.score), score.n])

    def data(limit: int) -> dict[str, Any]:
        members = []
        for index, member in enumerate(population.members):
            own = played.get(member.id)
            blamed = [call for call in member.blamed if call in calls][:MAX_BLAMED]
            members.append(
                {
                    "id": member.id,
                    "kind": member.kind.replace("_", " "),
                    "key": parse_key(member.id) if member.kind == "rubric" else None,
                    "words": _length(member),
                    "operator": member.operator,
                    "step": member.generation,
                    "parents": population.parents[index],
                    "text": cut(member.text, limit),
                    "whole": len(member.text) <= limit,
                    "reflection": cut(member.reflection, limit),
                    "mean": rounded(member.mean),
                    "sd": rounded(member.sd),
                    "kept": member.survivor,
                    "ratings": [
                        [r.step, rounded(r.mean), rounded(r.sd)] for r in population.courses.get(member.id, ())
                    ],
                    "scores": scores.get(member.id, []),
                    "rollouts": own.rollouts if own else 0,
                    "reward": text.number(own.reward.value) if own else None,
                    "interval": text.number_interval(own.reward.ci95) if own else None,
                    "gain": rounded(own.gain) if own else None,
                    "blamed": blamed,
                    "blamed_more": len(member.blamed) - len(blamed),
                }
            )
        return {"members": members, "best": population.best, "latest": population.latest, "limit": limit}

    return pack_within(MAX_BYTES, TEXT_LIMITS, data)
