"""Duel-Evolve: evolution of responses guided by the model's own pairwise preferences (Duel-Evolve paper, section 2.3).

The paper's loop is update, evaluate, evolve, update, ... Here a step is evolve, evaluate, update, and step 0 evolves
from the problem alone. Two things follow, both ours: parents are chosen with the duels of their own generation already
in the posterior (appendix A.1 updates it after each evaluation round), and the last children are judged before the
answer is chosen.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evorun.errors import ConfigError
from evorun.methods.base import Candidate, Comparison, Context, PerProblem, Rated, Step
from evorun.methods.duels import Arena, judge_pairs, select_duels
from evorun.methods.proposals import Proposal, Proposed, propose
from evorun.models.base import Sampling
from evorun.tasks.base import Evolves, Generates, Judges, ScoredResponse
from evorun.validation import above, at_least, within


@dataclass
class DuelEvolveConfig:
    """Hyperparameters; `conf/method/duel_evolve.yaml` gives the source of each default."""

    name: str = "duel_evolve"
    generations: int = 150
    """Evolution steps after the initial candidates; 0 judges the initial candidates only."""
    initial_candidates: int = 12
    """N0 of section 2.3.3."""
    children: int = 12
    """B of section 2.3.3: candidates that one generation asks for."""
    parents: int = 6
    """|A_t|: scored parents in the evolution prompt."""
    recent_share: float = 0.34
    """Share of the parents taken from the last generation, the most uncertain first; the rest by Thompson sampling."""
    shared_parents: bool = True
    """One parent set for a generation (Eq. 5); false draws one for each child."""
    max_pool: int = 200
    """Survivors at most; those with the highest upper bounds stay."""
    duels: int = 24
    """Pairs to judge in a generation, each twice."""
    bound_width: float = 2.0
    """Half width of the confidence bounds that decide survival, in posterior standard deviations."""
    prior_sd: float = 1.0
    """sigma_0 of Eq. 4, in logits."""
    temperature: float = 0.7
    top_p: float = 1.0
    max_tokens: int = 1024
    """Completion tokens of a candidate at most."""
    judge_temperature: float = 0.7
    judge_max_tokens: int = 192
    retries: int = 1
    """Further attempts at a candidate whose text could not be parsed."""

    def __post_init__(self) -> None:
        """Raise ConfigError, naming the key, when a value is out of range."""
        for key in ("initial_candidates", "children", "parents", "max_tokens", "judge_max_tokens"):
            at_least(f"method.{key}", getattr(self, key), 1)
        for key in ("generations", "duels", "retries", "temperature", "judge_temperature", "bound_width"):
            at_least(f"method.{key}", getattr(self, key), 0)
        at_least("method.max_pool", self.max_pool, 2)
        above("method.prior_sd", self.prior_sd, 0)
        above("method.top_p", self.top_p, 0)
        within("method.top_p", self.top_p, 0, 1)
        within("method.recent_share", self.recent_share, 0, 1)
        if self.initial_candidates > self.max_pool:
            raise ConfigError(
                f"method.initial_candidates: expected at most method.max_pool = {self.max_pool}, "
                f"got {self.initial_candidates}"
            )


class DuelEvolve(PerProblem):
    """Evolves a pool of responses to one problem; needs no reward and no label."""

    name = "duel_evolve"
    description = "evolution of responses by the model's pairwise preferences: Bradley-Terry, double Thompson sampling"
    regime = "problem_only"
    needs = (Generates, Evolves, Judges)
    Config = DuelEvolveConfig

    def __init__(self, config: DuelEvolveConfig) -> None:
        self.config = config
        self.sampling = Sampling(temperature=config.temperature, top_p=config.top_p, max_tokens=config.max_tokens)
        self.judge_sampling = Sampling(temperature=config.judge_temperature, max_tokens=config.judge_max_tokens)

    @property
    def last_step(self) -> int:
        """The last generation."""
        return self.config.generations

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Run the loop of section 2.3.3 on one problem; the answer is the highest posterior mean."""
        arena = Arena(self.config.prior_sd)
        unparsed: list[Candidate] = []
        for step in range(self.config.generations + 1):
            born = await self._evolve(ctx, arena, step)
            arena.add(born.parsed)
            unparsed += born.unparsed
            comparisons = await self._evaluate(ctx, arena, step)
            arena.update(comparisons)
            if ctx.out_of_budget and step > 0 and not (born.parsed or born.unparsed or comparisons):
                return  # the budget ended before this step could do anything
            yield self._report(arena, unparsed, step, born, comparisons)
            if ctx.out_of_budget:
                return

    async def _evolve(self, ctx: Context, arena: Arena, step: int) -> Proposed:
        """Ask for the children of this step; while there is nobody to learn from, from the problem alone."""
        if len(arena) == 0:
            proposals = [Proposal(ctx.task.generation_prompt(ctx.problem), ())] * self.config.initial_candidates
        elif self.config.shared_parents:
            proposals = [self._family(ctx, arena, step, 0)] * self.config.children
        else:
            proposals = [self._family(ctx, arena, step, child) for child in range(self.config.children)]
        return await propose(
            ctx,
            proposals,
            role="generate",
            operator="evolve" if len(arena) else "init",
            step=step,
            sampling=self.sampling,
            retries=self.config.retries,
        )

    def _family(self, ctx: Context, arena: Arena, step: int, child: int) -> Proposal:
        rng = ctx.rng("parents", step, child)
        parents = select_parents(arena, self._survivors(arena), self.config.parents, self.config.recent_share, rng)
        scored = [ScoredResponse(response=arena.candidates[i].response, score=float(arena.mean[i])) for i in parents]
        return Proposal(ctx.task.evolution_prompt(ctx.problem, scored), tuple(arena.candidates[i].id for i in parents))

    async def _evaluate(self, ctx: Context, arena: Arena, step: int) -> list[Comparison]:
        newcomers = [i for i, candidate in enumerate(arena.candidates) if candidate.generation == step]
        rivals = self._survivors(arena, newcomers)
        pairs = select_duels(arena, rivals, newcomers, self.config.duels, ctx.rng("duels", step))
        return await judge_pairs(ctx, arena.candidates, pairs, step=step, sampling=self.judge_sampling)

    def _survivors(self, arena: Arena, newcomers: Sequence[int] = ()) -> NDArray[np.intp]:
        return arena.survivors(self.config.bound_width, self.config.max_pool, newcomers)

    def _report(
        self,
        arena: Arena,
        unparsed: Sequence[Candidate],
        step: int,
        born: Proposed,
        comparisons: Sequence[Comparison],
    ) -> Step:
        rated = arena.rated(self._survivors(arena))
        best = arena.best()
        lost = [Rated(candidate=c, mean=None, sd=None, survivor=False) for c in unparsed]
        return Step(
            step=step,
            best=None if best is None else rated[best],
            candidates=[*rated, *lost],
            comparisons=comparisons,
            extra={
                "children": len(born.parsed) + len(born.unparsed),
                "unparsable_texts": born.unparsable_texts,
                "rejected_requests": born.rejected_requests,
                "truncated_texts": born.truncated_texts,
            },
        )


def select_parents(
    arena: Arena, survivors: NDArray[np.intp], count: int, recent_share: float, rng: np.random.Generator
) -> list[int]:
    """Choose A_t among the survivors (section 2.3.3): recent arrivals and Thompson-sampled top scorers.

    The share `recent_share` goes to the latest generation, most uncertain first; the rest to the best of one draw
    from the posterior. Returns at most `count` different indices, the highest posterior mean first.
    """
    latest = max(arena.candidates[i].generation for i in survivors)
    recent = [i for i in survivors.tolist() if arena.candidates[i].generation == latest]
    recent.sort(key=lambda i: -arena.sd[i])
    chosen = recent[: round(count * recent_share)]
    draw = rng.normal(arena.mean[survivors], arena.sd[survivors])
    ranked = survivors[np.argsort(-draw)].tolist()
    chosen += [i for i in ranked if i not in chosen][: count - len(chosen)]
    return sorted(chosen, key=lambda i: -arena.mean[i])
