"""Zero-shot chain of thought: one response, no search (Duel-Evolve paper, appendix D)."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from msgspec.structs import replace

from evorun.methods.base import PerProblem
from evorun.methods.context import Context
from evorun.methods.search.proposals import Proposal, Proposed, ResponseSettings, propose
from evorun.runs.candidates import Step
from evorun.tasks.capabilities import Generates


@dataclass(kw_only=True)
class ZeroShotConfig(ResponseSettings):
    """Hyperparameters; `conf/method/zero_shot.yaml` gives each default and its source."""

    name: str


class ZeroShot(PerProblem):
    """Answers each problem once."""

    name = "zero_shot"
    description = "one chain-of-thought response"
    regime = "problem_only"
    needs = (Generates,)
    last_step = 0
    Config = ZeroShotConfig
    config: ZeroShotConfig

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Ask once, and again when the text does not parse."""
        proposal = Proposal(ctx.task.generation_prompt(ctx.problem), ())
        yield only_step(await propose(ctx, [proposal], operator="init", step=0, settings=self.config))


def only_step(proposed: Proposed) -> Step:
    """Return the step of a method that draws one response and keeps it."""
    kept = [replace(candidate, survivor=True) for candidate in proposed.parsed]
    return Step(
        step=0,
        best=kept[0] if kept else None,
        candidates=[*kept, *proposed.unparsed],
        extra=proposed.diagnostics(),
    )
