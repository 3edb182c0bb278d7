"""Algorithm 1 of the Lyria paper, line by line and one call after the other, as an oracle for the parallel one.

Completions come from a function of the call and of what it shows; random numbers from the same named streams as the
method's. Everything else is written from the pseudo-code, not from the method.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from evorun.runs.streams import stream

Complete = Callable[[str, int, int, int, Sequence["One"]], str]
"""role, step, index, attempt, what is shown -> completion."""


class One(NamedTuple):
    """A candidate with its fitness and its errors."""

    answer: str
    fitness: float
    errors: str


class Sequential(NamedTuple):
    """The states that the algorithm went through."""

    populations: list[list[One]]
    """After the initialisation, and after each generation."""
    best: One | None
    calls: list[tuple[str, int, int, int]]
    """role, step, index, attempt."""


def lyria(
    config: Any,
    complete: Complete,
    fe: Callable[[str], float],
    ed: Callable[[str, int], str],
    eco: Callable[[One, One, Any], str],
    emo: Callable[[One, Any], str],
    streams: tuple[int, str],
) -> Sequential:
    """Run Algorithm 1; `streams` are the seed and the problem that random streams are named by."""

    def rd(*names: str | int) -> Any:
        return stream(streams[0], streams[1], *names)

    calls: list[tuple[str, int, int, int]] = []

    def llm(role: str, step: int, index: int, attempt: int, shown: Sequence[One]) -> str:
        calls.append((role, step, index, attempt))
        return complete(role, step, index, attempt, shown)

    def evaluated(candidate: str) -> One:
        return One(candidate, fe(candidate), ed(candidate, config.max_errors))

    population: list[One] = []
    best: One | None = None
    tau = 0
    while len(population) < config.population:
        candidate = llm("generate", 0, len(population), tau, ())
        if candidate in [one.answer for one in population] and tau < config.dedup_attempts:
            tau += 1
            continue
        tau = 0
        population.append(evaluated(candidate))
        if best is None or population[-1].fitness > best.fitness:
            best = population[-1]
    pool = list(dict.fromkeys(population))
    populations = [population]
    for step in range(1, config.generations + 1):
        if best is not None and best.fitness >= config.fitness_threshold:
            break
        # Experience pool (4.1.3): c'_i is the i-th best of the pool, if it beats the i-th worst.
        ascending = sorted(population, key=lambda one: one.fitness)
        descending = sorted(pool, key=lambda one: one.fitness, reverse=True)
        for i in range(min(int(config.replay_rate * len(population) + 1e-9), len(descending))):
            if descending[i].fitness > ascending[i].fitness:
                ascending[i] = descending[i]
        population = ascending
        # Selection (4.1.5).
        n = len(population)
        selected = sorted(population, key=lambda one: one.fitness, reverse=True)[: config.elite_count]
        for x, y in rd("selection", step).integers(n, size=(n - len(selected), 2)):
            selected.append(population[x] if population[x].fitness > population[y].fitness else population[y])
        offspring: list[One] = []
        tau = 0
        while len(offspring) < config.population:
            rng = rd("crossover", step, len(offspring), tau)
            i, j = rng.choice(len(selected), size=2, replace=len(selected) < 2)
            c1, c2 = selected[i], selected[j]
            if rng.random() < config.crossover_rate:
                if rng.random() < config.external_crossover_rate:
                    child = eco(c1, c2, rng)
                else:
                    child = llm("crossover", step, len(offspring), tau, (c1, c2))
            else:
                child = (c1, c2)[rng.integers(2)].answer
            if child in [one.answer for one in offspring] and tau < config.dedup_attempts:
                tau += 1
                continue
            tau = 0
            offspring.append(evaluated(child))
        mutated: list[One] = []
        tau = 0
        while len(mutated) < config.population:
            c = offspring[len(mutated)]
            rng = rd("mutation", step, len(mutated), tau)
            if rng.random() < config.mutation_rate:
                if rng.random() < config.external_mutation_rate:
                    child = emo(c, rng)
                else:
                    child = llm("mutate", step, len(mutated), tau, (c,))
            else:
                child = c.answer
            if child in [one.answer for one in mutated] and tau < config.dedup_attempts:
                tau += 1
                continue
            tau = 0
            mutated.append(evaluated(child))
        population = mutated
        populations.append(population)
        pool = list(dict.fromkeys([*pool, *population]))
        for one in [*offspring, *mutated]:
            if best is None or one.fitness > best.fitness:
                best = one
    return Sequential(populations, best, calls)
