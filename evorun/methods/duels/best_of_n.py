"""Best-of-N: independent responses without evolution; duels or an oracle choose the best.

The duels are those of Duel-Evolve (its paper's appendix D). With the oracle, a task's symbolic system, it is the
baseline of the Lyria paper (section 4.2.1), which redraws a repeated answer.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Annotated, ClassVar

from evorun.fields import NonNegativeInt, OneOf, PositiveInt
from evorun.methods.base import PerProblem, Regime
from evorun.methods.context import Context
from evorun.methods.duels.duels import DuelSettings, hold_duels, rate_in_arena, warn_if_no_duels
from evorun.methods.lyria.population import Plan, breed, explain_missing_verifier, regime_with_verifier
from evorun.methods.search.proposals import SampleSettings, add_feedback, draw
from evorun.models.base import Sampling
from evorun.ratings.bradley_terry import Posterior
from evorun.rollouts.calls import Role
from evorun.runs.archive import ArchivedCandidates, Snapshot
from evorun.runs.candidates import Candidate, Comparison, Step
from evorun.tasks.base import Task
from evorun.tasks.capabilities import SupportsGeneration, SupportsJudging


@dataclass(kw_only=True)
class BestOfNConfig(DuelSettings, SampleSettings):
    """Hyperparameters; `conf/method/best_of_n.yaml` gives each default and its source."""

    name: str
    rounds: NonNegativeInt | None
    """Rounds of duels among the responses; None: until the budget ends."""
    choose: Annotated[str, OneOf(("duels", "oracle"))]
    """duels: by the judge's duels. oracle: by the fitness from the task's symbolic system."""
    dedup_attempts: NonNegativeInt
    """Maximum redraws of a response that repeats an earlier one; only with the oracle."""
    batches: PositiveInt
    """With the oracle: number of steps over which the responses are drawn, so that there is a curve; approximate where
    only a token budget limits them."""


class BestOfN(PerProblem):
    """Draws responses once; duels or an oracle then choose the answer."""

    name = "best_of_n"
    description = "N independent responses, the best by the duels and the posterior of Duel-Evolve, or by an oracle"
    regime = "problem_only"
    needs = (SupportsGeneration, SupportsJudging)
    roles: ClassVar = {"judge": Role("judge")}
    observes = True
    Config = BestOfNConfig
    config: BestOfNConfig

    @property
    def optional_limits(self) -> Mapping[str, int | None]:
        return {"samples": self.config.samples, "rounds": self.config.rounds}

    @property
    def last_step(self) -> int | None:
        if self.config.choose == "duels":
            return self.config.rounds
        samples = self.config.samples
        return None if samples is None else len(range(0, samples, self._batch(samples))) - 1

    @property
    def judge_sampling(self) -> Sampling | None:
        return self.config.judge_sampling

    def rate_by_duels(self, candidates: Sequence[Candidate], duels: Sequence[Comparison]) -> Posterior:
        return rate_in_arena(self.config, candidates, duels)

    def warnings(self, calls: int | None) -> list[str]:
        if calls is None or self.config.choose != "duels" or self.config.rounds == 0 or not self.config.duels:
            return []
        return warn_if_no_duels(calls, self.config.samples_within(calls), "samples", self.config.orders)

    def information_regime(self, task: type[Task]) -> Regime:
        return regime_with_verifier(task) if self.config.choose == "oracle" else super().information_regime(task)

    def incompatibility(self, task: type[Task]) -> str | None:
        return explain_missing_verifier(task, "method.choose=duels") if self.config.choose == "oracle" else None

    def solve(self, ctx: Context) -> AsyncIterator[Step]:
        return self._by_oracle(ctx) if self.config.choose == "oracle" else self._by_duels(ctx)

    async def _by_duels(self, ctx: Context) -> AsyncIterator[Step]:
        """Draw all responses in step 0, then hold one round of duels per step; the answer has the highest mean."""
        proposed = await draw(ctx, self.config)
        arena = self.config.arena(ctx.archive)
        arena.add(await add_feedback(ctx, proposed.parsed))
        arena.note_lost(proposed.unparsed)
        comparisons: list[Comparison] = []
        for step in count() if self.config.rounds is None else range(self.config.rounds + 1):
            if step > 0:
                comparisons = await hold_duels(ctx, arena, self.config, step=step)
                if not comparisons:
                    return  # no pair to judge, or no budget left
            survivors, best = self.config.survivors(arena), arena.best()
            rated = arena.rated(survivors.indices)
            arena.keep(survivors.indices)
            yield Step(
                step=step,
                best=None if best is None else rated[best],
                candidates=rated,
                pool=len(survivors.indices),
                comparisons=comparisons,
                extra=survivors.diagnostics() | (proposed.diagnostics() if step == 0 else {}),
            )

    async def _by_oracle(self, ctx: Context) -> AsyncIterator[Step]:
        """Draw one batch of responses per step; the answer is the first with the highest fitness."""
        plan = Plan(operator="init", prompt=ctx.task.generation_prompt(ctx.problem))
        rated, best_fitness = ArchivedCandidates(ctx.archive), -inf
        best: Candidate | None = None
        keys: list[bytes] = []
        slots = 0
        for step in count():
            remaining = self.config.still_to_draw(ctx, slots)
            if remaining <= 0:
                return
            batch = min(remaining, self._batch(slots + remaining))
            drawn = await breed(
                ctx,
                lambda index, attempt: plan,
                range(slots, slots + batch),
                role="generate",
                step=0,  # the batches form one draw of N: their size changes no key, hence no seed and no response
                sampling=self.config.sampling,
                dedup_attempts=self.config.dedup_attempts,
                taken=keys,
            )
            if not drawn.children and step > 0:
                return
            slots += batch
            keys += [child.key for child in drawn.children]
            verifications = await ctx.verify([child.response for child in drawn.children], max_errors=0)
            for index, child, verification in zip(drawn.indices, drawn.children, verifications, strict=True):
                candidate = Candidate.from_response(
                    child.response,
                    id=f"0.{index}",
                    generation=0,
                    operator="init",
                    attempts=child.attempt + 1,
                    call=child.call,
                    fitness=verification.fitness,
                    mean=verification.fitness,
                    survivor=True,
                )
                rated.extend([candidate])
                # Unparsed responses have a fitness, too, but cannot be the answer.
                if candidate.answer is not None and verification.fitness > best_fitness:
                    best, best_fitness = candidate, verification.fitness
            yield Step(step=step, best=best, candidates=Snapshot(rated), pool=len(rated), extra=drawn.diagnostics())
            if ctx.out_of_budget:
                return

    def _batch(self, samples: int) -> int:
        """Return how many of `samples` responses one step draws."""
        return -(-samples // self.config.batches)  # rounded up
