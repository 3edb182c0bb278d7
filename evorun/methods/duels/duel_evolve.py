"""Duel-Evolve: evolution of responses guided by the model's own pairwise preferences (Duel-Evolve paper, section 2.3).

The paper's loop is update, evaluate, evolve, update, ... Here a step is evolve, evaluate, update, and step 0 evolves
from the problem alone. Two consequences are ours. When parents are chosen, the posterior already includes the duels of
their own generation (appendix A.1 updates it after each evaluation round). The last children are judged before the
answer is chosen.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray

from evorun.fields import Fraction, NonNegativeFloat, NonNegativeInt, OneOf, PositiveInt
from evorun.methods.base import PerProblem
from evorun.methods.context import Context
from evorun.methods.duels.arena import Arena
from evorun.methods.duels.duels import CHOICES, DuelSettings, hold_duels, rate_in_arena, warn_if_no_duels
from evorun.methods.duels.stopping import StoppingRule, StopSettings
from evorun.methods.search.proposals import Proposal, ResponseSettings, add_feedback, propose
from evorun.methods.search.puct import Puct
from evorun.models.base import Sampling
from evorun.ratings.bradley_terry import Posterior
from evorun.rollouts.calls import Role
from evorun.runs.candidates import Candidate, Comparison, Step
from evorun.tasks.capabilities import SupportsEvolution, SupportsGeneration, SupportsJudging


@dataclass(kw_only=True)
class DuelEvolveConfig(DuelSettings, StopSettings, ResponseSettings):
    """Hyperparameters; `conf/method/duel_evolve.yaml` gives each default and its source."""

    name: str
    generations: NonNegativeInt
    """Evolution steps after the initial candidates; 0 judges the initial candidates only."""
    initial_candidates: PositiveInt
    """N0 of section 2.3.3."""
    children: PositiveInt
    """B of section 2.3.3: candidates that one generation asks for."""
    parents: PositiveInt
    """|A_t|: scored parents in the evolution prompt."""
    recent_share: Fraction
    """Share of the parents taken from the last generation, the most uncertain first; the rest by Thompson sampling."""
    parent_choice: Annotated[str, OneOf((*CHOICES, "puct"))]
    """thompson: parents as `recent_share` says. uniform: survivors at random. puct: by the best child's posterior mean
    and the number of visits; no parent is another one's ancestor, so that there may be fewer."""
    puct_exploration: NonNegativeFloat
    """c of PUCT: weight of parents that were rarely tried."""
    shared_parents: bool
    """One parent set per generation (Eq. 5); false draws one per child."""
    deduplicate: bool
    """Discard, without replacement, a child whose answer has the signature of an earlier candidate (appendix A.1)."""


