"""Trials of rubrics that may replace the present one: they score responses (all of it ours)."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from evorun.methods.learning.parts import spread
from evorun.methods.mpo.refinement_settings import RefinementSettings
from evorun.rollouts.rubric_rewards import RubricRewards
from evorun.runs.candidates import Response
from evorun.tasks.base import Problem
from evorun.tasks.rubrics import Rubric

MIN_CORRELATION = -0.4
"""Minimum rank correlation of held-out responses by the old and the new rubric (ours). It is below 0, since some of
the responses may be exploits that only the old rubric rewards; they must not protect it."""
MAX_GAIN = 0.1
"""Maximum share of the points by which a new rubric may raise known exploits relative to held-out responses (ours)."""


class Answered(NamedTuple):
    """A problem and a response to it."""

    problem: Problem
    response: Response


class Trial:
    """The scores for one refinement. Await its methods one after the other; several trials may run concurrently."""

    def __init__(self, scorer: RubricRewards, settings: RefinementSettings, step: int, number: int) -> None:
        """number: index of the refinement within its step."""
        self._scorer = scorer
        self._step = step
        self._next = number * settings.max_scores
        self.scored: list[tuple[int, int]] = []
        """Step and index of the scores that have not been charged yet."""

    async def scores(self, rubric: Rubric, answered: Sequence[Answered]) -> list[float | None]:
        """Return the share of the rubric's points for each response; None where no score could be read."""
        indices = range(self._next, self._next + len(answered))
        self._next = indices.stop
        self.scored += [(self._step, index) for index in indices]
        rewards = await asyncio.gather(
            *(
                self._scorer.rescore_jointly(self._step, index, problem, response, rubric)
                for index, (problem, response) in zip(indices, answered, strict=True)
            )
        )
        return [reward.parts.get("normalised") for reward in rewards]

    async def widest(self, rubrics: Sequence[Rubric], answered: Sequence[Answered]) -> int:
        """Return the index of the rubric that spreads the responses' scores most; ties go to the first.

        The paper's refinements make finer distinctions (MPO, section 4), and the spread can be measured without knowing
        which response is better.
        """
        if len(rubrics) == 1:
            return 0
        spreads = [spread(drop_unscored(await self.scores(rubric, answered))) for rubric in rubrics]
        return int(np.argmax(spreads))

    async def fault_of_spread(self, old: Rubric, new: Rubric, answered: Sequence[Answered]) -> str:
        """Return why a rubric is refused that must spread scores at least as much as the old one; "" if it does."""
        before, after = drop_unscored(await self.scores(old, answered)), drop_unscored(await self.scores(new, answered))
        if len(after) < min(2, len(before)):
            return "unscorable"
        return "narrower" if spread(after) < spread(before) else ""

    async def fault_of_validation(
        self, old: Rubric, new: Rubric, held_out: Sequence[Answered], exploits: Sequence[Answered]
    ) -> str:
        """Return why held-out responses and known exploits refuse a rubric; "" if they do not.

        opposed: it reverses the old rubric's ranking (Spearman's correlation below MIN_CORRELATION). exploitable: it
        raises exploits relative to held-out responses by more than MAX_GAIN. unscorable: fewer than half as many of its
        scores can be read as of the old one's.
        """
        from scipy.stats import spearmanr  # takes half a second to import

        by_old = await self.scores(old, [*held_out, *exploits])
        by_new = await self.scores(new, [*held_out, *exploits])
        if len(drop_unscored(by_new)) < len(drop_unscored(by_old)) / 2:
            return "unscorable"
        score_pairs = [
            None if before is None or after is None else (before, after)
            for before, after in zip(by_old, by_new, strict=True)
        ]
        held_out_pairs = np.array([pair for pair in score_pairs[: len(held_out)] if pair is not None]).reshape(-1, 2)
        exploit_pairs = np.array([pair for pair in score_pairs[len(held_out) :] if pair is not None]).reshape(-1, 2)
        if (
            len(held_out_pairs) > 2
            and np.ptp(held_out_pairs, axis=0).all()
            and spearmanr(held_out_pairs).statistic < MIN_CORRELATION
        ):
            return "opposed"
        if not len(held_out_pairs) or not len(exploit_pairs):
            return ""
        gain = np.diff(exploit_pairs).mean() - np.diff(held_out_pairs).mean()
        return "exploitable" if gain > MAX_GAIN else ""


def drop_unscored(scores: Sequence[float | None]) -> list[float]:
    """Return the scores that could be read."""
    return [score for score in scores if score is not None]
