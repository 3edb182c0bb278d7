"""Independent responses to one prompt: a given number, or as many as a share of the budget pays for."""

from dataclasses import dataclass

from evorun.errors import above, at_least, within
from evorun.methods.context import Context
from evorun.methods.search.proposals import Proposal, Proposed, ResponseSettings, propose
from evorun.rollouts.episodes import most_turns
from evorun.rollouts.replies import TextCounts

FEWEST = 2
"""Responses at least, however small the share: fewer leave nothing to choose among."""
PILOT = 4
"""Responses that come first where only tokens are limited: their cost says how many more there can be (ours)."""


@dataclass(kw_only=True)
class SampleSettings(ResponseSettings):
    """Number of independent responses, part of every configuration of a method that draws some to choose among."""

    samples: int | None
    """N: independent responses. None: as many as `budget_share` pays for."""
    budget_share: float
    """Share of a problem's calls and tokens that go to responses where `samples` is None."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("method.samples", self.samples, 1)
        above("method.budget_share", self.budget_share, 0)
        within("method.budget_share", self.budget_share, 0, 1)

    def samples_of(self, calls: int) -> int:
        """Return the number of responses under a budget of so many calls per problem."""
        return self.samples if self.samples is not None else max(FEWEST, int(self.budget_share * calls))

    def still_to_draw(self, ctx: Context, drawn: int) -> int:
        """Return how many responses are to follow the `drawn` ones, as far as their cost is known by now."""
        if self.samples is not None:
            return self.samples - drawn
        left = ctx.left_of_share(self.budget_share, "generate")
        if left is None:
            return max(0, PILOT - drawn)
        # Responses of several turns: as many as there are calls for, at most; those that took fewer leave some over.
        return max(left // most_turns(ctx.task, ctx.problem), FEWEST - drawn)


async def draw(ctx: Context, settings: SampleSettings) -> Proposed:
    """Ask for all responses in step 0 at once; for more of them, as long as a share of a token budget has some left."""
    proposal = Proposal(ctx.task.generation_prompt(ctx.problem), ())
    drawn, count = Proposed([], [], TextCounts()), 0
    while (wave := settings.still_to_draw(ctx, count)) > 0 and not ctx.out_of_budget:
        proposed = await propose(ctx, [proposal] * wave, operator="init", step=0, settings=settings, first=count)
        drawn, count = drawn.joined(proposed), count + wave
    return drawn
