"""Populations from plans: parallel calls, and repeats made anew as a sequential loop would (Lyria, section 4.1.2).

Algorithm 1 fills a population one place after the other; a repeat of what is already there is made anew, at most so
many times. Here all places are filled at once, and those that repeat an earlier place are made anew together, until
none is left. That comes to the same: what any earlier place holds at any time stays in the population (a place only
gives a value up because a still earlier one has it), so a repeat is certain when it is seen, and no call is wasted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from evorun.methods.base import Candidate, Context
from evorun.methods.replies import TextCounts, read_reply
from evorun.models.base import Reply, Sampling
from evorun.tasks.base import Diagnosis, Individual, Prompt, Response


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
    """How a place of a population is to be filled: by a copy, by a response that is there, or by asking a model."""

    operator: str
    parents: tuple[Member, ...] = ()
    copy: Member | None = None
    response: Response | None = None
    prompt: Prompt | None = None


@dataclass(frozen=True)
class Newborn:
    """What a place holds: a plan and what came of it."""

    plan: Plan
    response: Response
    key: str
    attempt: int
    """How many times the place was filled anew."""


@dataclass
class Brood:
    """The places of one phase that could be filled, in order, and what happened on the way."""

    newborns: list[Newborn]
    places: list[int]
    """The place of each newborn; fewer than planned when the budget ran out."""
    duplicates: int = 0
    """Repeats that were made anew."""
    texts: TextCounts = field(default_factory=TextCounts)

    def diagnostics(self) -> dict[str, float]:
        """Return what a step reports of it."""
        return {"duplicates": self.duplicates, **self.texts.diagnostics()}


async def breed(
    ctx: Context,
    plan: Callable[[int, int], Plan],
    places: Sequence[int],
    *,
    role: str,
    step: int,
    sampling: Sampling,
    dedup_attempts: int,
    taken: Sequence[str] = (),
) -> Brood:
    """Fill the places: `plan(place, attempt)` says how, and is asked again for a place that repeats an earlier one.

    A place is made anew `dedup_attempts` times at most; then it keeps its repeat. `taken` are keys that count as
    repeated too. A refused or unparsable text fills its place like any other: it is data. When the budget ends, places
    that nothing has filled are left out.
    """
    held: dict[int, Newborn] = {}
    brood = Brood([], [])
    pending = [(place, 0) for place in places]
    while pending:
        plans = {place: plan(place, attempt) for place, attempt in pending}
        asked = [(place, attempt, prompt) for place, attempt in pending if (prompt := plans[place].prompt) is not None]
        replies = await ctx.generate(
            [prompt for _, _, prompt in asked],
            role=role,
            step=step,
            sampling=sampling,
            attempt=[attempt for _, attempt, _ in asked],
            places=[place for place, _, _ in asked],
        )
        answered = {place: reply for (place, *_), reply in zip(asked, replies, strict=False)}
        for place, attempt in pending:
            response = _response(ctx, plans[place], answered.get(place), brood)
            if response is not None:
                held[place] = Newborn(plans[place], response, key_of(ctx, response), attempt)
        # A call that the budget did not allow leaves its place as it was: a repeat, or nothing.
        pending = [] if len(replies) < len(asked) else _repeats(places, held, dedup_attempts, taken)
        brood.duplicates += len(pending)
    brood.places = [place for place in places if place in held]
    brood.newborns = [held[place] for place in brood.places]
    return brood


def key_of(ctx: Context, response: Response) -> str:
    """Return a text that is equal for responses with the same answer; of one without, for the same text."""
    if response.answer is None:
        return f"?{response.text}"
    return f"={ctx.task.signature(ctx.problem, response)}"


def _response(ctx: Context, plan: Plan, reply: Reply | None, brood: Brood) -> Response | None:
    if plan.copy is not None:
        return plan.copy.candidate.response
    if plan.response is not None or reply is None:
        return plan.response
    response = read_reply(ctx.task, ctx.problem, reply)
    brood.texts.add(reply, response)
    return response


def _repeats(
    places: Sequence[int], held: dict[int, Newborn], dedup_attempts: int, taken: Sequence[str]
) -> list[tuple[int, int]]:
    """Return the places whose value an earlier one holds, with the number of their next attempt."""
    seen = set(taken)
    again = []
    for place in places:
        newborn = held.get(place)
        if newborn is None:
            continue
        if newborn.key in seen and newborn.attempt < dedup_attempts:
            again.append((place, newborn.attempt + 1))
        seen.add(newborn.key)
    return again


def member(candidate: Candidate, fitness: float, errors: Diagnosis, key: str) -> Member:
    """Return a candidate as a member of a population."""
    individual = Individual(response=candidate.response, fitness=fitness, errors=errors)
    return Member(candidate, individual, key)
