"""The sections of a run's page on what serves all problems and on rollouts: figures, tables, the script's data."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evorun.reports import text
from evorun.reports.drawing import Drawing
from evorun.reports.evolution import plots
from evorun.reports.evolution.population import (
    Played,
    Population,
    load_population,
    played_under,
    reward_by_step,
)
from evorun.reports.evolution.rollouts import MAX_BLAMED, RolloutSample, load_sample, shown_of_blamed
from evorun.reports.evolution.transplant import Transplant, load_transplant
from evorun.reports.evolution.tree import tree_plot
from evorun.reports.packing import Packed, cut, pack_within, rounded
from evorun.reports.tables import DataTable
from evorun.reports.training import Edits, count_edits
from evorun.runs.candidates import CandidateId
from evorun.runs.reading import read_artifact, read_rollouts, read_training
from evorun.runs.schema import Metric, PrincipleEffect, RolloutRecord
from evorun.runs.scores import Score
from evorun.runs.statistics import rank_correlation

MAX_BYTES = 4_000_000
"""Size of the candidates' data on a page, compressed."""
TEXT_LIMITS = (40_000, 10_000, 4000, 2000, 1000, 400, 100, 0)
"""Longest text kept, in characters: the first limit that fits."""


@dataclass(frozen=True)
class Evolution:
    """What the page shows of the candidates that serve all problems, and of rollouts."""

    population: Population | None
    """None: no candidate serves all problems."""
    sample: RolloutSample | None
    """None: no rollouts are recorded."""
    best: str
    """The text of the best one; the latest one's where none is rated."""
    best_line: str
    candidates: Packed | None
    plots: Mapping[str, Drawing | None]
    tables: Mapping[str, DataTable]
    """By name."""
    agreement: Metric | None
    """Rank correlation of ratings and test scores; None without both."""
    edits: Edits
    offspring: Sequence[tuple[str, int]]
    """Operators, and how many candidates each made."""
    transplant: Transplant | None
    principles: Sequence[PrincipleEffect]


def load_evolution(run_dir: Path, measure: Score, step: str) -> Evolution:
    """Read all of it. Raises DataError.

    measure: the score that test problems are graded by. step: the word for the run's steps.
    """
    population, rollouts = load_population(run_dir), read_rollouts(run_dir)
    played = played_under(rollouts)
    transplant = load_transplant(run_dir, population)
    principles = read_artifact(run_dir, "delete_one.json", list[PrincipleEffect]) or []
    rewards = reward_by_step(rollouts)
    drawn: dict[str, Drawing | None] = {
        "rewards": plots.rewards_plot(rewards, population, step) if population else None,
        "transplant": plots.transplant_plot(transplant, measure) if transplant else None,
        "principles": plots.effects_plot(principles, measure),
    }
    edits = count_edits(read_training(run_dir))
    fates = {"applied": edits.applied, "refused": edits.refused, "proposal refused": edits.proposals}
    rows = [(fate, what, n) for fate, counts in fates.items() for what, n in counts]
    tables = [_rewards_table(rewards), DataTable("edits", ("fate", "edit", "count"), rows)]
    if population is not None:
        drawn |= {
            "tree": tree_plot(population, step),
            "ratings": plots.ratings_plot(population, step),
            "scores": plots.scores_plot(population, measure, step),
        }
        tables.append(_members_table(population, played))
    shown = shown_of_blamed(rollouts, [one.blamed for one in population.members] if population else [])
    position = {one.id: index for index, one in enumerate(population.members)} if population else {}
    chosen = None if population is None else population.latest if population.best is None else population.best
    return Evolution(
        population=population,
        sample=load_sample(run_dir, rollouts, shown, position) if rollouts else None,
        best="" if population is None or chosen is None else population.members[chosen].text,
        best_line="" if population is None or chosen is None else _line(population, chosen, step),
        candidates=None if population is None else _pack(population, played, shown),
        plots=drawn,
        tables={table.name: table for table in tables},
        agreement=_agreement(population) if population is not None else None,
        edits=edits,
        offspring=list(Counter(one.operator for one in population.members if one.parents).items())
        if population
        else [],
        transplant=transplant,
        principles=principles,
    )


