"""Parallel-distill-refine (PDR, arXiv 2510.01123): rounds of drafts, each in view of the last one, distilled.

M_1 + ... + M_R calls, and R - 1 for summaries or M_1 + ... + M_(R-1) for ratings. With M_r = 1 it is sequential
refinement (SR). The paper's full text was not at hand: what the configuration calls `ours` is open.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from msgspec.structs import replace

from evorun.errors import ConfigError
from evorun.fields import NonNegativeFloat, OneOf, PositiveInt
from evorun.methods.base import PerProblem
from evorun.methods.context import Context
from evorun.methods.search.chain_of_thought import majority
from evorun.methods.search.proposals import Proposal, ResponseSettings, propose
from evorun.methods.search.rsa import rate_by_votes
from evorun.models.base import Sampling
from evorun.rollouts.calls import Role
from evorun.rollouts.episodes import max_turns_on
from evorun.runs.archive import ArchivedCandidates, Snapshot
from evorun.runs.candidates import Candidate, Step
from evorun.runs.roles import GENERATE
from evorun.tasks.base import Prompt, Task
from evorun.tasks.capabilities import (
    SupportsAggregation,
    SupportsDistillation,
    SupportsFitnessScores,
    SupportsGeneration,
)
from evorun.tasks.thinking import without_thinking

DRAFTS = (8, 4, 1)
"""Drafts where a limit on tokens or price is the only one, since their cost is not known beforehand (ours)."""


@dataclass(kw_only=True)
class PdrConfig(ResponseSettings):
    """Hyperparameters; `conf/method/pdr.yaml` gives each default and its source."""

    name: str
    drafts: list[int] | None
    """M_r: drafts of each round; the last round has 1, the answer. None: three rounds that fill a budget of calls."""
    distiller: Annotated[str, OneOf(("summary", "top_k", "random_k"))]
    """summary: notes on all drafts of the round, by one call. top_k: its best drafts as they are, by a call each that
    rates it. random_k: each new draft sees its own random ones."""
    shown: PositiveInt
    """k of top_k and random_k."""
    summary_tokens: PositiveInt
    """Maximum tokens of a summary."""
    summary_temperature: NonNegativeFloat
    evaluator_temperature: NonNegativeFloat
    """Of ratings."""
    evaluator_max_tokens: PositiveInt
    """Maximum tokens of a rating."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.drafts is not None and (not self.drafts or min(self.drafts) < 1 or self.drafts[-1] != 1):
            raise ConfigError(f"method.drafts: expected numbers >= 1 that end in 1, as [8,4,1], got {self.drafts}")

    def fit_drafts(self, calls: int) -> list[int]:
        """Return the drafts of each round within this many calls per problem; the first two rounds are 2 to 1."""
        if self.drafts is not None:
            return self.drafts
        if self.distiller == "summary":
            second = (calls - 3) // 3
        else:  # a rating costs a call, as its draft does
            second = (calls - 1) // (6 if self.distiller == "top_k" else 3)
        return [2 * second, second, 1] if second > 0 else [1]


class Distilled(NamedTuple):
    """The material that a round hands to the next one."""

    drafts: Sequence[Candidate]
    notes: str
    """The summary; empty where the drafts themselves are shown."""
    unread: int
    """Ratings that could not be read, and summaries without text."""


