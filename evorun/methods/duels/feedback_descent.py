"""Feedback Descent: one incumbent, challenged by proposals made from the latest attempts (appendix A.1 and D)."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from msgspec.structs import replace

from evorun.errors import at_least
from evorun.methods.base import PerProblem
from evorun.methods.context import Context
from evorun.methods.duels.duels import judge_pairs
from evorun.methods.search.proposals import Proposal, ResponseSettings, observed, propose
from evorun.models.base import Sampling
from evorun.rollouts.calls import Role
from evorun.runs.candidates import Candidate, Comparison, Step
from evorun.tasks.capabilities import (
    Attempt,
    AttemptOutcome,
    Explanation,
    Letter,
    SupportsGeneration,
    SupportsJudging,
    SupportsRefinement,
)


@dataclass(kw_only=True)
class FeedbackDescentConfig(ResponseSettings):
    """Hyperparameters; `conf/method/feedback_descent.yaml` gives each default and its source."""

    name: str
    generations: int | None
    """Proposals after the initial one; None: until the budget ends."""
    window: int
    """W: latest attempts that the proposer is shown (A.1)."""
    judge_temperature: float
    judge_max_tokens: int

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("generations", "judge_temperature"):
            at_least(f"method.{key}", getattr(self, key), 0)
        for key in ("window", "judge_max_tokens"):
            at_least(f"method.{key}", getattr(self, key), 1)


class FeedbackDescent(PerProblem):
    """Keeps the winner of each duel between the incumbent and a new proposal."""

    name = "feedback_descent"
    description = "one incumbent, challenged by proposals made from the latest attempts and what the judge said of them"
    regime = "problem_only"
    needs = (SupportsGeneration, SupportsRefinement, SupportsJudging)
    roles: ClassVar = {"judge": Role("judge")}
    observes = True
    Config = FeedbackDescentConfig
    config: FeedbackDescentConfig

    @property
    def unlimited_if_null(self) -> Mapping[str, int | None]:
        return {"generations": self.config.generations}

    @property
    def last_step(self) -> int | None:
        return self.config.generations

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Propose, judge once in random order, keep the winner; ties and invalid judgments keep the incumbent."""
        incumbent: Candidate | None = None
        challengers: list[Candidate] = []
        unparsed: list[Candidate] = []
        attempts: list[Attempt] = []
        for step in count() if self.config.generations is None else range(self.config.generations + 1):
            if incumbent is None:  # also after a step 0 that did not parse
                operator, proposal = "init", Proposal(ctx.task.generation_prompt(ctx.problem), ())
            else:
                prompt = ctx.task.refinement_prompt(ctx.problem, incumbent, attempts[-self.config.window :])
                operator, proposal = "refine", Proposal(prompt, (incumbent.id,))
            proposed = await propose(ctx, [proposal], operator=operator, step=step, settings=self.config)
            unparsed += proposed.unparsed
            duels: list[Comparison] = []
            for challenger in await observed(ctx, proposed.parsed):  # one, or none that parses
                challengers.append(challenger)
                if incumbent is None:
                    incumbent = challenger
                    attempts.append(Attempt(response=challenger, outcome="first"))
                    continue
                duels = await self._duel(ctx, incumbent, challenger, step)
                for duel in duels:
                    attempts.append(_judged(challenger, duel))
                    if attempts[-1].outcome == "won":
                        incumbent = challenger
            # A step in which the budget allowed nothing is no step; step 0 is always reported, even empty.
            if ctx.out_of_budget and step > 0 and not (proposed.parsed or proposed.unparsed):
                return
            best = None if incumbent is None else replace(incumbent, survivor=True)
            candidates = [best if best is not None and one is incumbent else one for one in challengers]
            yield Step(
                step=step,
                best=best,
                candidates=[*candidates, *unparsed],
                pool=0 if best is None else 1,
                comparisons=duels,
                extra=proposed.diagnostics(),
            )
            if ctx.out_of_budget:
                return

    async def _duel(self, ctx: Context, incumbent: Candidate, challenger: Candidate, step: int) -> list[Comparison]:
        """Ask the judge once, the order of presentation drawn at random; empty when the budget does not allow it."""
        # The judge is asked once, at half the cost of a duel in both orders; the draw evens out its position bias.
        pair = [incumbent, challenger]
        if ctx.rng("order", step).random() < 0.5:
            pair.reverse()
        sampling = Sampling(temperature=self.config.judge_temperature, max_tokens=self.config.judge_max_tokens)
        return await judge_pairs(ctx, pair, [(0, 1)], orders=1, step=step, sampling=sampling)


def _judged(challenger: Candidate, duel: Comparison) -> Attempt:
    """Return a proposal with how it fared in its duel, and what the judge, who saw it as A or B, said."""
    outcome: AttemptOutcome = "undecided"
    if duel.outcome is not None:
        winner = duel.first if duel.outcome == "first" else duel.second
        outcome = "won" if winner == challenger.id else "lost"
    letter: Letter = "A" if duel.first == challenger.id else "B"
    return Attempt(response=challenger, outcome=outcome, judged=Explanation(reason=duel.reasons[0], letter=letter))