class DuelEvolve(PerProblem):
    """Evolves a pool of responses to one problem; needs no reward and no label."""

    name = "duel_evolve"
    description = "evolution of responses by the model's pairwise preferences: Bradley-Terry, double Thompson sampling"
    regime = "problem_only"
    needs = (SupportsGeneration, SupportsEvolution, SupportsJudging)
    roles: ClassVar = {"judge": Role("judge")}
    observes = True
    Config = DuelEvolveConfig
    config: DuelEvolveConfig

    @property
    def last_step(self) -> int:
        return self.config.generations

    @property
    def judge_sampling(self) -> Sampling | None:
        return self.config.judge_sampling

    @property
    def stop_settings(self) -> StopSettings:
        return self.config

    def rate_by_duels(self, candidates: Sequence[Candidate], duels: Sequence[Comparison]) -> Posterior:
        return rate_in_arena(self.config, candidates, duels)

    def warnings(self, calls: int | None, judges: int = 1) -> list[str]:
        config = self.config
        if not config.duels:
            return []
        lines = warn_if_no_duels(calls, config.initial_candidates, "initial_candidates", config.orders, judges)
        if config.duels < config.children and config.generations:
            lines.append(
                f"method.duels={config.duels} is below method.children={config.children}: candidates come faster than "
                "their first duels, so that some may never be judged"
            )
        return lines

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Run the loop of section 2.3.3 on one problem; the answer is the highest posterior mean."""
        config, arena = self.config, self.config.arena(ctx.archive)
        seen: set[str] = set()
        lineage, stopping = Puct(config.puct_exploration), StoppingRule(config, ctx)
        for step in range(config.generations + 1):
            # Evolve: N0 candidates, then B children of parents A_t (equation 5). Until a response has parsed, there are
            # no parents, and the prompt is the problem alone.
            operator = "evolve" if len(arena) else "init"
            if len(arena) == 0:
                proposals = [Proposal(ctx.task.generation_prompt(ctx.problem), ())] * config.initial_candidates
            elif config.shared_parents:
                proposals = [self._propose_from_parents(ctx, arena, lineage, step, 0)] * config.children
            else:
                proposals = [
                    self._propose_from_parents(ctx, arena, lineage, step, child) for child in range(config.children)
                ]
            proposed = await propose(ctx, proposals, operator=operator, step=step, settings=config)
            fresh, repeated = proposed.parsed, list[Candidate]()
            if config.deduplicate:
                fresh, repeated = _without_repeats(ctx, proposed.parsed, seen)
            arena.add(await add_feedback(ctx, fresh))
            stopping.add(fresh)
            for child in fresh:
                lineage.add(child.id, child.parents)
            arena.note_lost(proposed.unparsed + repeated)
            # Evaluate: pairs by double Thompson sampling (section 2.2). Update: the posterior (equation 4).
            comparisons = await hold_duels(ctx, arena, config, step=step)
            if ctx.out_of_budget and step > 0 and not (proposed.parsed or proposed.unparsed or comparisons):
                return  # the budget ended before this step could do anything
            survivors, best = config.survivors(arena), arena.best()  # S_t, and the argmax of the posterior mean
            rated = arena.rated(survivors.indices)
            arena.keep(survivors.indices)
            sure = stopping.diagnostics(arena.mean, arena.sd, best)
            yield Step(
                step=step,
                best=None if best is None else rated[best],
                candidates=rated,
                pool=len(survivors.indices),
                comparisons=comparisons,
                extra={
                    **proposed.diagnostics(),
                    **survivors.diagnostics(),
                    **({"repeated_children": len(repeated)} if config.deduplicate else {}),
                    **sure,
                },
                reached_goal=(ends := stopping.ends(sure, arena.judged)),
            )
            if ctx.out_of_budget or ends:
                return

    def _propose_from_parents(self, ctx: Context, arena: Arena, lineage: Puct, step: int, child: int) -> Proposal:
        """Return the evolution prompt with scored parents (Eq. 5); `child` names the parents' random stream."""
        config, rng = self.config, ctx.rng("parents", step, child)
        survivors = config.survivors(arena).indices
        if config.parent_choice == "puct":
            parents = select_parents_by_puct(arena, lineage, survivors, config.parents)
        else:
            parents = select_parents(arena, survivors, config.parents, config.recent_share, rng, config.parent_choice)
        scored = [arena.scored(i) for i in parents]
        return Proposal(ctx.task.evolution_prompt(ctx.problem, scored), tuple(arena.candidates[i].id for i in parents))


def _without_repeats(
    ctx: Context, children: Sequence[Candidate], seen: set[str]
) -> tuple[list[Candidate], list[Candidate]]:
    """Split the children into new ones and repeats; all their signatures join `seen`."""
    fresh: list[Candidate] = []
    repeated: list[Candidate] = []
    for child in children:
        signature = ctx.task.signature(ctx.problem, child)
        (repeated if signature in seen else fresh).append(child)
        seen.add(signature)
    return fresh, repeated


def select_parents(
    arena: Arena,
    survivors: NDArray[np.intp],
    count: int,
    recent_share: float,
    rng: np.random.Generator,
    choice: str = "thompson",
) -> list[int]:
    """Choose A_t among the survivors (section 2.3.3): recent arrivals and Thompson-sampled top scorers.

    `recent_share` of them come from the latest generation, most uncertain first; the others are the best of one draw
    from the posterior. With `choice` uniform, all are drawn at random. Returns at most `count` distinct indices, the
    highest mean first.
    """
    if choice == "uniform":
        chosen = rng.permutation(survivors)[:count].tolist()
    else:
        generations = {i: arena.candidates.at(i).generation for i in survivors.tolist()}
        latest = max(generations.values())
        recent = [i for i, generation in generations.items() if generation == latest]
        recent.sort(key=lambda i: -arena.sd[i])
        # Python rounds halves to even: 5 parents at a share of 0.5 include two recent ones.
        chosen = recent[: round(count * recent_share)]
        # One joint draw ranks all survivors: Thompson sampling prefers good ones and uncertain ones that may be good.
        draw = rng.normal(arena.mean[survivors], arena.sd[survivors])
        ranked = survivors[np.argsort(-draw)].tolist()
        chosen += [i for i in ranked if i not in chosen][: count - len(chosen)]
    return sorted(chosen, key=lambda i: -arena.mean[i])


def select_parents_by_puct(arena: Arena, lineage: Puct, survivors: NDArray[np.intp], count: int) -> list[int]:
    """Choose A_t among the survivors by PUCT on posterior means, and count the expansion; the highest mean first.

    lineage: the arena's candidates in its order. Returns at most `count` indices.
    """
    states = lineage.states
    indices = {candidate: index for index, candidate in enumerate(states)}
    means = dict(zip(states, arena.mean.tolist(), strict=True))
    chosen = lineage.choose(means, [states[i] for i in survivors.tolist()], count)
    lineage.expand(*chosen)
    return sorted((indices[candidate] for candidate in chosen), key=lambda i: -arena.mean[i])