class Pdr(PerProblem):
    """Writes drafts in parallel, distills them, and refines what is left, round by round, to one answer."""

    name = "pdr"
    description = "parallel drafts, distilled to notes that the next, smaller round of drafts sees"
    regime = "problem_only"
    needs = (SupportsGeneration, SupportsAggregation, SupportsDistillation)
    Config = PdrConfig
    config: PdrConfig

    @property
    def active_roles(self) -> Mapping[str, Role]:
        return {"fitness": Role("judge")} if self.config.distiller == "top_k" else {}

    @property
    def optional_limits(self) -> Mapping[str, int | None]:
        return {"drafts": None if self.config.drafts is None else len(self.config.drafts)}

    @property
    def last_step(self) -> int | None:
        return None if self.config.drafts is None else len(self.config.drafts) - 1

    def incompatibility(self, task: type[Task]) -> str | None:
        if self.config.distiller == "top_k" and not issubclass(task, SupportsFitnessScores):
            return f"method.distiller=top_k asks for a response's fitness, which task={task.name} has no prompt for"
        return None

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Draft, distill and draft again; the last draft is the answer."""
        config, everything = self.config, ArchivedCandidates(ctx.archive)
        turns, left = max_turns_on(ctx.task, ctx.problem), None
        if config.drafts is None:
            left = ctx.calls_left_in_share(1.0, GENERATE)
        drafts = config.fit_drafts(left // turns) if left is not None else list(config.drafts or DRAFTS)
        distilled = Distilled([], "", 0)
        for step, number in enumerate(drafts):
            proposals = [self._propose(ctx, distilled, step, draft) for draft in range(number)]
            operator = "refine" if distilled.drafts else "init"
            proposed = await propose(ctx, proposals, operator=operator, step=step, settings=config)
            shown = proposed.parsed or distilled.drafts
            ballots = [ctx.task.signature(ctx.problem, candidate) for candidate in shown]
            rated = rate_by_votes(shown, ballots)
            if proposed.parsed:
                everything.extend(replace(candidate, survivor=False) for candidate in rated)
            everything.extend(proposed.unparsed)
            best = majority(ballots, ctx.rng("choice", step))
            if step + 1 < len(drafts) and shown:
                distilled = await self._distill(ctx, shown, step)
            yield Step(
                step=step,
                best=None if best is None else rated[best],
                candidates=Snapshot(everything, survivors=[candidate.id for candidate in shown]),
                pool=len(shown),
                extra=proposed.diagnostics()
                | {"distinct_answers": len(set(ballots)), "unread_notes": distilled.unread},
            )
            if ctx.out_of_budget:
                return

    def _propose(self, ctx: Context, distilled: Distilled, step: int, draft: int) -> Proposal:
        """Return the request for a draft, in view of what is left of the round before."""
        drafts = distilled.drafts
        if not drafts:  # the first round, and as long as nothing has parsed
            return Proposal(ctx.task.generation_prompt(ctx.problem), ())
        if self.config.distiller == "random_k":
            size = min(self.config.shown, len(drafts))
            chosen = ctx.rng("shown", step, draft).choice(len(drafts), size, replace=False)
            drafts = [drafts[index] for index in chosen]
        prompt: Prompt
        if distilled.notes:
            prompt = ctx.task.distilled_prompt(ctx.problem, distilled.notes, drafts)
        else:
            prompt = ctx.task.aggregation_prompt(ctx.problem, drafts)
        return Proposal(prompt, tuple(candidate.id for candidate in drafts))

    async def _distill(self, ctx: Context, drafts: Sequence[Candidate], step: int) -> Distilled:
        """Return what the next round sees of these drafts.

        Without a readable summary, or within a budget that has no call for it, that is the drafts themselves.
        """
        config = self.config
        if config.distiller == "summary":
            sampling = Sampling(temperature=config.summary_temperature, max_tokens=config.summary_tokens)
            prompt = ctx.task.distillation_prompt(ctx.problem, drafts, config.summary_tokens)
            replies = await ctx.generate([prompt], role="distill", step=step, sampling=sampling)
            notes = [without_thinking(reply.completions[0].text).strip() for reply in replies if reply.error is None]
            return Distilled(drafts, notes[0] if notes else "", int(not any(notes)))
        if config.distiller == "random_k":
            return Distilled(drafts, "", 0)
        sampling = Sampling(temperature=config.evaluator_temperature, max_tokens=config.evaluator_max_tokens)
        prompts = [ctx.task.fitness_prompt(ctx.problem, draft) for draft in drafts]
        replies = await ctx.generate(prompts, role="fitness", step=step, sampling=sampling)
        scores = [None if r.error else ctx.task.parse_fitness(r.completions[0].text) for r in replies]
        scores += [None] * (len(drafts) - len(scores))
        # Unread ratings rank last; ties keep the order in which drafts were written.
        ranked = sorted(range(len(drafts)), key=lambda i: -1.0 if (score := scores[i]) is None else score, reverse=True)
        return Distilled([drafts[i] for i in ranked[: config.shown]], "", scores.count(None))
