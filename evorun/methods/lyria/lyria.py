"""Lyria: a genetic algorithm with operators of a model and of a symbolic system (Algorithm 1).

Where Algorithm 1 contradicts itself or the text, this module reads it as follows.

- Line 6 tests `child`, which does not exist yet: the candidate is meant, as in lines 25 and 38.
- Line 32 takes `errors[i]` and `fitness[i]`, which belong to the selected parents. An offspring mutates in view of its
  own (os_errors, os_fitness), as section 4.1.7 says.
- A copy has the fitness and errors of the original; a repeated answer is evaluated once. With a symbolic system that
  changes nothing; with a model it saves calls and keeps an answer from having two values.
- EP_0 is the initial population (section 4.1.3; line 2 has it empty), and it holds each answer once.
- RANDOMCHOICE draws two different members of the mating pool, which itself may hold a member several times.
- The paper does not give the size k_e of truncation selection: a tenth of the population is ours.
- The best solution (line 45) is the first with the highest fitness among all evaluated answers, including offspring
  that a mutation replaced; only a parsed answer is returned. Populations enter the experience pool (4.1.3).

The sequential loops are rounds of parallel calls with the same outcome; see `evorun.methods.lyria.population`.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar

from msgspec import Meta
from msgspec.structs import replace

from evorun.fields import Fraction, NonNegativeFloat, NonNegativeInt, OneOf, PositiveInt, require_within
from evorun.methods.base import PerProblem, Regime, SamplingSettings
from evorun.methods.context import Context
from evorun.methods.lyria.population import (
    Evaluator,
    ExperiencePool,
    Member,
    Offspring,
    Plan,
    breed,
    explain_missing_verifier,
    max_replaced,
    regime_with_verifier,
    replay,
    select,
    select_by_puct,
)
from evorun.methods.search.puct import Puct
from evorun.models.base import Sampling
from evorun.rollouts.calls import Role
from evorun.runs.archive import ArchivedCandidates, Snapshot
from evorun.runs.candidates import Candidate, Step
from evorun.tasks.base import Task
from evorun.tasks.capabilities import (
    HasSymbolicOperators,
    HasVerifier,
    Individual,
    SupportsErrorDetection,
    SupportsFitnessScores,
    SupportsGeneration,
    SupportsModelOperators,
)


@dataclass(kw_only=True)
class LyriaConfig(SamplingSettings):
    """Hyperparameters; `conf/method/lyria.yaml` gives each default and its source."""

    name: str
    population: PositiveInt
    generations: NonNegativeInt
    elites: int | None
    """k_e: fittest members that enter the mating pool without a tournament; None: a tenth of the population."""
    parent_choice: Annotated[str, OneOf(("tournament", "puct"))]
    """The rest of the mating pool. tournament: winners of tournaments of two. puct: members by their fittest child and
    the number of visits."""
    puct_exploration: NonNegativeFloat
    """c of PUCT: weight of members that were rarely tried."""
    max_errors: NonNegativeInt
    """epsilon: maximum errors that the detector names."""
    dedup_attempts: NonNegativeInt
    """tau: maximum replacements of a repeated answer."""
    replay_rate: Fraction
    """rho: maximum share of a population that the experience pool replaces."""
    crossover_rate: Fraction
    """eta: probability that an offspring comes from a crossover."""
    external_crossover_rate: Fraction
    """xi: share of crossovers by the task's symbolic operator; without effect where the task has none."""
    mutation_rate: Fraction
    """kappa: probability that an offspring is mutated."""
    external_mutation_rate: Fraction
    """mu: share of mutations by the task's symbolic operator; without effect where the task has none."""
    fitness: Annotated[str, OneOf(("auto", "oracle", "model"))]
    """oracle: the task's symbolic system. model: the judge model's score. auto: the oracle where there is one."""
    errors: Annotated[str, OneOf(("auto", "verifier", "model"))]
    """verifier: the task's symbolic system. model: the judge model. auto: the verifier where there is one."""
    fitness_threshold: Annotated[float, Meta(ge=0, le=100)]
    """Stop as soon as the best fitness reaches it."""
    evaluator_temperature: NonNegativeFloat
    evaluator_max_tokens: PositiveInt

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.elites is not None:
            require_within("method.elites", self.elites, 0, self.population)

    @property
    def elite_count(self) -> int:
        """k_e, the number of elites in a mating pool."""
        # The paper gives no k_e; a tenth, rounded up, keeps the best even in a small population.
        return -(-self.population // 10) if self.elites is None else self.elites

    def expected_calls(self) -> float:
        """Return L of appendix A: model calls per problem if no repeat is replaced and nothing stops early."""
        crossovers = self.crossover_rate * (1 - self.external_crossover_rate)
        mutations = self.mutation_rate * (1 - self.external_mutation_rate)
        return self.population * (1 + (crossovers + mutations) * self.generations)


@dataclass
class _State:
    """The state of one problem's evolution."""

    evaluator: Evaluator
    pool: ExperiencePool
    members: ArchivedCandidates
    """All members of all generations in order, including offspring that a mutation replaced."""
    lineage: Puct
    fitness: dict[str, float] = field(default_factory=dict)
    """Of all members, by id."""
    population: list[Member] = field(default_factory=list)
    best: Member | None = None


class Lyria(PerProblem):
    """Evolves a population of answers by crossover and mutation, with a model's and symbolic operators."""

    name = "lyria"
    description = (
        "genetic algorithm: crossover and mutation by a model and by symbolic operators, oracle or model fitness"
    )
    regime = "problem_only"
    needs = (SupportsGeneration, SupportsModelOperators)
    roles: ClassVar = {"fitness": Role("judge"), "errors": Role("judge")}
    Config = LyriaConfig
    config: LyriaConfig

    @property
    def last_step(self) -> int:
        return self.config.generations

    def warnings(self, calls: int | None, judges: int = 1) -> list[str]:
        config, expected = self.config, self.config.expected_calls()
        if calls is None or calls >= expected:
            return []
        repeats = ""
        if config.dedup_attempts:
            repeats = (
                f"; each repeat is drawn again, up to {config.dedup_attempts} times (method.dedup_attempts), so that "
                f"generation 0 alone may take {config.population * (1 + config.dedup_attempts)}"
            )
        return [
            f"budget of {calls} calls per problem: {config.generations} generations of {config.population} take about "
            f"{expected:.0f} where no answer repeats (method.generations, method.population), so it ends early{repeats}"
        ]

    def information_regime(self, task: type[Task]) -> Regime:
        uses = self._oracle(task) or self._verifier(task)
        return regime_with_verifier(task) if uses else self.regime

    def incompatibility(self, task: type[Task]) -> str | None:
        config = self.config
        # `auto` uses the symbolic system only where there is one, so only the explicit choices can lack it.
        if config.fitness == "oracle" or config.errors == "verifier":
            return explain_missing_verifier(task, "method.fitness=model method.errors=model")
        lacks_scores = not self._oracle(task) and not issubclass(task, SupportsFitnessScores)
        if lacks_scores or (not self._verifier(task) and not issubclass(task, SupportsErrorDetection)):
            return f"task={task.name} has no prompts for a model that scores answers or finds errors in them"
        return None

    def _oracle(self, task: type[Task]) -> bool:
        return self.config.fitness == "oracle" or (self.config.fitness == "auto" and issubclass(task, HasVerifier))

    def _verifier(self, task: type[Task]) -> bool:
        return self.config.errors == "verifier" or (self.config.errors == "auto" and issubclass(task, HasVerifier))

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Run Algorithm 1 (line numbers in comments); a step is a generation, step 0 the initial population."""
        config, task = self.config, type(ctx.task)
        sampling = Sampling(temperature=config.evaluator_temperature, max_tokens=config.evaluator_max_tokens)
        state = _State(
            Evaluator(self._oracle(task), self._verifier(task), config.max_errors, sampling, ctx.archive),
            ExperiencePool(max_replaced(config.population, config.replay_rate)),
            ArchivedCandidates(ctx.archive),
            Puct(config.puct_exploration),
        )
        scratch = Plan(operator="init", prompt=ctx.task.generation_prompt(ctx.problem))
        for step in range(config.generations + 1):
            if step == 0:  # lines 3 to 12: answers from scratch
                state.population, made = await self._breed(
                    ctx, state, lambda index, attempt: scratch, config.population, "generate", step
                )
                phases = [made]
            else:  # an early end of the budget leaves a smaller population
                population = replay(state.population, state.pool, config.replay_rate)  # line 14
                mating = self._select(ctx, state, population, step)  # lines 15 and 16
                plan = partial(self._crossover, ctx, mating, step)  # lines 17 to 28
                offspring, crossed = await self._breed(ctx, state, plan, config.population, "crossover", step)
                plan = partial(self._mutation, ctx, offspring, step)  # lines 29 to 43
                state.population, mutated = await self._breed(ctx, state, plan, len(offspring), "mutate", step)
                phases = [crossed, mutated]
            if ctx.out_of_budget and step > 0 and not any(phase.children for phase in phases):
                return
            state.pool.add(state.population)  # line 44
            # A weighted sum may miss its threshold by a rounding error.
            good_enough = state.best is not None and state.best.fitness >= config.fitness_threshold - 1e-9
            yield replace(_make_step(state, step, phases), reached_goal=good_enough)
            if ctx.out_of_budget or not state.population or good_enough:
                return

    def _select(self, ctx: Context, state: _State, population: list[Member], step: int) -> list[Member]:
        elites = self.config.elite_count
        if self.config.parent_choice == "puct":
            return select_by_puct(population, elites, state.lineage, state.fitness)
        return select(population, elites, ctx.rng("selection", step))

    def _crossover(self, ctx: Context, mating: list[Member], step: int, index: int, attempt: int) -> Plan:
        """Plan an offspring (lines 19 to 24)."""
        # With the attempt in the name, a repeat is replaced with other parents or another operator.
        rng = ctx.rng("crossover", step, index, attempt)
        # Two different members, unless the budget left only one.
        chosen = rng.choice(len(mating), size=2, replace=len(mating) < 2).tolist()
        first, second = (mating[i] for i in chosen)
        if rng.random() >= self.config.crossover_rate:
            return Plan(operator="copy", copy=(first, second)[int(rng.integers(2))])
        if isinstance(ctx.task, HasSymbolicOperators) and rng.random() < self.config.external_crossover_rate:
            response = ctx.task.crossover(ctx.problem, first.individual, second.individual, rng)
            return Plan(operator="external_crossover", parents=(first, second), response=response)
        prompt = ctx.task.crossover_prompt(ctx.problem, first.individual, second.individual)
        return Plan(operator="crossover", parents=(first, second), prompt=prompt)

    def _mutation(self, ctx: Context, offspring: list[Member], step: int, index: int, attempt: int) -> Plan:
        """Plan the mutation of an offspring (lines 32 to 37)."""
        original = offspring[index]
        rng = ctx.rng("mutation", step, index, attempt)
        if rng.random() >= self.config.mutation_rate:
            return Plan(operator="copy", copy=original)
        if isinstance(ctx.task, HasSymbolicOperators) and rng.random() < self.config.external_mutation_rate:
            response = ctx.task.mutate(ctx.problem, original.individual, rng)
            return Plan(operator="external_mutation", parents=(original,), response=response)
        prompt = ctx.task.mutation_prompt(ctx.problem, original.individual)
        return Plan(operator="mutation", parents=(original,), prompt=prompt)

    async def _breed(
        self, ctx: Context, state: _State, plan: Callable[[int, int], Plan], size: int, role: str, step: int
    ) -> tuple[list[Member], Offspring]:
        """Fill a population, evaluate its new members and return it; a copy is the member itself."""
        bred = await breed(
            ctx,
            plan,
            range(size),
            role=role,
            step=step,
            sampling=self.config.sampling,
            dedup_attempts=self.config.dedup_attempts,
        )
        # By key: offspring with the same answer in a phase are evaluated once.
        new = {child.key: child.response for child in bred.children if child.plan.copy is None}
        # A step's crossover and mutation share the evaluator's role and step, so their calls differ by index.
        first_call = self.config.population if role == "mutate" else 0
        await state.evaluator.evaluate(ctx, new, step=step, first_call=first_call)
        prefix = {"generate": ".", "crossover": ".c", "mutate": ".m"}[role]
        population = []
        for index, child in zip(bred.indices, bred.children, strict=True):
            if child.plan.copy is not None:
                population.append(child.plan.copy)
                continue
            evaluation = state.evaluator.evaluation(child.key)
            candidate = Candidate.from_response(
                child.response,
                id=f"{step}{prefix}{index}",
                generation=step,
                parents=tuple(parent.candidate.id for parent in child.plan.parents),
                operator=child.plan.operator,
                attempts=child.attempt + 1,
                call=child.call,
                fitness=evaluation.fitness,
                errors=evaluation.errors.text,
                mean=evaluation.fitness,
            )
            member = Member(
                candidate,
                Individual(response=candidate, fitness=evaluation.fitness, errors=evaluation.errors),
                child.key,
            )
            population.append(member)
            state.members.extend([candidate])
            state.lineage.add(candidate.id, candidate.parents)
            state.fitness[candidate.id] = member.fitness
            # Line 45: the first of the fittest parsed answers among all that were evaluated.
            if candidate.answer is not None and (state.best is None or member.fitness > state.best.fitness):
                state.best = member
        return population, bred


def _make_step(state: _State, step: int, phases: list[Offspring]) -> Step:
    alive = {member.candidate.id for member in state.population}
    best = None if state.best is None else state.best.candidate
    if best is not None and best.id in alive:
        best = replace(best, survivor=True)
    # A step's counts are over both phases.
    totals: dict[str, float] = {}
    for phase in phases:
        for name, value in phase.diagnostics().items():
            totals[name] = totals.get(name, 0) + value
    fitness = [member.fitness for member in state.population]
    extra = {"population": float(len(fitness)), **totals, **state.evaluator.diagnostics()}
    if fitness:
        extra |= {"best_fitness": max(fitness), "mean_fitness": sum(fitness) / len(fitness)}
    candidates = Snapshot(state.members, survivors=alive)
    return Step(step=step, best=best, candidates=candidates, pool=len(alive), extra=extra)


class Laft(Lyria):
    """Lyria with a fine-tuned student as its model."""

    name = "laft"
    description = "Lyria with a model first fine-tuned on answers that a stronger model found by Lyria"
    requires_student = True
