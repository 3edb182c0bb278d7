"""The content of a run page's sections on candidates that serve all problems, and on rollouts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import astuple

from evorun.reports.drawing import Drawing
from evorun.reports.evolution import plots
from evorun.reports.evolution.members import members_table, pack_members, rewards_table
from evorun.reports.evolution.rollouts import RolloutSample, choose_blamed, load_sample
from evorun.reports.evolution.transplant import Transplant, load_transplant
from evorun.reports.evolution.tree import tree_plot
from evorun.reports.packing import Packed
from evorun.reports.population import Population, load_population, played_under, reward_by_step
from evorun.reports.tables import Table, data_table
from evorun.reports.training import Edits, count_edits, edits_table
from evorun.runs.reading import read_artifact, read_rollouts, read_training
from evorun.runs.schema import Metric, PrincipleEffect, PromptScore, RolloutRecord, TrainingRecord
from evorun.runs.scores import Score
from evorun.runs.statistics import rank_correlation


@dataclass(frozen=True)
class Evolution:
    """The page's section on the candidates that serve all problems."""

    population: Population
    members: Packed
    plots: Mapping[str, Drawing | None]
    tables: Sequence[Table]
    agreement: Metric | None
    """Rank correlation of ratings and test scores; None without both."""
    edits: Edits
    offspring: Sequence[tuple[str, int]]
    """Operators, with the number of candidates that each made."""

    @property
    def shown(self) -> int:
        """Position of the member that is shown first: the best, or the latest if none is rated."""
        return self.population.latest if self.population.best is None else self.population.best


@dataclass(frozen=True)
class Sections:
    """The content of all sections; each part is None or empty for a run without such records."""

    evolution: Evolution | None
    sample: RolloutSample | None
    transplant: Transplant | None
    principles: Sequence[PrincipleEffect]
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
    position = {member.id: index for index, member in enumerate(members)}
    evolution = None
    if population is not None:
        evolution = _evolution(population, rollouts, blamed, read_training(run_dir), measure, step)
    transplant = load_transplant(run_dir, population)
    principles = read_artifact(run_dir, "delete_one.json", list[PrincipleEffect]) or []
    drawn = {
        **(evolution.plots if evolution is not None else {}),
        "transplant": None
        if transplant is None
        else plots.transplant_plot(transplant, measure, {} if population is None else plots.assign_colours(population)),
        "principles": plots.effects_plot(principles, measure),
    }
    cells = [] if transplant is None else list(transplant.cells.values())
    tables = [
        *(evolution.tables if evolution is not None else []),
        data_table("transplant", PromptScore.__struct_fields__, [astuple(cell) for cell in cells]),
        data_table("principles", PrincipleEffect.__struct_fields__, [astuple(effect) for effect in principles]),
    ]
    sample = load_sample(run_dir, rollouts, blamed, position) if rollouts else None
    return Sections(evolution, sample, transplant, principles, drawn, {table.name: table for table in tables})


def _evolution(
    population: Population,
    rollouts: Sequence[RolloutRecord],
    blamed: Sequence[RolloutRecord],
    training: Sequence[TrainingRecord],
    measure: Score,
    step: str,
) -> Evolution:
    played, edits = played_under(rollouts), count_edits(training)
    # If no prompt evolves, the section on rewards draws them.
    rewards = reward_by_step(rollouts) if any(member.kind != "rubric" for member in population.members) else {}
    tables = [
        rewards_table(rewards),
        members_table(population, played),
        edits_table(edits),
    ]
    return Evolution(
        population=population,
        members=pack_members(population, played, blamed),
        plots={
            "tree": tree_plot(population, step),
            "ratings": plots.ratings_plot(population, step),
            "rewards": plots.rewards_plot(rewards, population, step),
            "scores": plots.scores_plot(population, measure, step),
        },
        tables=tables,
        agreement=_agreement(population),
        edits=edits,
        offspring=list(Counter(member.operator for member in population.members if member.parents).items()),
    )


def _agreement(population: Population) -> Metric | None:
    """Return the rank correlation of ratings and test scores within steps: later steps have other weights."""
    groups: dict[int, list[tuple[str, float, float]]] = {}
    for score in population.scores:
        rating = population.rating_at(score.candidate, score.step)
        if rating is not None:
            groups.setdefault(score.step, []).append((score.candidate, rating, score.score))
    several = [group for group in groups.values() if len(group) > 1]
    return rank_correlation(several) if several else None
