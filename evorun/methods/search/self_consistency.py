"""Self-consistency: N independent responses and a majority vote on their answers (Duel-Evolve paper, appendix D)."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from evorun.methods.base import PerProblem
from evorun.methods.context import Context
from evorun.methods.search.samples import SampleSettings, draw
from evorun.runs.candidates import Step
from evorun.tasks.base import Task
from evorun.tasks.capabilities import Generates


@dataclass(kw_only=True)
class SelfConsistencyConfig(SampleSettings):
    """Hyperparameters; `conf/method/self_consistency.yaml` gives each default and its source."""

    name: str


class SelfConsistency(PerProblem):
    """Draws responses and returns one with the most frequent answer."""

    name = "self_consistency"
    description = "N independent responses, the most frequent answer"
    regime = "problem_only"
    needs = (Generates,)
    last_step = 0
    Config = SelfConsistencyConfig
    config: SelfConsistencyConfig

    @property
    def ended_by_budget(self) -> Mapping[str, int | None]:
        return {"samples": self.config.samples}

    def incompatibility(self, task: type[Task]) -> str | None:
        if task.free_text:
            return (
                f"votes on answers, and no two texts of task={task.name} are the same; expected method=best_of_n, "
                "whose judge chooses one, or another task"
            )
        return None

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Draw all responses and let them vote; a candidate's mean is its answer's share of the votes."""
        proposed = await draw(ctx, self.config)
        # Signatures, not texts: two ways to write one answer are one vote.
        ballots = [ctx.task.signature(ctx.problem, candidate) for candidate in proposed.parsed]
        votes = Counter(ballots)
        rated = [
            replace(candidate, mean=votes[ballot] / len(ballots), survivor=True)
            for candidate, ballot in zip(proposed.parsed, ballots, strict=True)
        ]
        winner = majority(ballots, ctx.rng("ties"))
        yield Step(
            step=0,
            best=None if winner is None else rated[winner],
            candidates=[*rated, *proposed.unparsed],
            extra=proposed.diagnostics() | {"distinct_answers": len(votes)},
        )


def majority(ballots: Sequence[str], rng: np.random.Generator) -> int | None:
    """Return the index of the first ballot with the most frequent answer; equally frequent ones are drawn from."""
    if not ballots:
        return None
    # A Counter keeps the order of first appearance, so that the draw among leaders repeats on a resume.
    votes = Counter(ballots)
    most = max(votes.values())
    leaders = [answer for answer, count in votes.items() if count == most]
    return ballots.index(leaders[int(rng.integers(len(leaders)))])
