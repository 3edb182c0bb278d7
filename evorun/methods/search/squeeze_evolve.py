"""Squeeze-Evolve (arXiv 2604.07725): recursive self-aggregation in which the fitness of a group chooses its model.

The dearest model draws the first population. Then easy groups go to cheap models, and hard ones to dear models. With
one generator, uniform selection and replacement it is `rsa`, to the byte.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from math import floor
from statistics import fmean
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from evorun.errors import ConfigError
from evorun.fields import OneOf, PositiveFloat, PositiveInt
from evorun.methods.base import PerProblem
from evorun.methods.context import Context
from evorun.methods.search.chain_of_thought import majority
from evorun.methods.search.proposals import Proposal, Proposed, ResponseSettings, propose
from evorun.methods.search.rsa import choose_answer, explain_missing_votes, rate_by_votes
from evorun.models.base import Confidence, Sampling
from evorun.rollouts.calls import GENERATOR, Role
from evorun.rollouts.episodes import max_turns_on
from evorun.runs.archive import ArchivedCandidates, Snapshot
from evorun.runs.candidates import Candidate, Step
from evorun.runs.roles import GENERATE
from evorun.tasks.base import Task
from evorun.tasks.capabilities import SupportsAggregation, SupportsGeneration


@dataclass(kw_only=True)
class SqueezeEvolveConfig(ResponseSettings):
    """Hyperparameters; `conf/method/squeeze_evolve.yaml` gives each default and its source."""

    name: str
    population: PositiveInt
    """N: candidates of the first step, all from the dearest model."""
    groups: PositiveInt
    """M: groups of each later step, one completion each."""
    subset: PositiveInt
    """K: candidates of a group, drawn without replacement."""
    steps: PositiveInt | None
    """Steps with the first draw, at N and then M calls (times the turns on a task with tools), less the groups that are
    settled without a call; None: until the budget has no room for another step."""
    fitness: Annotated[str, OneOf(("confidence", "diversity"))]
    """confidence: a group is the easier, the higher its members' mean confidence, each of the model that wrote it (no
    further pass). diversity: the fewer different answers it has."""
    percentiles: list[float] | None
    """Percentiles of a problem's group fitnesses, one fewer than models, rising: groups at or below the lowest go to
    the dearest model, those above all to the cheapest. None: even shares."""
    selection: Annotated[str, OneOf(("uniform", "weighted"))]
    """uniform: all candidates are equally likely to enter a group. weighted: by the softmax of their confidence."""
    zeta: PositiveFloat
    """Temperature of that softmax, in nats."""
    update: Annotated[str, OneOf(("replace", "accumulate"))]
    """replace: the completions are the next population. accumulate: they join it."""
    lite_fraction: Annotated[float, Meta(ge=0, le=1)]
    """Share of the cheapest model's groups, the easiest first, that are settled without a call."""
    lite: Annotated[str, OneOf(("majority", "random"))]
    """majority: such a group gives a candidate with its most frequent answer. random: any of its candidates."""
    choose: Annotated[str, OneOf(("majority", "uniform"))]
    """majority: the most frequent answer of the last population. uniform: one of its candidates, drawn at random."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.selection == "weighted" and self.fitness != "confidence":
            raise ConfigError(
                f"method.selection=weighted: expected method.fitness=confidence, by which it weighs, got {self.fitness}"
            )

    @property
    def sampling(self) -> Sampling:
        sampling = super().sampling
        return replace(sampling, confidence=Confidence()) if self.fitness == "confidence" else sampling

    def thresholds(self, generators: int) -> list[float]:
        """Return the percentiles between this many models."""
        if self.percentiles is not None:
            return self.percentiles
        return [100 * share / generators for share in range(1, generators)]


class Group(NamedTuple):
    """Candidates to combine."""

    members: Sequence[Candidate]
    ballots: Sequence[str]
    """The members' answers, as they are compared."""
    child: int
    """Number of the group in its step."""

    def rate(self, fitness: str) -> float:
        """Return the fitness of the group: the higher, the easier.

        Of diversity, minus the number of different answers. The authors' code takes the number itself, which sends
        groups that disagree to the cheap model, against the paper's words.
        """
        if fitness == "diversity":
            return -float(len(set(self.ballots)))
        return fmean(member.known_confidence for member in self.members)


