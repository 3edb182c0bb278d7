"""Lyria's populations: breeding, evaluation, the experience pool and the selector (Lyria, sections 4.1.1 to 4.1.5).

Algorithm 1 fills a population slot by slot and refills a repeat of an earlier slot a limited number of times. Here all
slots are filled concurrently, and those that repeat an earlier slot are refilled together, until no repeat is left. The
outcome is the same: a slot changes its value only because an earlier slot holds it. So every value seen stays in the
population, a repeat is certain once it is seen, and no call is wasted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from evorun.methods.base import Regime
from evorun.methods.context import Context
from evorun.methods.search.puct import Puct
from evorun.models.base import Sampling
from evorun.rollouts.episodes import Asked
from evorun.rollouts.replies import TextCounts
from evorun.rollouts.responses import respond
from evorun.runs.archive import Archive
from evorun.runs.candidates import Candidate, Response
from evorun.tasks.base import Prompt, Task
from evorun.tasks.capabilities import Diagnosis, HasPublicTests, HasVerifier, Individual, Verification


@dataclass(frozen=True)
class Member:
    """A member of a population: a candidate and its evaluation."""

    candidate: Candidate
    individual: Individual
    key: bytes
    """Equal for members with the same answer."""

    @property
    def fitness(self) -> float:
        """In [0, 100]."""
        return self.individual.fitness


@dataclass(frozen=True)
class Plan:
    """A way to fill a slot of a population: with a copy, with an existing response, or by asking a model."""

    operator: str
    parents: tuple[Member, ...] = ()
    copy: Member | None = None
    response: Response | None = None
    prompt: Prompt | None = None


@dataclass(frozen=True)
class Child:
    """The content of a slot: a plan and the response that it produced."""

    plan: Plan
    response: Response
    key: bytes
    attempt: int
    """Number of repeats that the slot held before."""
    call: str | None
    """Key of the call that produced it; None where no model was asked."""


@dataclass
class Offspring:
    """The filled slots of a phase in order, with counts."""

    children: list[Child]
    indices: list[int]
    """The slot of each child; fewer than planned when the budget ran out."""
    duplicates: int = 0
    """Number of replaced repeats."""
    texts: TextCounts = field(default_factory=TextCounts)

    def diagnostics(self) -> dict[str, float]:
        """Return the counts that a step reports."""
        return {"duplicates": self.duplicates, **self.texts.diagnostics()}


async def breed(
    ctx: Context,
    plan: Callable[[int, int], Plan],
    indices: Sequence[int],
    *,
    role: str,
    step: int,
    sampling: Sampling,
    dedup_attempts: int,
    taken: Sequence[bytes] = (),
) -> Offspring:
    """Fill each slot by `plan(index, attempt)`; plan again where the answer repeats that of an earlier slot.

    A slot is refilled at most `dedup_attempts` times; then it keeps its repeat. The keys in `taken` count as earlier
    slots. A refused or unparsed response fills its slot like any other. When the budget ends, empty slots are left
    out.
    """
    slots: dict[int, Child] = {}
    offspring = Offspring([], [])
    pending = [(index, 0) for index in indices]
    while pending:
        # All plans of a round are made before any reply, so that none depends on the order of replies.
        plans = {index: plan(index, attempt) for index, attempt in pending}
        requests = [
            (index, attempt, prompt) for index, attempt in pending if (prompt := plans[index].prompt) is not None
        ]
        episodes = await respond(
            ctx,
            [Asked(ctx.problem, prompt) for _, _, prompt in requests],
            role=role,
            step=step,
            sampling=sampling,
            attempt=[attempt for _, attempt, _ in requests],
            indices=[index for index, _, _ in requests],
        )
        answered = {index: episode for (index, *_), episode in zip(requests, episodes, strict=False)}
        for index, attempt in pending:
            filling, episode = plans[index], answered.get(index)
            response = filling.copy.candidate if filling.copy is not None else filling.response
            call = None
            if response is None and episode is not None:
                response, call = episode.response, episode.call
                offspring.texts.add(ctx.task, episode.replies[-1], response)
            if response is not None:
                slots[index] = Child(filling, response, answer_key(ctx, response), attempt, call)
        # If the budget did not allow a call, its slot stays as it was: a repeat, or empty.
        pending = [] if len(episodes) < len(requests) else _find_repeats(indices, slots, dedup_attempts, taken)
        offspring.duplicates += len(pending)
    offspring.indices = [index for index in indices if index in slots]
    offspring.children = [slots[index] for index in offspring.indices]
    return offspring


def answer_key(ctx: Context, response: Response) -> bytes:
    """Return a key that is equal for equal answers, and without an answer for equal texts."""
    # Two notations of an answer count as the same answer.
    same = f"?{response.text}" if response.answer is None else f"={ctx.task.signature(ctx.problem, response)}"
    # A digest: keys stay in memory, and an answer may be a whole program.
    return blake2b(same.encode(errors="surrogatepass"), digest_size=16).digest()


def _find_repeats(
    indices: Sequence[int], slots: dict[int, Child], dedup_attempts: int, taken: Sequence[bytes]
) -> list[tuple[int, int]]:
    """Return the slots that repeat an earlier one, with the number of their next attempt."""
    seen = set(taken)
    refills = []
    for index in indices:
        child = slots.get(index)
        if child is None:
            continue
        if child.key in seen and child.attempt < dedup_attempts:
            refills.append((index, child.attempt + 1))
        seen.add(child.key)
    return refills


NO_ERRORS = Diagnosis()


@dataclass
class Evaluator:
    """Evaluates the responses to one problem, each distinct answer once."""

    oracle: bool
    """True when fitness comes from the task's symbolic system."""
    verifier: bool
    """True when errors come from there."""
    max_errors: int
    sampling: Sampling
    """Sampling of the model's scores and errors."""
    archive: Archive
    """Holds the evaluations, whose errors are texts."""
    unreadable_scores: int = 0
    unreadable_errors: int = 0
    _offsets: dict[bytes, int] = field(default_factory=dict)
    """Each evaluation's offset in the archive, by the answer's key."""

    async def evaluate(
        self, ctx: Context, answers: Mapping[bytes, Response], *, step: int, first_call: int = 0
    ) -> None:
        """Evaluate responses, by their answers' keys, that are new; model calls take indices from `first_call` on.

        When the budget ends, responses that could not be evaluated get fitness 0 and no errors.
        """
        new = {key: response for key, response in answers.items() if key not in self._offsets}
        if not new:
            return
        responses = list(new.values())
        # One verification gives both, so the symbolic system runs only once.
        verified = await ctx.verify(responses, self.max_errors) if self.oracle or self.verifier else None
        fitness = [verification.fitness for verification in verified] if self.oracle and verified else None
        errors = [verification.errors for verification in verified] if self.verifier and verified else None
        if fitness is None:
            fitness = await self._ask_for_scores(ctx, responses, step, first_call)
        if errors is None:
            errors = await self._ask_for_errors(ctx, responses, step, first_call)
        for key, score, diagnosis in zip(new, fitness, errors, strict=True):
            self._offsets[key] = self.archive.put(Verification(fitness=score, errors=diagnosis))

    def evaluation(self, key: bytes) -> Verification:
        """Return the evaluation of an evaluated answer, by its key."""
        return self.archive.get(self._offsets[key], Verification)

    def diagnostics(self) -> dict[str, float]:
        """Return the counts of unreadable evaluations so far, for a step's report."""
        if self.oracle and self.verifier:
            return {}
        return {"unreadable_scores": self.unreadable_scores, "unreadable_errors": self.unreadable_errors}

    async def _ask_for_scores(self, ctx: Context, responses: Sequence[Response], step: int, first: int) -> list[float]:
        """Ask a model for the fitness of each parsed response; others get 0."""
        parsed = [i for i, response in enumerate(responses) if response.answer is not None]
        prompts = [ctx.task.fitness_prompt(ctx.problem, responses[i]) for i in parsed]
        scores = [0.0] * len(responses)
        for i, text in await self._ask(ctx, prompts, parsed, "fitness", step, first):
            score = ctx.task.parse_fitness(text)
            self.unreadable_scores += score is None
            scores[i] = score or 0.0
        return scores

    async def _ask_for_errors(
        self, ctx: Context, responses: Sequence[Response], step: int, first: int
    ) -> list[Diagnosis]:
        """Ask a model for the errors of each response, parsed or not."""
        diagnoses = [NO_ERRORS] * len(responses)
        if self.max_errors == 0:
            return diagnoses
        prompts = [ctx.task.errors_prompt(ctx.problem, response) for response in responses]
        for i, text in await self._ask(ctx, prompts, range(len(responses)), "errors", step, first):
            diagnosis = ctx.task.parse_errors(ctx.problem, text, self.max_errors)
            self.unreadable_errors += diagnosis is None
            diagnoses[i] = diagnosis or NO_ERRORS
        return diagnoses

    async def _ask(
        self, ctx: Context, prompts: Sequence[Prompt], indices: Sequence[int], role: str, step: int, first: int
    ) -> list[tuple[int, str]]:
        """Return each completion with its index; refused requests give an empty text."""
        calls = [first + i for i in indices]
        replies = await ctx.generate(prompts, role=role, step=step, sampling=self.sampling, indices=calls)
        texts = ["" if reply.error is not None else reply.completions[0].text for reply in replies]
        return list(zip(indices, texts, strict=False))  # the budget may cut the replies short


