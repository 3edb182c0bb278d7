"""The content of a run page's sections on candidates that serve all problems, and on rollouts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import UNSET
from msgspec.structs import astuple

from evorun.reports import text
from evorun.reports.drawing import Drawing
from evorun.reports.evolution import plots
from evorun.reports.evolution.rollouts import MAX_BLAMED, RolloutSample, choose_blamed, load_sample
from evorun.reports.evolution.tree import draw_tree
from evorun.reports.packing import Packed, cut, pack_within, rounded
from evorun.reports.population import (
    Population,
    RolloutSummary,
    Transplant,
    average_rewards,
    count_item_words,
    load_population,
    load_transplants,
    parse_key,
    summarise_rollouts,
)
from evorun.reports.run_tables import list_ends
from evorun.reports.tables import Cell, Table, figure_columns, make_data_table, prose_columns, word_columns
from evorun.reports.training import count_edits, make_edits_table
from evorun.runs.candidates import CandidateId
from evorun.runs.reading import read_artifact, read_rollouts, read_training
from evorun.runs.schema import CandidateRecord, Metric, PrincipleEffect, PromptScore, RolloutRecord
from evorun.runs.scores import Score
from evorun.runs.statistics import rank_correlation

MAX_BYTES = 4_000_000
"""Size of the candidates' data on a page, compressed."""
TEXT_LIMITS = (40_000, 10_000, 4000, 2000, 1000, 400, 100, 0)
"""Longest text kept, in characters: the first limit that fits."""


def make_rewards_table(rewards: Mapping[int, Mapping[CandidateId | None, float]]) -> Table:
    """Return the mean reward of each step and candidate."""
    rows = [
        (step, candidate, reward)
        for step, by_candidate in rewards.items()
        for candidate, reward in by_candidate.items()
    ]
    return make_data_table("rewards_by_prompt", ("step", "candidate", "reward"), rows)


def make_members_table(population: Population, played: Mapping[CandidateId, RolloutSummary]) -> Table:
    """Return a row per candidate: its origin, its rating and the rollouts under it."""
    rows = []
    for member in population.members:
        own = played.get(member.id)
        reward: tuple[Cell, ...] = (0, None, None, None, None)
        if own:
            reward = (own.rollouts, own.reward.value, *list_ends(own.reward.ci95), own.gain)
        origin = (member.id, member.kind, member.generation, member.operator, " ".join(member.parents))
        rows.append((*origin, member.mean, member.sd, int(member.survivor), member.note or None, *reward))
    columns = ("id", "kind", "step", "operator", "parents", "rating_mean", "rating_sd", "kept", "note")
    return make_data_table("population", (*columns, "rollouts", "reward", "reward_low", "reward_high", "gain"), rows)


def _length(candidate: CandidateRecord) -> str | None:
    """Return a rubric's length in words; None for other candidates."""
    if candidate.kind != "rubric":
        return None
    return f"{text.count(len(candidate.text.split()))} words, {text.number(count_item_words(candidate.text))} per item"


