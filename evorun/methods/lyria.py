"""Lyria: a genetic algorithm whose operators are a model's and a symbolic system's in turn (Algorithm 1).

Where Algorithm 1 contradicts itself or the text, this module reads it as follows.

- Line 6 tests `child`, which is not yet there: the candidate is meant, as in lines 25 and 38.
- Line 32 takes `errors[i]` and `fitness[i]`, which belong to the selected parents: an offspring mutates in view of its
  own (os_errors, os_fitness), as section 4.1.7 says.
- Fitness and errors of a copy are those of the original; a repeated answer is evaluated once. With a symbolic system
  that changes nothing, with a model it saves calls (and keeps one answer from having two values).
- EP_0 is the initial population (section 4.1.3; line 2 has it empty), and a set by answer.
- RANDOMCHOICE draws two different members of the mating pool, which itself may hold a member several times.
- The size k_e of truncation selection is not given in the paper: a tenth of the population is ours.
- The best solution (line 45) is the first with the highest fitness of all that were evaluated, offspring that a
  mutation replaced included; only what can be read is returned. The experience pool takes in populations (4.1.3).

The sequential loops are rounds of parallel calls with the same outcome; see `evorun.methods.breeding`.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import ClassVar

from msgspec.structs import replace

from evorun.errors import at_least, one_of, within
from evorun.methods.base import PerProblem, Regime
from evorun.methods.breeding import Member, Offspring, Plan, breed, member
from evorun.methods.context import Context
from evorun.methods.lyria_evaluation import Evaluator, counts
from evorun.methods.lyria_selection import ExperiencePool, replay, select
from evorun.methods.oracle import lacking_verifier, regime_with_verifier
from evorun.methods.proposals import SamplingSettings
from evorun.models.base import Sampling
from evorun.rollouts.calls import Role
from evorun.runs.candidates import Candidate, Step
from evorun.tasks.base import Task
from evorun.tasks.capabilities import Diagnoses, Generates, Operates, Recombines, Scores, Verifies


@dataclass(kw_only=True)
class LyriaConfig(SamplingSettings):
    """Hyperparameters; `conf/method/lyria.yaml` gives each default and its source."""

    name: str
    population: int
    generations: int
    elites: int | None
    """k_e: fittest members that enter the mating pool without a tournament; None: a tenth of the population."""
    max_errors: int
    """epsilon: errors that the detector names at most."""
    dedup_attempts: int
    """tau: how often a repeat is made anew."""
    replay_rate: float
    """rho: largest share of a population that the experience pool replaces."""
    crossover_rate: float
    """eta."""
    external_crossover_rate: float
    """xi: share of crossovers by the task's symbolic operator; of no effect where the task has none."""
    mutation_rate: float
    """kappa."""
    external_mutation_rate: float
    """mu: share of mutations by the task's symbolic operator; of no effect where the task has none."""
    fitness: str
    """oracle: the task's symbolic system. model: the judge model's score. auto: the oracle where there is one."""
    errors: str
    """verifier: the task's symbolic system. model: the judge model. auto: the verifier where there is one."""
    fitness_threshold: float
    """Stop as soon as the best fitness reaches it."""
    evaluator_temperature: float
    evaluator_max_tokens: int

    def __post_init__(self) -> None:
        """Raise ConfigError, naming the key, when a value is out of range."""
        super().__post_init__()
        for key in ("population", "evaluator_max_tokens"):
            at_least(f"method.{key}", getattr(self, key), 1)
        for key in ("generations", "max_errors", "dedup_attempts", "evaluator_temperature"):
            at_least(f"method.{key}", getattr(self, key), 0)
        if self.elites is not None:
            within("method.elites", self.elites, 0, self.population)
        rates = ("replay", "crossover", "external_crossover", "mutation", "external_mutation")
        for rate in rates:
            within(f"method.{rate}_rate", getattr(self, f"{rate}_rate"), 0, 1)
        within("method.fitness_threshold", self.fitness_threshold, 0, 100)
        one_of("method.fitness", self.fitness, ("auto", "oracle", "model"))
        one_of("method.errors", self.errors, ("auto", "verifier", "model"))

    @property
    def kept(self) -> int:
        """k_e as a number."""
        return -(-self.population // 10) if self.elites is None else self.elites

    def expected_calls(self) -> float:
        """Return L of appendix A: the model calls of a problem when no repeat is made anew and nothing stops early."""
        crossovers = self.crossover_rate * (1 - self.external_crossover_rate)
        mutations = self.mutation_rate * (1 - self.external_mutation_rate)
        return self.population * (1 + (crossovers + mutations) * self.generations)


@dataclass
class _State:
    """Where the evolution stands."""

    evaluator: Evaluator
    operates: bool
    """Whether the task has symbolic operators."""
    population: list[Member] = field(default_factory=list)
    pool: ExperiencePool = field(default_factory=ExperiencePool)
    members: list[Member] = field(default_factory=list)
    """All that were made, in order."""
    best: Member | None = None

    def born(self, members: list[Member]) -> None:
        """Take note of members that were made."""
        self.members += members
        for one in members:
            readable = one.candidate.answer is not None
            if readable and (self.best is None or one.fitness > self.best.fitness):
                self.best = one


class Lyria(PerProblem):
    """Evolves a population of answers by crossover and mutation, a model's and a symbolic system's."""

    name = "lyria"
    description = (
        "genetic algorithm: crossover and mutation by a model and by symbolic operators, oracle or model fitness"
    )
    regime = "problem_only"
    needs = (Generates, Recombines)
    roles: ClassVar = {"fitness": Role("judge"), "errors": Role("judge")}
    Config = LyriaConfig

    def __init__(self, config: LyriaConfig) -> None:
        self.config = config
        self.evaluator_sampling = Sampling(
            temperature=config.evaluator_temperature, max_tokens=config.evaluator_max_tokens
        )

    @property
    def last_step(self) -> int:
        """The last generation."""
        return self.config.generations

    def regime_on(self, task: type[Task]) -> Regime:
        """Return `oracle`, or `public_tests` where those are it, unless a model says all."""
        uses = self._oracle(task) or self._verifier(task)
        return regime_with_verifier(task) if uses else self.regime

    def incompatibility(self, task: type[Task]) -> str | None:
        """Return what the fitness or the errors would need of the task."""
        config = self.config
        if config.fitness == "oracle" or config.errors == "verifier":
            return lacking_verifier(task, "method.fitness=model method.errors=model")
        lacks_scores = not self._oracle(task) and not issubclass(task, Scores)
        if lacks_scores or (not self._verifier(task) and not issubclass(task, Diagnoses)):
            return f"task={task.name} has no prompts for a model that scores answers or finds errors in them"
        return None

    def _oracle(self, task: type[Task]) -> bool:
        return self.config.fitness == "oracle" or (self.config.fitness == "auto" and issubclass(task, Verifies))

    def _verifier(self, task: type[Task]) -> bool:
        return self.config.errors == "verifier" or (self.config.errors == "auto" and issubclass(task, Verifies))

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Evolve; one step a generation, the initial population being step 0."""
        task = type(ctx.task)
        evaluator = Evaluator(self._oracle(task), self._verifier(task), self.config.max_errors, self.evaluator_sampling)
        state = _State(evaluator, isinstance(ctx.task, Operates))
        for step in range(self.config.generations + 1):
            broods = await (self._evolve(ctx, state, step) if step else self._begin(ctx, state))
            if ctx.out_of_budget and step > 0 and not any(offspring.children for offspring in broods):
                return
            state.pool.add(state.population)
            yield _report(state, step, broods)
            if ctx.out_of_budget or not state.population or self._good_enough(state):
                return

    def _good_enough(self, state: _State) -> bool:
        return state.best is not None and state.best.fitness >= self.config.fitness_threshold - 1e-9

    async def _begin(self, ctx: Context, state: _State) -> list[Offspring]:
        """Lines 3 to 12: answers from scratch."""
        prompt = ctx.task.generation_prompt(ctx.problem)
        plan = Plan(operator="init", prompt=prompt)
        offspring = await self._breed(ctx, lambda index, attempt: plan, self.config.population, "generate", step=0)
        state.population = await self._raise(ctx, state, offspring, step=0, prefix="0.", role="generate", phase=0)
        return [offspring]

    async def _evolve(self, ctx: Context, state: _State, step: int) -> list[Offspring]:
        """Lines 14 to 44: one generation. An early end of the budget leaves a smaller population."""
        population = replay(state.population, state.pool, self.config.replay_rate)
        mating = select(population, self.config.kept, ctx.rng("selection", step))
        crossing = await self._breed(
            ctx,
            lambda index, attempt: self._crossover(ctx, state, mating, step, index, attempt),
            self.config.population,
            "crossover",
            step=step,
        )
        offspring = await self._raise(ctx, state, crossing, step=step, prefix=f"{step}.c", role="crossover", phase=0)
        mutating = await self._breed(
            ctx,
            lambda index, attempt: self._mutation(ctx, state, offspring[index], step, index, attempt),
            len(offspring),
            "mutate",
            step=step,
        )
        state.population = await self._raise(
            ctx, state, mutating, step=step, prefix=f"{step}.m", role="mutate", phase=1
        )
        return [crossing, mutating]

    def _crossover(
        self, ctx: Context, state: _State, mating: list[Member], step: int, index: int, attempt: int
    ) -> Plan:
        """Lines 19 to 24."""
        rng = ctx.rng("crossover", step, index, attempt)
        chosen = rng.choice(len(mating), size=2, replace=len(mating) < 2).tolist()
        first, second = (mating[i] for i in chosen)
        if rng.random() >= self.config.crossover_rate:
            return Plan(operator="copy", copy=(first, second)[int(rng.integers(2))])
        if state.operates and rng.random() < self.config.external_crossover_rate:
            response = ctx.task.crossover(ctx.problem, first.individual, second.individual, rng)
            return Plan(operator="external_crossover", parents=(first, second), response=response)
        prompt = ctx.task.crossover_prompt(ctx.problem, first.individual, second.individual)
        return Plan(operator="crossover", parents=(first, second), prompt=prompt)

    def _mutation(self, ctx: Context, state: _State, original: Member, step: int, index: int, attempt: int) -> Plan:
        """Lines 32 to 37."""
        rng = ctx.rng("mutation", step, index, attempt)
        if rng.random() >= self.config.mutation_rate:
            return Plan(operator="copy", copy=original)
        if state.operates and rng.random() < self.config.external_mutation_rate:
            response = ctx.task.mutate(ctx.problem, original.individual, rng)
            return Plan(operator="external_mutation", parents=(original,), response=response)
        prompt = ctx.task.mutation_prompt(ctx.problem, original.individual)
        return Plan(operator="mutation", parents=(original,), prompt=prompt)

    async def _breed(
        self, ctx: Context, plan: Callable[[int, int], Plan], size: int, role: str, *, step: int
    ) -> Offspring:
        return await breed(
            ctx,
            plan,
            range(size),
            role=role,
            step=step,
            sampling=self.config.sampling,
            dedup_attempts=self.config.dedup_attempts,
        )

    async def _raise(
        self, ctx: Context, state: _State, offspring: Offspring, *, step: int, prefix: str, role: str, phase: int
    ) -> list[Member]:
        """Evaluate what was made and return the population: copies are the members themselves."""
        made = [child for child in offspring.children if child.plan.copy is None]
        evaluator = state.evaluator
        await evaluator.evaluate(ctx, made, step=step, first_index=phase * self.config.population)
        population, new = [], []
        for index, child in zip(offspring.indices, offspring.children, strict=True):
            if child.plan.copy is not None:
                population.append(child.plan.copy)
                continue
            found = evaluator.known[child.key]
            asked = child.plan.prompt is not None
            candidate = Candidate.of(
                child.response,
                id=f"{prefix}{index}",
                generation=step,
                parents=tuple(parent.candidate.id for parent in child.plan.parents),
                operator=child.plan.operator,
                attempts=child.attempt + 1,
                call=ctx.key(step, role, index, child.attempt) if asked else None,
                fitness=found.fitness,
                errors=found.errors.text,
                mean=found.fitness,
            )
            new.append(member(candidate, found.fitness, found.errors, child.key))
            population.append(new[-1])
        state.born(new)
        return population


def _report(state: _State, step: int, broods: list[Offspring]) -> Step:
    alive = {one.candidate.id for one in state.population}
    candidates = [replace(one.candidate, survivor=one.candidate.id in alive) for one in state.members]
    best = next((one for one in candidates if state.best and one.id == state.best.candidate.id), None)
    totals: dict[str, float] = {}
    for offspring in broods:
        for name, value in offspring.diagnostics().items():
            totals[name] = totals.get(name, 0) + value
    fitness = [one.fitness for one in state.population]
    extra = {"population": float(len(fitness)), **totals, **counts(state.evaluator)}
    if fitness:
        extra |= {"best_fitness": max(fitness), "mean_fitness": sum(fitness) / len(fitness)}
    return Step(step=step, best=best, candidates=candidates, extra=extra)