class ExperiencePool:
    """EP of section 4.1.3: the fittest of all members so far, one per answer.

    Fitness never changes, so a member without a place among the fittest never gets one later and need not be kept.
    """

    def __init__(self, size: int) -> None:
        """size: the largest `count` that `best` is asked for."""
        self._size = size
        self._best: list[Member] = []

    def add(self, members: Iterable[Member]) -> None:
        """Add members; of those with the same answer the first stays."""
        distinct: dict[bytes, Member] = {}
        for member in (*self._best, *members):
            distinct.setdefault(member.key, member)
        self._best = sorted(distinct.values(), key=lambda member: -member.fitness)[: self._size]

    def best(self, count: int) -> list[Member]:
        """Return the fittest members, best first; ties go to the earlier one."""
        return self._best[:count]


def replay(population: Sequence[Member], pool: ExperiencePool, rate: float) -> list[Member]:
    """Replace at most floor(rate * n) of the worst by the pool's best, each only by a fitter one (4.1.3)."""
    worst_first = sorted(population, key=lambda member: member.fitness)
    count = max_replaced(len(population), rate)
    # The pool's best are paired with the population's worst; once one is not fitter, no later one is.
    for index, member in enumerate(pool.best(count)):
        if member.fitness > worst_first[index].fitness:
            worst_first[index] = member
    return worst_first


