"""Hyperparameters of islands, and the policies that give those which are null."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import ceil
from typing import Annotated, Any

from msgspec import Meta

from evorun.errors import ConfigError
from evorun.fields import Fraction, NonNegativeInt, OneOf, PositiveInt
from evorun.methods.search.proposals import ResponseSettings

POLICIES: Mapping[str, Mapping[str, Any]] = {
    # openevolve/config.py and database.py: 1,000 programs on 5 islands, migration after 50 on each.
    "openevolve": {
        "islands": 5,
        "max_islands": 5,
        "capacity": 200,
        "grid_bins": 10,
        "island_choice": "turns",
        "parents": "mixture",
        "elites": 100,
        "migration_every": 250,
        "migration_share": 0.1,
        "migration_both_ways": True,
        "keep_best": False,
        "shown_best": 3,
        "shown_others": 2,
        "diff_share": 1.0,
        "cross_share": 0.0,
        "max_similarity": 1.0,
        "paradigms": 0,
        "notes_every": 0,
    },
    # shinka/database and shinka/configs/database/island_small.yaml
    "shinka": {
        "islands": 2,
        "max_islands": 2,
        "capacity": 40,
        "grid_bins": 0,
        "island_choice": "uniform",
        "parents": "weighted",
        "elites": 40,
        "migration_every": 10,
        "migration_share": 0.1,
        "migration_both_ways": False,
        "keep_best": True,
        "shown_best": 2,
        "shown_others": 4,
        "diff_share": 0.6,
        "cross_share": 0.1,
        "max_similarity": 0.99,
        "paradigms": 0,
        "notes_every": 10,
    },
    # skydiscover's configs/adaevolve.yaml; 5 of 20 migrate.
    "adaevolve": {
        "islands": 2,
        "max_islands": 5,
        "capacity": 20,
        "grid_bins": 0,
        "island_choice": "ucb",
        "parents": "intensity",
        "elites": 20,
        "migration_every": 15,
        "migration_share": 0.25,
        "migration_both_ways": False,
        "keep_best": False,
        "shown_best": 2,
        "shown_others": 2,
        "diff_share": 1.0,
        "cross_share": 0.0,
        "max_similarity": 1.0,
        "paradigms": 3,
        "notes_every": 0,
    },
}


@dataclass(kw_only=True)
class IslandsConfig(ResponseSettings):
    """Hyperparameters; `conf/method/islands.yaml` gives each default and its source. Null: the policy's value."""

    name: str
    policy: Annotated[str, OneOf(tuple(POLICIES))]
    """Gives the settings that are null: openevolve, shinka or adaevolve."""
    generations: NonNegativeInt | None
    """Steps after the seed program; None: until the budget has no room for another step."""
    children: PositiveInt
    """Programs of a step, asked for together, at one call each and one more for each retry."""
    novelty_tries: PositiveInt
    """Maximum calls for a child that is too similar to its island's programs; then it is left out."""
    islands: PositiveInt | None
    """Islands at the start, each with the seed program."""
    max_islands: PositiveInt | None
    """Islands at the end at most: a new one starts where the others no longer improve."""
    spawn_below: Fraction
    """Share of children that improved their island, below which a new island starts."""
    spawn_pause: PositiveInt
    """Children between two new islands, at least."""
    capacity: PositiveInt | None
    """Programs of an island at most, the fittest."""
    grid_bins: NonNegativeInt | None
    """Bins of each axis of the grid, length and difference, with one program in a cell; 0: no grid."""
    island_choice: Annotated[str, OneOf(("turns", "uniform", "ucb"))] | None
    """The island of a child. turns: one after the other. ucb: by recent gains."""
    parents: Annotated[str, OneOf(("mixture", "weighted", "intensity"))] | None
    """mixture: uniform, of the elites or by fitness (OpenEvolve). weighted: by fitness and few children (Shinka).
    intensity: to explore where the island stagnates, else of the fittest (AdaEvolve)."""
    explore: Fraction
    """mixture: share of parents that are any program of the island."""
    exploit: Fraction
    """mixture: share of parents from the elites; the others are drawn by fitness."""
    elites: PositiveInt | None
    """mixture: the fittest programs of all islands, of which those on the child's island come first."""
    pressure: Annotated[float, Meta(ge=0)]
    """weighted: how steeply the weight rises with fitness."""
    intensity_low: Fraction
    """intensity: share of exploring parents on an island that improves much."""
    intensity_high: Fraction
    """intensity: the same on an island that does not improve."""
    decay: Fraction
    """intensity and ucb: what remains of earlier gains at each later one."""
    migration_every: PositiveInt | None
    """Children of all islands between two migrations."""
    migration_share: Annotated[float, Meta(gt=0, le=1)] | None
    """Share of an island's programs that are copied to its neighbour, the fittest."""
    migration_both_ways: bool | None
    """To both neighbours of the ring."""
    keep_best: bool | None
    """The fittest program of an island does not migrate."""
    shown_best: NonNegativeInt | None
    """Fittest programs of the island that a prompt shows beside the parent."""
    shown_others: NonNegativeInt | None
    """Other programs that it shows, drawn at random."""
    diff_share: Fraction | None
    """Share of children that are asked for as changes to the parent; those left over are written in full."""
    cross_share: Fraction | None
    """Share of children that are asked for as a combination of the parent with another program, written in full."""
    max_similarity: Fraction | None
    """Largest share of matching words with another program of the island; 1: only equal programs are refused."""
    paradigms: NonNegativeInt | None
    """Approaches that a call proposes where the best fitness hardly rises; 0: none is asked for."""
    paradigm_window: PositiveInt
    """Latest children of all islands that decide whether it rises."""
    paradigm_below: Fraction
    """Share of them that were the best so far, below which approaches are asked for."""
    paradigm_uses: PositiveInt
    """Children that take an approach, each a change to the best program."""
    paradigm_memory: NonNegativeInt
    """Latest approaches, tried before, that the next request shows."""
    notes_every: NonNegativeInt | None
    """New programs after which notes and recommendations are written, at a call for each and two more; 0: never."""
    recommendations: PositiveInt
    """Recommendations of the notes, of which a child sees one."""
    model_choice: Annotated[str, OneOf(("uniform", "bandit"))]
    """The model of a child, where there are several generators."""
    model_exploration: Annotated[float, Meta(ge=0)]
    """bandit: weight of what a model has rarely been asked."""
    model_epsilon: Fraction
    """bandit: probability of the models that do not lead."""
    model_decay: Annotated[float, Meta(gt=0, le=1)]
    """bandit: what remains of the sums of rewards at each outcome."""
    model_cost_weight: Fraction
    """bandit: weight of a model's cheapness against its rewards, by price, or by tokens where a price is unknown."""

    def max_paradigm_calls(self, generations: int) -> int:
        """Return the calls for approaches in so many generations: the most where each parses and none helps."""
        if not self.paradigms:
            return 0
        first = 1 + ceil(self.paradigm_window / self.children)
        used_up_after = ceil(self.paradigms * self.paradigm_uses / self.children)
        return max(0, 1 + (generations - first) // used_up_after)

    def max_note_calls(self, generations: int) -> tuple[int, int]:
        """Return the calls in so many generations that sum up programs, and how often notes come of them.

        The most, where each child parses and is new; the seed program counts, too.
        """
        if not self.notes_every:
            return 0, 0
        first = 1 + ceil((self.notes_every - 1) / self.children)
        period = ceil(self.notes_every / self.children)
        times = max(0, 1 + (generations - first) // period)
        return (1 + self.children * (first - 1 + (times - 1) * period) if times else 0), times

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in fields(self):
            if getattr(self, field.name) is None and field.name in POLICIES[self.policy]:
                setattr(self, field.name, POLICIES[self.policy][field.name])
        for first, second in (("explore", "exploit"), ("diff_share", "cross_share")):
            if (total := getattr(self, first) + getattr(self, second)) > 1 + 1e-9:
                raise ConfigError(
                    f"method.{first} and method.{second}: expected shares of at most 1 together, got {total:g}"
                )
        if self.intensity_low > self.intensity_high:
            raise ConfigError(
                f"method.intensity_low: expected at most method.intensity_high={self.intensity_high:g}, got "
                f"{self.intensity_low:g}"
            )
        if self.max_islands < self.islands:  # type: ignore[operator]
            self.max_islands = self.islands
