"""A knock-out tournament: responses duel in pairs, winners meet winners, and the last one left is the answer."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Annotated, ClassVar

from msgspec import Meta
from msgspec.structs import replace

from evorun.fields import NonNegativeFloat
from evorun.methods.base import JudgeSettings, PerProblem
from evorun.methods.context import Context
from evorun.methods.duels.duels import judge_pairs
from evorun.methods.search.proposals import SampleSettings, draw, from_task, without_budget
from evorun.rollouts.calls import Role
from evorun.runs.candidates import Comparison, Step
from evorun.tasks.capabilities import SupportsGeneration, SupportsJudging


@dataclass(kw_only=True)
class KnockoutConfig(JudgeSettings, SampleSettings):
    """Hyperparameters; `from_task` takes a task's own value, `without_budget` leaves the size to a budget."""

    name: str = "knockout"
    samples: Annotated[int, Meta(ge=1)] | None = without_budget(8)
    budget_share: Annotated[float, Meta(gt=0, le=1)] = 0.2
    cups: Annotated[int, Meta(ge=1)] | None = without_budget(1)
    """Tournaments, each with a bracket of its own."""
    orders: Annotated[int, Meta(ge=1, le=2)] = 2
    """2: a pair is judged in both orders of presentation. 1: in one order."""
    judge_temperature: NonNegativeFloat = 0.7
    judge_max_tokens: Annotated[int, Meta(ge=1)] = from_task(192)
    temperature: float = from_task(0.7)
    top_p: float = from_task(1.0)
    max_tokens: int = from_task(1024)
    retries: int = 1


class Knockout(PerProblem):
    """Holds one round of duels per step, in random brackets; an undecided duel sends the first of the pair on.

    The answer is the response that has passed the most rounds: after one cup, its winner.
    """

    name = "knockout"
    description = "independent responses, of which a knock-out tournament by a judge leaves one"
    regime = "problem_only"
    needs = (SupportsGeneration, SupportsJudging)
    roles: ClassVar[Mapping[str, Role]] = {"judge": Role("judge")}
    Config = KnockoutConfig
    config: KnockoutConfig

    @property
    def optional_limits(self) -> Mapping[str, int | None]:
        return {"samples": self.config.samples, "cups": self.config.cups}

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        config = self.config
        drawn = await draw(ctx, config)
        passed, cup, duels = [0] * len(drawn.parsed), 1, list[Comparison]()
        left: list[int] = ctx.rng("bracket", cup).permutation(len(drawn.parsed)).tolist()
        for step in count():
            best = max(range(len(passed)), key=passed.__getitem__, default=None)
            rated = [replace(one, mean=float(passed[i]), survivor=i in left) for i, one in enumerate(drawn.parsed)]
            yield Step(
                step=step,
                best=None if best is None else rated[best],
                candidates=[*rated, *drawn.unparsed],
                comparisons=duels,
                extra=drawn.diagnostics() if step == 0 else {},
            )
            if len(left) < 2:  # the next cup
                if cup == config.cups:
                    return
                cup += 1
                left = ctx.rng("bracket", cup).permutation(len(drawn.parsed)).tolist()
            pairs = list(zip(left[::2], left[1::2], strict=False))
            sampling = config.judge_sampling
            duels = await judge_pairs(ctx, drawn.parsed, pairs, orders=config.orders, step=step + 1, sampling=sampling)
            if not duels:  # there is no pair, or the budget has ended
                return
            decided = zip(pairs, duels, strict=False)  # the budget may leave fewer duels than pairs
            winners = [second if duel.outcome == "second" else first for (first, second), duel in decided]
            left = winners + left[2 * len(pairs) :]  # of an odd number, the last one goes on without a duel
            for i in left:
                passed[i] += 1
