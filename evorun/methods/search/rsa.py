"""Recursive self-aggregation (RSA, arXiv 2509.26626): a population that the model combines, a few at a time.

No judge and no labels. Numbers of steps and sizes: its section 4 and the authors' code.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Annotated

import numpy as np
from msgspec.structs import replace

from evorun.fields import OneOf, PositiveInt
from evorun.methods.base import PerProblem
from evorun.methods.context import Context
from evorun.methods.search.chain_of_thought import majority
from evorun.methods.search.proposals import Proposal, ResponseSettings, propose
from evorun.rollouts.episodes import max_turns_on
from evorun.runs.archive import ArchivedCandidates, Snapshot
from evorun.runs.candidates import Candidate, Step
from evorun.tasks.base import Task
from evorun.tasks.capabilities import SupportsAggregation, SupportsGeneration


@dataclass(kw_only=True)
class RsaConfig(ResponseSettings):
    """Hyperparameters; `conf/method/rsa.yaml` gives each default and its source."""

    name: str
    population: PositiveInt
    """N: candidates of each step."""
    subset: PositiveInt
    """K: candidates that one completion combines, drawn without replacement; 1: each is refined by itself."""
    steps: PositiveInt | None
    """T, the first draw included, at N calls each (times the turns on a task with tools); None: until the budget has no
    room for another step."""
    choose: Annotated[str, OneOf(("majority", "uniform"))]
    """majority: the most frequent answer of the last population. uniform: one of its candidates, drawn at random."""


class Rsa(PerProblem):
    """Combines random subsets of a population into the next one; the last one gives the answer."""

    name = "rsa"
    description = "a population that the model aggregates, K candidates at a time, for T steps"
    regime = "problem_only"
    needs = (SupportsGeneration, SupportsAggregation)
    Config = RsaConfig
    config: RsaConfig

    @property
    def optional_limits(self) -> Mapping[str, int | None]:
        return {"steps": self.config.steps}

    @property
    def last_step(self) -> int | None:
        return None if self.config.steps is None else self.config.steps - 1

    def warnings(self, calls: int | None, judges: int = 1) -> list[str]:
        config = self.config
        if calls is None or calls >= 2 * config.population:
            return []
        return [
            f"method.population={config.population} leaves no step of aggregation within {calls} calls per problem, "
            f"expected at least {2 * config.population}; lower method.population or raise the budget"
        ]

    def incompatibility(self, task: type[Task]) -> str | None:
        return explain_missing_votes(self.config.choose, task)

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Draw the population, then replace all of it by aggregations of itself, step by step."""
        config, everything = self.config, ArchivedCandidates(ctx.archive)
        population: list[Candidate] = []
        for step in count() if config.steps is None else range(config.steps):
            needed = config.population * max_turns_on(ctx.task, ctx.problem)
            if step > 0 and ctx.affordable(needed, "generate") < needed:
                return  # a step of fewer candidates would be another method
            # While nothing has parsed there is nothing to combine, and the problem is asked anew.
            proposals = [
                self._aggregate(ctx, population, step, child)
                if population
                else Proposal(ctx.task.generation_prompt(ctx.problem), ())
                for child in range(config.population)
            ]
            operator = "aggregate" if population else "init"
            proposed = await propose(ctx, proposals, operator=operator, step=step, settings=config)
            population = proposed.parsed or population
            ballots = [ctx.task.signature(ctx.problem, candidate) for candidate in population]
            rated = rate_by_votes(population, ballots)
            if proposed.parsed:
                everything.extend(replace(candidate, survivor=False) for candidate in rated)
            everything.extend(proposed.unparsed)
            best = choose_answer(config.choose, ballots, ctx.rng("choice", step))
            yield Step(
                step=step,
                best=None if best is None else rated[best],
                candidates=Snapshot(everything, survivors=[candidate.id for candidate in population]),
                pool=len(population),
                extra=proposed.diagnostics() | {"distinct_answers": len(set(ballots))},
            )
            if ctx.out_of_budget:
                return

    def _aggregate(self, ctx: Context, population: Sequence[Candidate], step: int, child: int) -> Proposal:
        """Return the request to combine a random subset; subsets are independent of each other."""
        size = min(self.config.subset, len(population))
        chosen = ctx.rng("subset", step, child).choice(len(population), size, replace=False)
        subset = [population[index] for index in chosen]
        prompt = ctx.task.aggregation_prompt(ctx.problem, subset)
        return Proposal(prompt, tuple(candidate.id for candidate in subset))


def rate_by_votes(population: Sequence[Candidate], ballots: Sequence[str]) -> list[Candidate]:
    """Return the candidates with a belief each: the share of its answer in its own population."""
    votes = Counter(ballots)
    return [
        replace(candidate, mean=votes[ballot] / len(ballots), survivor=True)
        for candidate, ballot in zip(population, ballots, strict=True)
    ]


def explain_missing_votes(rule: str, task: type[Task]) -> str | None:
    """Return why the rule cannot choose among a task's texts; None where it can."""
    if rule != "majority" or not task.free_text:
        return None
    return (
        f"method.choose=majority votes on answers, and no two texts of task={task.name} are the same; set "
        "method.choose=uniform"
    )


def choose_answer(rule: str, ballots: Sequence[str], rng: np.random.Generator) -> int | None:
    """Return the index of the answer by the rule, `majority` or `uniform`; None without any."""
    if rule == "majority" or not ballots:
        return majority(ballots, rng)
    return int(rng.integers(len(ballots)))