def count_groups(groups: int, percentiles: Sequence[float]) -> list[int]:
    """Return the number of groups that each model combines, the cheapest first.

    Of fitnesses without ties, `floor((groups - 1) * p / 100) + 1` are at or below their p-th percentile, as numpy
    interpolates it; they are the hardest.
    """
    below = [floor((groups - 1) * percentile / 100) + 1 for percentile in percentiles]
    return [high - low for low, high in pairwise([0, *below, groups])][::-1]


def route(fitnesses: Sequence[float], percentiles: Sequence[float], rng: np.random.Generator) -> list[int]:
    """Return the number of the model that combines each group: 0, the cheapest, for the highest fitnesses.

    Ties are broken at random, so that each model has its share. The authors' thresholds send all groups at a threshold
    to the dearer model: with counts of answers those are most groups.
    """
    order = np.lexsort((rng.random(len(fitnesses)), np.array(fitnesses)))[::-1]
    tiers = [0] * len(fitnesses)
    models = [model for model, number in enumerate(count_groups(len(fitnesses), percentiles)) for _ in range(number)]
    for group, model in zip(order.tolist(), models, strict=True):
        tiers[group] = model
    return tiers


def draw_weighted(logits: Sequence[float], size: int, rng: np.random.Generator) -> list[int]:
    """Return different indices, drawn one after another by the softmax of the logits of those that are left.

    The largest sums with Gumbel noise are such a draw (Kool, van Hoof and Welling 2019, arXiv 1903.06059).
    """
    keys = np.array(logits) + rng.gumbel(size=len(logits))
    return [int(index) for index in np.argsort(-keys, kind="stable")[:size]]