def max_replaced(size: int, rate: float) -> int:
    """Return how many members of a population the experience pool replaces at most: floor(rate * n) (4.1.3)."""
    return int(rate * size + 1e-9)  # 0.29 * 100 is a little less than 29


def select(population: Sequence[Member], elites: int, rng: np.random.Generator) -> list[Member]:
    """Return a mating pool of the same size: the `elites` fittest, then winners of tournaments of two (4.1.5)."""
    best_first = sorted(population, key=lambda member: -member.fitness)
    fittest = best_first[:elites]
    pairs = rng.integers(len(population), size=(len(population) - len(fittest), 2)).tolist()
    # A tie goes to the second: `max` returns the first of equals, and y comes first.
    return [*fittest, *(max(population[y], population[x], key=lambda member: member.fitness) for x, y in pairs)]


def select_by_puct(
    population: Sequence[Member], elites: int, lineage: Puct, fitness: Mapping[str, float]
) -> list[Member]:
    """Return a mating pool of the same size: the `elites` fittest, then members by PUCT, each counted as expanded.

    lineage: all members so far. fitness: theirs, by id. A round chooses members of different lineages; when none is
    left, the next round may choose the same ones again.
    """
    pool = sorted(population, key=lambda member: -member.fitness)[:elites]
    for member in pool:
        lineage.expand(member.candidate.id)
    by_id = {member.candidate.id: member for member in population}
    while len(pool) < len(population):
        for chosen in lineage.choose(fitness, list(by_id), len(population) - len(pool)):
            lineage.expand(chosen)
            pool.append(by_id[chosen])
    return pool


def regime_with_verifier(task: type[Task]) -> Regime:
    """Return the information regime of a method that uses the task's verifier; public tests are no oracle."""
    return "public_tests" if issubclass(task, HasPublicTests) else "oracle"


def explain_missing_verifier(task: type[Task], instead: str) -> str | None:
    """Return a line that says what to set instead if the task has no verifier, else None."""
    if issubclass(task, HasVerifier):
        return None
    return f"task={task.name} has no symbolic system that scores answers; set {instead}"
