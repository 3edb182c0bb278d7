"""Feedback Descent: one incumbent, challenged by proposals made from the latest attempts (appendix A.1 and D)."""

from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from msgspec.structs import replace

from evorun.fields import NonNegativeInt, PositiveInt
from evorun.methods.base import JudgeSettings, PerProblem
from evorun.methods.context import Context
from evorun.methods.duels.duels import judge_pairs, make_attempt
from evorun.methods.search.proposals import Proposal, ResponseSettings, add_feedback, propose
from evorun.models.base import Sampling
from evorun.rollouts.calls import Role
from evorun.runs.archive import ArchivedCandidates, Snapshot
from evorun.runs.candidates import Candidate, Comparison, Step
from evorun.tasks.capabilities import Attempt, SupportsGeneration, SupportsJudging, SupportsRefinement


@dataclass(kw_only=True)
class FeedbackDescentConfig(JudgeSettings, ResponseSettings):
    """Hyperparameters; `conf/method/feedback_descent.yaml` gives each default and its source."""

    name: str
    generations: NonNegativeInt | None
    """Proposals after the initial one; None: until the budget ends."""
    window: PositiveInt
    """W: number of latest attempts in the proposer's prompt (A.1)."""


class FeedbackDescent(PerProblem):
    """Keeps the winner of each duel between the incumbent and a new proposal."""

    name = "feedback_descent"
    description = (
        "one incumbent, challenged by proposals made from the latest attempts and the judge's comments on them"
    )
    regime = "problem_only"
    needs = (SupportsGeneration, SupportsRefinement, SupportsJudging)
    roles: ClassVar = {"judge": Role("judge")}
    observes = True
    Config = FeedbackDescentConfig
    config: FeedbackDescentConfig

    @property
    def optional_limits(self) -> Mapping[str, int | None]:
        return {"generations": self.config.generations}

    @property
    def last_step(self) -> int | None:
        return self.config.generations

    @property
    def judge_sampling(self) -> Sampling:
        return self.config.judge_sampling

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Propose, judge once in random order, keep the winner; ties and invalid judgments keep the incumbent."""
        incumbent: Candidate | None = None
        challengers, unparsed = ArchivedCandidates(ctx.archive), ArchivedCandidates(ctx.archive)
        attempts: deque[Attempt] = deque(maxlen=self.config.window)
        for step in count() if self.config.generations is None else range(self.config.generations + 1):
            if incumbent is None:  # also when step 0 did not parse
                operator, proposal = "init", Proposal(ctx.task.generation_prompt(ctx.problem), ())
            else:
                prompt = ctx.task.refinement_prompt(ctx.problem, incumbent, list(attempts))
                operator, proposal = "refine", Proposal(prompt, (incumbent.id,))
            proposed = await propose(ctx, [proposal], operator=operator, step=step, settings=self.config)
            unparsed.extend(proposed.unparsed)
            duels: list[Comparison] = []
            for challenger in await add_feedback(ctx, proposed.parsed):  # one, or none if it did not parse
                challengers.extend([challenger])
                if incumbent is None:
                    incumbent = challenger
                    attempts.append(Attempt(response=challenger, outcome="first"))
                    continue
                duels = await self._duel(ctx, incumbent, challenger, step)
                for duel in duels:
                    attempts.append(make_attempt(challenger, duel))
                    if attempts[-1].outcome == "won":
                        incumbent = challenger
            # A step without any call does not count; step 0 is always reported, even if empty.
            if ctx.out_of_budget and step > 0 and not (proposed.parsed or proposed.unparsed):
                return
            best = None if incumbent is None else replace(incumbent, survivor=True)
            yield Step(
                step=step,
                best=best,
                candidates=Snapshot(challengers, unparsed, survivors=() if best is None else [best.id]),
                pool=0 if best is None else 1,
                comparisons=duels,
                extra=proposed.diagnostics(),
            )
            if ctx.out_of_budget:
                return

    async def _duel(self, ctx: Context, incumbent: Candidate, challenger: Candidate, step: int) -> list[Comparison]:
        """Judge once, in a random order of presentation; empty when the budget does not allow it."""
        # One judgment costs half of a duel in both orders; the random order averages out position bias.
        pair = [incumbent, challenger]
        if ctx.rng("order", step).random() < 0.5:
            pair.reverse()
        return await judge_pairs(ctx, pair, [(0, 1)], orders=1, step=step, sampling=self.judge_sampling)