def _line(population: Population, chosen: int, step: str) -> str:
    one = population.members[chosen]
    rating = (
        "" if one.mean is None else f", rating {one.mean:.2f}" + ("" if one.sd is None else f" \u00b1 {one.sd:.2f}")
    )
    what = "best" if chosen == population.best else "latest"
    return f"The {what} {one.kind.replace('_', ' ')}: {one.id}, of {step} {one.generation}{rating}"


def _agreement(population: Population) -> Metric | None:
    """Return how ratings order prompts as their test scores do, in each step: later steps have other weights."""
    groups: dict[int, list[tuple[str, float, float]]] = {}
    for one in population.scores:
        rating = population.rating_at(one.candidate, one.step)
        if rating is not None:
            groups.setdefault(one.step, []).append((one.candidate, rating, one.score))
    several = [group for group in groups.values() if len(group) > 1]
    return rank_correlation(several) if several else None


def _rewards_table(rewards: Mapping[int, Mapping[CandidateId | None, float]]) -> DataTable:
    rows = [(step, who, reward) for step, by_one in rewards.items() for who, reward in by_one.items()]
    return DataTable("rewards_by_prompt", ("step", "candidate", "reward"), rows)


def _members_table(population: Population, played: Mapping[CandidateId, Played]) -> DataTable:
    rows = []
    for one in population.members:
        own = played.get(one.id)
        low, high = own.reward.ci95 or (None, None) if own else (None, None)
        reward = (own.rollouts, own.reward.value, low, high, own.gain) if own else (0, None, None, None, None)
        origin = (one.id, one.kind, one.generation, one.operator, " ".join(one.parents))
        rows.append((*origin, one.mean, one.sd, int(one.survivor), *reward))
    columns = ("id", "kind", "step", "operator", "parents", "rating_mean", "rating_sd", "kept")
    return DataTable("population", (*columns, "rollouts", "reward", "reward_low", "reward_high", "gain"), rows)


def _pack(population: Population, played: Mapping[CandidateId, Played], shown: Sequence[RolloutRecord]) -> Packed:
    """Return the candidates for the page's script, which refers to them by their position."""
    calls = {one.call for one in shown}
    scores: dict[CandidateId, list[list[float | int | None]]] = {}
    for score in population.scores:
        scores.setdefault(score.candidate, []).append([score.step, rounded(score.score), score.n])

    def data(limit: int) -> dict[str, Any]:
        members = []
        for index, one in enumerate(population.members):
            own = played.get(one.id)
            blamed = [call for call in one.blamed if call in calls][:MAX_BLAMED]
            members.append(
                {
                    "id": one.id,
                    "kind": one.kind.replace("_", " "),
                    "operator": one.operator,
                    "step": one.generation,
                    "parents": population.parents[index],
                    "text": cut(one.text, limit),
                    "whole": len(one.text) <= limit,
                    "reflection": cut(one.reflection, limit),
                    "mean": rounded(one.mean),
                    "sd": rounded(one.sd),
                    "kept": one.survivor,
                    "ratings": [[r.step, rounded(r.mean), rounded(r.sd)] for r in population.courses.get(one.id, ())],
                    "scores": scores.get(one.id, []),
                    "rollouts": own.rollouts if own else 0,
                    "reward": text.number(own.reward.value) if own else None,
                    "interval": text.number_interval(own.reward.ci95) if own else None,
                    "gain": rounded(own.gain) if own else None,
                    "blamed": blamed,
                    "blamed_more": len(one.blamed) - len(blamed),
                }
            )
        return {"members": members, "best": population.best, "latest": population.latest, "limit": limit}

    return pack_within(MAX_BYTES, TEXT_LIMITS, data)
