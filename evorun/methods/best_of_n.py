"""Best-of-N: independent responses, chosen among by the duels of Duel-Evolve, without evolution (appendix D)."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from evorun.methods.base import Comparison, Context, PerProblem, Step
from evorun.methods.duels import Arena, DuelSettings, hold_duels, no_duels
from evorun.methods.proposals import Proposal, ResponseSettings, observed, propose, unrated
from evorun.tasks.base import Generates, Judges
from evorun.validation import at_least


@dataclass
class BestOfNConfig(DuelSettings, ResponseSettings):
    """Hyperparameters; `conf/method/best_of_n.yaml` gives the source of each default."""

    name: str = "best_of_n"
    samples: int = 150
    """N: independent responses."""
    rounds: int = 150
    """Rounds of duels among them."""

    def __post_init__(self) -> None:
        """Raise ConfigError, naming the key, when a value is out of range."""
        DuelSettings.__post_init__(self)
        ResponseSettings.__post_init__(self)
        at_least("method.samples", self.samples, 1)
        at_least("method.rounds", self.rounds, 0)


class BestOfN(PerProblem):
    """Draws responses once; duels then decide which is returned."""

    name = "best_of_n"
    description = "N independent responses, the best by the duels and the posterior of Duel-Evolve"
    regime = "problem_only"
    needs = (Generates, Judges)
    observes = True
    Config = BestOfNConfig

    def __init__(self, config: BestOfNConfig) -> None:
        self.config = config

    @property
    def last_step(self) -> int:
        """The last round of duels."""
        return self.config.rounds

    def reservations(self, calls: int | None) -> list[str]:
        """Say when the responses leave no calls for duels."""
        return no_duels(calls, self.config.samples, "samples") if self.config.rounds and self.config.duels else []

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Draw all responses in step 0, then hold one round of duels a step; the answer is the highest mean."""
        proposals = [Proposal(ctx.task.generation_prompt(ctx.problem), ())] * self.config.samples
        born = await propose(ctx, proposals, operator="init", step=0, settings=self.config)
        arena = Arena(self.config.prior_sd)
        arena.add(await observed(ctx, born.parsed))
        comparisons: list[Comparison] = []
        unseen = {candidate.id for candidate in arena.candidates}
        for step in range(self.config.rounds + 1):
            if step > 0:
                newcomers = [i for i, candidate in enumerate(arena.candidates) if candidate.id in unseen]
                comparisons = await hold_duels(ctx, arena, newcomers, self.config, step=step)
                if not comparisons:
                    return  # nobody to compare, or the budget has ended
                unseen -= {name for duel in comparisons for name in (duel.first, duel.second)}
            rated = arena.rated(arena.survivors(self.config.bound_width, self.config.max_pool))
            best = arena.best()
            yield Step(
                step=step,
                best=None if best is None else rated[best],
                candidates=[*rated, *unrated(born.unparsed)],
                comparisons=comparisons,
                extra=born.diagnostics() if step == 0 else {},
            )
