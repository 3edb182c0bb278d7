"""Self-consistency that stops early: draws responses one by one until k agree, so that easy problems cost less."""

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass

from msgspec.structs import replace

from evorun.fields import PositiveInt
from evorun.methods.base import PerProblem
from evorun.methods.context import Context
from evorun.methods.search.proposals import Proposal, ResponseSettings, from_task, propose
from evorun.runs.candidates import Candidate, Step
from evorun.tasks.capabilities import SupportsGeneration


@dataclass(kw_only=True)
class FirstToAgreeConfig(ResponseSettings):
    """Hyperparameters; `from_task` takes a task's own value where it has one."""

    name: str = "first_to_agree"
    agreeing: PositiveInt = 3
    """k: responses with the same answer that end the search."""
    samples: PositiveInt = 15
    temperature: float = from_task(0.7)
    top_p: float = from_task(1.0)
    max_tokens: int = from_task(1024)
    retries: int = 1


class FirstToAgree(PerProblem):
    """Returns the most frequent answer; a candidate's mean is its answer's share of the votes."""

    name = "first_to_agree"
    description = "independent responses, one by one until k of them agree"
    regime = "problem_only"
    needs = (SupportsGeneration,)
    votes = True
    Config = FirstToAgreeConfig

    def __init__(self, config: FirstToAgreeConfig) -> None:
        self.config = config

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        proposal = Proposal(ctx.task.generation_prompt(ctx.problem), ())
        read, unread, votes = list[Candidate](), list[Candidate](), Counter[str]()
        for step in range(self.config.samples):
            drawn = await propose(ctx, [proposal], operator="init", step=step, settings=self.config)
            read, unread = read + drawn.parsed, unread + drawn.unparsed
            votes.update(ctx.task.signature(ctx.problem, candidate) for candidate in drawn.parsed)
            shares = [votes[ctx.task.signature(ctx.problem, candidate)] / votes.total() for candidate in read]
            rated = [replace(one, mean=share, survivor=True) for one, share in zip(read, shares, strict=True)]
            best = max(rated, key=lambda candidate: candidate.mean or 0, default=None)
            agree = max(votes.values(), default=0) >= self.config.agreeing
            extra = drawn.diagnostics()
            yield Step(step=step, best=best, candidates=[*rated, *unread], extra=extra, reached_goal=agree)
            if ctx.out_of_budget or agree:
                return