def pack_members(
    population: Population, played: Mapping[CandidateId, RolloutSummary], shown: Sequence[RolloutRecord]
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
                    "note": cut(member.note or "", limit),
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


@dataclass(frozen=True)
class Evolution:
    """The page's section on the candidates that serve all problems."""

    population: Population
    members: Packed
    agreement: Metric | None
    """Rank correlation of ratings and test scores; None without both."""
    offspring: Table
    """Operators, with the number of candidates that each made."""
    weights_change: bool
    """True where the rollouts of different steps have different weights."""

    @property
    def shown(self) -> int:
        """Position of the member that is shown first: the best, or the latest if none is rated."""
        return self.population.latest if self.population.best is None else self.population.best


@dataclass(frozen=True)
class Sections:
    """The content of all sections; each part is None or empty for a run without such records."""

    evolution: Evolution | None
    sample: RolloutSample | None
    transplants: Mapping[str, Table]
    """Scores by prompt and weights, that of single answers first, by name."""
    principles: Table
    """The effect of each principle of the best system prompt."""
    plots: Mapping[str, Drawing | None]
    """Of all sections, by name."""
    tables: Mapping[str, Table]
    """Of all sections, by name."""


def load_sections(run_dir: Path, measure: Score, step: str, *, shared: bool = True) -> Sections:
    """Read the sections' content. Raises DataError.

    measure: the score of test problems. step: the word for the run's steps. shared: False if no candidate is known to
    serve all problems.
    """
    population, rollouts = load_population(run_dir) if shared else None, read_rollouts(run_dir)
    members = population.members if population is not None else []
    blamed = choose_blamed(rollouts, [member.blamed for member in members])
    transplants = load_transplants(run_dir, population)
    principles = read_artifact(run_dir, "delete_one.json", list[PrincipleEffect]) or []
    drawn: dict[str, Drawing | None] = {"principles": plots.draw_effects(principles, measure)}
    tables = [make_data_table("principles", PrincipleEffect.__struct_fields__, list(map(astuple, principles)))]
    colours = {} if population is None else plots.assign_colours(population)
    for matrix in transplants:
        drawn[matrix.name] = plots.draw_transplant(matrix, measure, colours)
        cells = list(map(astuple, matrix.cells.values()))
        tables.append(make_data_table(matrix.name, PromptScore.__struct_fields__, cells))
    evolution = None
    if population is not None:
        played = summarise_rollouts(rollouts)
        # if no prompt evolves, the section on rewards draws them
        rewards = average_rewards(rollouts) if any(member.kind != "rubric" for member in members) else {}
        drawn |= {
            "tree": draw_tree(population, step),
            "ratings": plots.draw_ratings(population, step),
            "rewards": plots.draw_rewards(rewards, population, step),
            "scores": plots.draw_scores(population, measure, step),
        }
        edits = make_edits_table(count_edits(read_training(run_dir)))
        tables += [make_rewards_table(rewards), make_members_table(population, played), edits]
        operators = Counter(member.operator for member in members if member.parents)
        evolution = Evolution(
            population=population,
            members=pack_members(population, played, blamed),
            agreement=_correlate_ratings(population),
            offspring=Table(
                [*word_columns("operator", format=text.words), *figure_columns("offspring")], list(operators.items())
            ),
            weights_change=any(rollout.version is not UNSET for rollout in rollouts),
        )
    position = {member.id: index for index, member in enumerate(members)}
    return Sections(
        evolution=evolution,
        sample=load_sample(run_dir, rollouts, blamed, position) if rollouts else None,
        transplants={matrix.name: make_transplant_table(matrix, measure) for matrix in transplants},
        principles=make_principles_table(principles, measure),
        plots=drawn,
        tables={table.name: table for table in tables},
    )


def make_transplant_table(matrix: Transplant, score: Score) -> Table:
    """Return the test scores of prompts (rows) with the weights of several steps (columns)."""

    def format_cell(cell: PromptScore | None) -> str:
        if cell is None:
            return ""
        ci95 = None if cell.low is None or cell.high is None else (cell.low, cell.high)
        return text.value(score, cell.score) + (f" ({text.value_interval(score, ci95)})" if ci95 else "")

    caption = ""
    if matrix.gains is not None:
        prompt, weights, both = (text.difference(score, gain) for gain in matrix.gains)
        caption = (
            f"Gain over {matrix.names[matrix.prompts[0]]} with the weights of step {matrix.steps[0]}: {prompt} by the "
            f"prompt {matrix.names[matrix.chosen]} alone, {weights} by the weights of step {matrix.steps[-1]} alone, "
            f"{both} by both together."
        )
    return Table(
        [*word_columns("system prompt"), *figure_columns(*(f"weights of step {step}" for step in matrix.steps))],
        [
            (matrix.names[prompt], *(format_cell(matrix.cells.get((prompt, step))) for step in matrix.steps))
            for prompt in matrix.prompts
        ],
        title="transplant matrix" if matrix.method is None else f"transplant matrix, answers by {matrix.method}",
        caption=caption,
    )


def make_principles_table(effects: Sequence[PrincipleEffect], score: Score) -> Table:
    """Return the effect of each principle on a score: the whole prompt minus the prompt without it."""
    rows = []
    for number, effect in enumerate(effects, 1):
        ci95 = None if effect.low is None or effect.high is None else (effect.low, effect.high)
        estimate = text.difference(score, effect.effect), text.difference_interval(score, ci95)
        rows.append((f"{number}. {effect.principle}", *estimate, effect.n))
    columns = [*prose_columns("principle"), *figure_columns("effect", "95 % interval", "n")]
    return Table(columns, list(rows), title="delete-one: the whole prompt minus the prompt without one principle")


def _correlate_ratings(population: Population) -> Metric | None:
    """Return the rank correlation of ratings and test scores within steps: later steps have other weights."""
    groups: dict[int, list[tuple[str, float, float]]] = {}
    for score in population.scores:
        rating = population.rating_at(score.candidate, score.step)
        if rating is not None:
            groups.setdefault(score.step, []).append((score.candidate, rating, score.score))
    several = [group for group in groups.values() if len(group) > 1]
    return rank_correlation(several) if several else None
