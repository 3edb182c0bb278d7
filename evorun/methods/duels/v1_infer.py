"""V1-Infer: pairwise self-verification of independent responses (arXiv 2603.04304).

N responses, then B comparisons that rate both responses from 1 to 10: N + B calls, times `orders` for the latter. Fewer
where `stop_probability` ends a problem, by the posterior of the ratings (ours).
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from msgspec.structs import replace

from evorun.methods.base import PerProblem
from evorun.methods.context import Context
from evorun.methods.duels.duels import warn_if_no_duels
from evorun.methods.duels.pair_ratings import SwissSettings, hold_swiss_rounds, list_rated_pairs
from evorun.methods.duels.stopping import StoppingRule, StopSettings
from evorun.methods.search.proposals import SampleSettings, add_feedback, draw
from evorun.models.base import Sampling
from evorun.ratings.bradley_terry import Posterior
from evorun.rollouts.calls import Role
from evorun.runs.candidates import Candidate, Comparison, Step
from evorun.tasks.capabilities import SupportsGeneration, SupportsPairRatings


@dataclass(kw_only=True)
class V1InferConfig(SwissSettings, StopSettings, SampleSettings):
    """Hyperparameters; `conf/method/v1_infer.yaml` gives each default and its source."""

    name: str


class V1Infer(PerProblem):
    """Draws responses once and rates pairs of them, which a Swiss tournament chooses."""

    name = "v1_infer"
    description = "N independent responses, the best by ratings of pairs that a Swiss tournament chooses"
    regime = "problem_only"
    needs = (SupportsGeneration, SupportsPairRatings)
    roles: ClassVar = {"judge": Role("judge")}
    observes = True
    Config = V1InferConfig
    config: V1InferConfig

    @property
    def optional_limits(self) -> Mapping[str, int | None]:
        return {"samples": self.config.samples, "comparisons": self.config.comparisons}

    @property
    def judge_sampling(self) -> Sampling | None:
        return self.config.judge_sampling

    def warnings(self, calls: int | None, judges: int = 1) -> list[str]:
        if calls is None:
            return []
        return warn_if_no_duels(calls, self.config.samples_within(calls), "samples", self.config.orders, judges)

    @property
    def stop_settings(self) -> StopSettings:
        return self.config

    def rate_by_duels(self, candidates: Sequence[Candidate], duels: Sequence[Comparison]) -> Posterior:
        places = {candidate.id: place for place, candidate in enumerate(candidates)}
        rated = list_rated_pairs(duels, places)
        posterior = super().rate_by_duels(candidates, duels)
        # Without a readable rating there are no weights.
        return posterior._replace(mean=self.config.rate(len(candidates), rated)) if rated else posterior

    async def solve(self, ctx: Context) -> AsyncIterator[Step]:
        """Draw all responses in step 0, then rate one round of pairs per step; the answer has the highest estimate."""
        proposed = await draw(ctx, self.config)
        drawn = await add_feedback(ctx, proposed.parsed)
        stopping = StoppingRule(self.config, ctx)
        stopping.add(drawn)

        def report(
            step: int, mean: Sequence[float], comparisons: Sequence[Comparison], extra: dict[str, float]
        ) -> Step:
            # Nine decimals: later ones differ between machines, and records must not.
            rated = [
                replace(candidate, mean=round(value, 9), survivor=True)
                for candidate, value in zip(drawn, mean, strict=True)
            ]
            return Step(
                step=step,
                best=rated[int(np.argmax(mean))] if rated else None,
                candidates=[*rated, *proposed.unparsed],
                comparisons=comparisons,
                extra=extra,
            )

        yield report(0, self.config.rate(len(drawn), []).tolist(), [], proposed.diagnostics())
        async for held in hold_swiss_rounds(ctx, drawn, self.config):
            sure: dict[str, float] = {}
            if self.config.stop_probability is not None:
                posterior = self.config.posterior(len(drawn), held.rated)
                sure = stopping.diagnostics(posterior.mean, posterior.sd, int(np.argmax(held.mean)))
            ends = stopping.ends(sure, judged=True)
            yield replace(report(held.step, held.mean.tolist(), held.comparisons, sure), reached_goal=ends)
            if ends:
                return