class SqueezeEvolve(PerProblem):
    """Combines random groups of a population into the next one, each by a model that its fitness calls for."""

    name = "squeeze_evolve"
    description = "recursive self-aggregation over several models: hard groups go to dear models, easy ones to cheap"
    regime = "problem_only"
    needs = (SupportsGeneration, SupportsAggregation)
    roles: ClassVar = {GENERATE: Role(GENERATOR)}
    Config = SqueezeEvolveConfig
    config: SqueezeEvolveConfig

    @property
    def optional_limits(self) -> Mapping[str, int | None]:
        return {"steps": self.config.steps}

    @property
    def last_step(self) -> int | None:
        return None if self.config.steps is None else self.config.steps - 1

    @property
    def asks_confidence(self) -> bool:
        return self.config.fitness == "confidence"

    def generators_obstacle(self, generators: int, task: type[Task]) -> str | None:
        if generators > 1 and task.free_text and self.config.fitness == "diversity":
            return (
                f"method.fitness=diversity counts different answers, and no two texts of task={task.name} are the "
                "same; set method.fitness=confidence"
            )
        cuts = self.config.thresholds(generators)
        if len(cuts) == generators - 1 and cuts == sorted(cuts) and all(0 <= cut <= 100 for cut in cuts):
            return None
        return (
            f"method.percentiles: expected {generators - 1} rising numbers in [0, 100], one fewer than generators, got "
            f"{cuts}"
        )

    def warnings(self, calls: int | None, judges: int = 1) -> list[str]:
        needed = self.config.population + self.config.groups
        if calls is None or calls >= needed:
            return []
        return [
            f"method.population={self.config.population} leaves no step of aggregation within {calls} calls per "
            f"problem, expected at least {needed}; lower method.population and method.groups, or raise the budget"
        ]

    def incompatibility(self, task: type[Task]) -> str | None:
        if not task.free_text:
            return None
        if (obstacle := explain_missing_votes(self.config.choose, task)) is not None:
            return obstacle
        if self.config.lite_fraction and self.config.lite == "majority":
            return f"method.lite=majority votes on answers, which task={task.name} lacks; set method.lite=random"
        return None

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Draw the population from the dearest model, then combine groups of it, step by step."""
        config, everything, models = self.config, ArchivedCandidates(ctx.archive), ctx.generators
        population: list[Candidate] = []
        for step in count() if config.steps is None else range(config.steps):
            needed = (config.groups if step else config.population) * max_turns_on(ctx.task, ctx.problem)
            # The dearest model's mean cost bounds that of any mixture.
            if step > 0 and ctx.affordable(needed, models[-1]) < needed:
                return
            settled: list[Candidate] = []
            if population:
                groups = self._draw_groups(ctx, population, step)
                fitnesses = [group.rate(config.fitness) for group in groups]
                tiers = route(fitnesses, config.thresholds(len(models)), ctx.rng("ties", step))
                lite = self._find_lite(fitnesses, tiers)
                settled = [self._settle(ctx, groups[child], step) for child in sorted(lite)]
                asked = [child for child in range(len(groups)) if child not in lite]
                proposed = await self._combine(ctx, [groups[i] for i in asked], [models[tiers[i]] for i in asked], step)
            else:  # the first step, and as long as nothing has parsed
                prompt = ctx.task.generation_prompt(ctx.problem)
                drawn = [Proposal(prompt, (), models[-1])] * config.population
                proposed = await propose(ctx, drawn, operator="init", step=step, settings=config)
            born = [*proposed.parsed, *settled]
            kept = population if config.update == "accumulate" or not born else []
            population = [*kept, *born]
            ballots = [ctx.task.signature(ctx.problem, candidate) for candidate in population]
            rated = rate_by_votes(population, ballots)
            everything.extend(replace(candidate, survivor=False) for candidate in rated[len(kept) :])
            everything.extend(proposed.unparsed)
            best = choose_answer(config.choose, ballots, ctx.rng("choice", step))
            yield Step(
                step=step,
                best=None if best is None else rated[best],
                candidates=Snapshot(everything, survivors=[candidate.id for candidate in population]),
                pool=len(population),
                extra=proposed.diagnostics()
                | {"distinct_answers": len(set(ballots))}
                | ({"settled_groups": len(settled)} if config.lite_fraction else {}),
            )
            if ctx.out_of_budget:
                return

    def _draw_groups(self, ctx: Context, population: Sequence[Candidate], step: int) -> list[Group]:
        """Return random groups of the population; groups are independent of each other."""
        ballots = [ctx.task.signature(ctx.problem, candidate) for candidate in population]
        size = min(self.config.subset, len(population))
        groups = []
        for child in range(self.config.groups):
            rng = ctx.rng("subset", step, child)
            if self.config.selection == "weighted":
                chosen = draw_weighted([member.known_confidence / self.config.zeta for member in population], size, rng)
            else:
                chosen = rng.choice(len(population), size, replace=False).tolist()
            groups.append(Group([population[i] for i in chosen], [ballots[i] for i in chosen], child))
        return groups

    def _find_lite(self, fitnesses: Sequence[float], tiers: Sequence[int]) -> set[int]:
        """Return the numbers of the groups that are settled without a call: the cheapest model's easiest ones."""
        cheapest = [group for group, tier in enumerate(tiers) if tier == 0]
        easiest = sorted(cheapest, key=lambda group: -fitnesses[group])
        return set(easiest[: int(self.config.lite_fraction * len(easiest))])

    def _settle(self, ctx: Context, group: Group, step: int) -> Candidate:
        """Return a member of a group, with its most frequent answer or at random, as a candidate of this step."""
        rng = ctx.rng("lite", step, group.child)
        chosen = (
            majority(group.ballots, rng) if self.config.lite == "majority" else int(rng.integers(len(group.members)))
        )
        assert chosen is not None  # noqa: S101 - a group has members
        parents = tuple(member.id for member in group.members)
        return replace(
            group.members[chosen],
            id=f"{step}.s{group.child}",
            generation=step,
            parents=parents,
            operator="settle",
            attempts=0,
            call=None,
        )

    async def _combine(self, ctx: Context, groups: Sequence[Group], roles: Sequence[str], step: int) -> Proposed:
        """Ask for one completion per group, each of the model with its role."""
        proposals = [
            Proposal(
                ctx.task.aggregation_prompt(ctx.problem, group.members),
                tuple(member.id for member in group.members),
                role,
            )
            for group, role in zip(groups, roles, strict=True)
        ]
        return await propose(ctx, proposals, operator="aggregate", step=step, settings=self.config)
