"""Feedback Descent: one incumbent, challenged by proposals made from the latest attempts (appendix A.1 and D)."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import ClassVar

from msgspec.structs import replace

from evorun.errors import at_least
from evorun.methods.base import PerProblem
from evorun.methods.context import Context
from evorun.methods.duels import read_judgment
from evorun.methods.proposals import Proposal, Proposed, ResponseSettings, observed, propose
from evorun.models.base import Sampling
from evorun.rollouts.calls import Role
from evorun.runs.candidates import Candidate, Comparison, Step
from evorun.tasks.capabilities import Attempt, AttemptOutcome, Generates, Judges, Refines


@dataclass(kw_only=True)
class FeedbackDescentConfig(ResponseSettings):
    """Hyperparameters; `conf/method/feedback_descent.yaml` gives each default and its source."""

    name: str
    generations: int
    """Proposals after the initial one."""
    window: int
    """W: latest attempts that the proposer is shown (A.1)."""
    judge_temperature: float
    judge_max_tokens: int

    def __post_init__(self) -> None:
        """Raise ConfigError, naming the key, when a value is out of range."""
        super().__post_init__()
        for key in ("generations", "judge_temperature"):
            at_least(f"method.{key}", getattr(self, key), 0)
        for key in ("window", "judge_max_tokens"):
            at_least(f"method.{key}", getattr(self, key), 1)


@dataclass
class _State:
    """Where the descent stands."""

    incumbent: Candidate | None = None
    candidates: list[Candidate] = field(default_factory=list)
    unparsed: list[Candidate] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)


class FeedbackDescent(PerProblem):
    """Keeps the winner of each duel between the incumbent and a new proposal."""

    name = "feedback_descent"
    description = "one incumbent, challenged by proposals made from the latest attempts and what the judge said of them"
    regime = "problem_only"
    needs = (Generates, Refines, Judges)
    roles: ClassVar = {"judge": Role("judge")}
    observes = True
    Config = FeedbackDescentConfig

    def __init__(self, config: FeedbackDescentConfig) -> None:
        self.config = config
        self.judge_sampling = Sampling(temperature=config.judge_temperature, max_tokens=config.judge_max_tokens)

    @property
    def last_step(self) -> int:
        """The last proposal."""
        return self.config.generations

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Propose, judge once in random order, keep the winner; ties and invalid judgments keep the incumbent."""
        state = _State()
        for step in range(self.config.generations + 1):
            offspring = await self._propose(ctx, state, step)
            state.unparsed += offspring.unparsed
            duels = []
            for challenger in await observed(ctx, offspring.parsed):
                duels = await self._challenge(ctx, state, challenger, step)
            if ctx.out_of_budget and step > 0 and not (offspring.parsed or offspring.unparsed):
                return
            yield _report(state, step, duels, offspring)
            if ctx.out_of_budget:
                return

    async def _propose(self, ctx: Context, state: _State, step: int) -> Proposed:
        if state.incumbent is None:
            proposal = Proposal(ctx.task.generation_prompt(ctx.problem), ())
        else:
            latest = state.attempts[-self.config.window :]
            prompt = ctx.task.refinement_prompt(ctx.problem, state.incumbent, latest)
            proposal = Proposal(prompt, (state.incumbent.id,))
        operator = "refine" if proposal.parents else "init"
        return await propose(ctx, [proposal], operator=operator, step=step, settings=self.config)

    async def _challenge(self, ctx: Context, state: _State, challenger: Candidate, step: int) -> list[Comparison]:
        """Let the challenger meet the incumbent, and note how it fared; returns the duel when there was one."""
        state.candidates.append(challenger)
        if state.incumbent is None:
            state.incumbent = challenger
            state.attempts.append(Attempt(response=challenger, outcome="first"))
            return []
        duel = await self._duel(ctx, state.incumbent, challenger, step)
        if duel is None:
            return []
        outcome: AttemptOutcome = "undecided"
        if duel.outcome is not None:
            winner = duel.first if duel.outcome == "first" else duel.second
            outcome = "won" if winner == challenger.id else "lost"
        if outcome == "won":
            state.incumbent = challenger
        state.attempts.append(Attempt(response=challenger, outcome=outcome, reason=duel.reasons[0]))
        return [duel]

    async def _duel(self, ctx: Context, incumbent: Candidate, challenger: Candidate, step: int) -> Comparison | None:
        """Ask the judge once, the order of presentation drawn at random; None when the budget does not allow it."""
        pair = [incumbent, challenger]
        if ctx.rng("order", step).random() < 0.5:
            pair.reverse()
        first, second = pair
        prompt = ctx.task.judge_prompt(ctx.problem, first, second)
        replies = await ctx.generate([prompt], role="judge", step=step, sampling=self.judge_sampling)
        if not replies:
            return None
        judgment = read_judgment(ctx, replies[0])
        return Comparison(
            first=first.id,
            second=second.id,
            verdicts=(judgment.verdict,),
            outcome={"A": "first", "B": "second"}.get(judgment.verdict),  # type: ignore[arg-type]
            reasons=(judgment.reason,),
        )


def _report(state: _State, step: int, duels: list[Comparison], offspring: Proposed) -> Step:
    candidates = [replace(one, survivor=one is state.incumbent) for one in state.candidates]
    best = next((one for one in candidates if one.survivor), None)
    return Step(
        step=step,
        best=best,
        candidates=[*candidates, *state.unparsed],
        comparisons=duels,
        extra=offspring.diagnostics(),
    )
