"""A knock-out tournament: responses duel in pairs, winners meet winners, and the last one left is the answer."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated, ClassVar

from msgspec import Meta
from msgspec.structs import replace

from evorun.fields import NonNegativeFloat, PositiveInt
from evorun.methods.base import PerProblem
from evorun.methods.context import Context
from evorun.methods.duels.duels import judge_pairs
from evorun.methods.search.proposals import Proposal, ResponseSettings, from_task, propose
from evorun.models.base import Sampling
from evorun.rollouts.calls import Role
from evorun.runs.candidates import Comparison, Step
from evorun.tasks.capabilities import SupportsGeneration, SupportsJudging


@dataclass(kw_only=True)
class KnockoutConfig(ResponseSettings):
    """Hyperparameters; `from_task` takes a task's own value where it has one."""

    name: str = "knockout"
    samples: PositiveInt = 8
    orders: Annotated[int, Meta(ge=1, le=2)] = 2
    """2: a pair is judged in both orders of presentation. 1: in one order."""
    judge_temperature: NonNegativeFloat = 0.7
    judge_max_tokens: Annotated[int, Meta(ge=1)] = from_task(192)
    temperature: float = from_task(0.7)
    top_p: float = from_task(1.0)
    max_tokens: int = from_task(1024)
    retries: int = 1


class Knockout(PerProblem):
    """Holds one round of duels per step, in a random bracket; an undecided duel sends the first of the pair on."""

    name = "knockout"
    description = "independent responses, of which a knock-out tournament by a judge leaves one"
    regime = "problem_only"
    needs = (SupportsGeneration, SupportsJudging)
    roles: ClassVar = {"judge": Role("judge")}
    Config = KnockoutConfig

    def __init__(self, config: KnockoutConfig) -> None:
        self.config = config

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        config, proposal = self.config, Proposal(ctx.task.generation_prompt(ctx.problem), ())
        drawn = await propose(ctx, [proposal] * config.samples, operator="init", step=0, settings=config)
        sampling = Sampling(temperature=config.judge_temperature, max_tokens=config.judge_max_tokens)
        wins, comparisons = [0] * len(drawn.parsed), list[Comparison]()
        left: list[int] = ctx.rng("bracket").permutation(len(drawn.parsed)).tolist()
        for step in count():
            rated = [replace(one, mean=float(wins[i]), survivor=i in left) for i, one in enumerate(drawn.parsed)]
            best = rated[left[0]] if left else None
            extra = drawn.diagnostics() if step == 0 else {}
            yield Step(step=step, best=best, candidates=[*rated, *drawn.unparsed], comparisons=comparisons, extra=extra)
            pairs = list(zip(left[::2], left[1::2], strict=False))
            comparisons = await judge_pairs(
                ctx, drawn.parsed, pairs, orders=config.orders, step=step + 1, sampling=sampling
            )
            if not comparisons:  # one is left, or the budget has ended
                return
            decided = list(zip(pairs, comparisons, strict=False))  # the budget may leave fewer duels than pairs
            winners = [second if duel.outcome == "second" else first for (first, second), duel in decided]
            for winner in winners:
                wins[winner] += 1
            left = winners + left[2 * len(decided) :]
