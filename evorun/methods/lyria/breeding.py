"""Populations from plans: parallel calls, with repeats replaced as a sequential loop would (Lyria, section 4.1.2).

Algorithm 1 fills a population one slot after the other; a repeat of an earlier slot is filled again, at most so many
times. Here all slots are filled at once, and those that repeat an earlier slot are filled again together, until no
repeat is left. The outcome is the same: a slot only changes its value because a still earlier one has it, so every
value seen stays in the population, a repeat is certain when it is seen, and no call is wasted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from evorun.methods.context import Context
from evorun.models.base import Sampling
from evorun.rollouts.episodes import Asked
from evorun.rollouts.replies import TextCounts
from evorun.rollouts.responses import respond
from evorun.runs.candidates import Candidate, Response
from evorun.tasks.base import Prompt
from evorun.tasks.capabilities import Individual


@dataclass(frozen=True)
class Member:
    """A member of a population: a candidate, and what evaluation found."""

    candidate: Candidate
    individual: Individual
    key: str
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
    """The content of a slot: a plan and the response that it gave."""

    plan: Plan
    response: Response
    key: str
    attempt: int
    """Repeats that the slot held before."""
    call: str | None
    """Key of the call that it came from; None where no model was asked."""


@dataclass
class Offspring:
    """The slots of one phase that could be filled, in order, and what happened on the way."""

    children: list[Child]
    indices: list[int]
    """The slot of each child; fewer than planned when the budget ran out."""
    duplicates: int = 0
    """Repeats that were replaced."""
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
    taken: Sequence[str] = (),
) -> Offspring:
    """Fill the slots: `plan(index, attempt)` says how, and is asked again for a slot that repeats an earlier one.

    A slot is filled again `dedup_attempts` times at most; then it keeps its repeat. `taken` are keys that count as
    earlier slots. A refused or unparsable text fills its slot like any other: it is data. When the budget ends, slots
    that nothing has filled are left out.
    """
    held: dict[int, Child] = {}
    offspring = Offspring([], [])
    pending = [(index, 0) for index in indices]
    while pending:
        # Plans of one round are made before any reply, so that none depends on which call came back first.
        plans = {index: plan(index, attempt) for index, attempt in pending}
        asked = [(index, attempt, prompt) for index, attempt in pending if (prompt := plans[index].prompt) is not None]
        episodes = await respond(
            ctx,
            [Asked(ctx.problem, prompt) for _, _, prompt in asked],
            role=role,
            step=step,
            sampling=sampling,
            attempt=[attempt for _, attempt, _ in asked],
            indices=[index for index, _, _ in asked],
        )
        answered = {index: episode for (index, *_), episode in zip(asked, episodes, strict=False)}
        for index, attempt in pending:
            filling, episode = plans[index], answered.get(index)
            response = filling.copy.candidate if filling.copy is not None else filling.response
            call = None
            if response is None and episode is not None:
                response, call = episode.response, episode.call
                offspring.texts.add(ctx.task, episode.replies[-1], response)
            if response is not None:
                held[index] = Child(filling, response, _key(ctx, response), attempt, call)
        # A call that the budget did not allow leaves its slot as it was: a repeat, or nothing.
        pending = [] if len(episodes) < len(asked) else _repeats(indices, held, dedup_attempts, taken)
        offspring.duplicates += len(pending)
    offspring.indices = [index for index in indices if index in held]
    offspring.children = [held[index] for index in offspring.indices]
    return offspring


def _key(ctx: Context, response: Response) -> str:
    """Return a text that is equal for responses with the same answer; of one without, for the same text."""
    if response.answer is None:
        return f"?{response.text}"
    return f"={ctx.task.signature(ctx.problem, response)}"  # two ways to write one answer are one answer


def _repeats(
    indices: Sequence[int], held: dict[int, Child], dedup_attempts: int, taken: Sequence[str]
) -> list[tuple[int, int]]:
    """Return the slots whose value an earlier one holds, with the number of their next attempt."""
    seen = set(taken)
    again = []
    for index in indices:
        child = held.get(index)
        if child is None:
            continue
        if child.key in seen and child.attempt < dedup_attempts:
            again.append((index, child.attempt + 1))
        seen.add(child.key)
    return again
