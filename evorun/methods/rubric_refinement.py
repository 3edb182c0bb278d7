"""Refinement of a rubric by a meta reward model: analysis, refinement, merging (MPO, section 2.3 and appendix C).

All that the model writes is data: what cannot be used is counted by its reason, and the present rubric stays.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from evorun.methods.meta_prompts import MetaPrompts, Sample, points, read_analysis, read_own_score, reason
from evorun.methods.refinement_settings import ANALYSE, MERGE, REFINE, RefinementSettings
from evorun.methods.rubric_writing import Written, write_by_item, write_whole
from evorun.models.base import Reply
from evorun.rollouts.calls import Calls
from evorun.rollouts.rewards import Reward, Rewards
from evorun.rollouts.rubric_rewards import RESCORE
from evorun.runs.candidates import Response
from evorun.tasks.base import Problem, Prompt
from evorun.tasks.excerpts import excerpt
from evorun.tasks.rubrics import Rubric

EXCERPT = 1_000
"""Characters of each analysis in a rubric's record. `ours`: the journal has the whole of it."""


class Scorer(Rewards, Protocol):
    """A reward model that scores by rubrics."""

    @property
    def calls_per_score(self) -> int:
        """Model calls that `rescore` takes at most."""
        ...

    def most_calls(self, episodes: int, step: int) -> int:
        """Return how many calls the rewards of so many episodes of a step take at most."""
        ...

    async def rescore(self, step: int, index: int, problem: Problem, response: Response, rubric: Rubric) -> Reward:
        """Score a response by any rubric as a whole; `index` tells those of one step apart."""
        ...

    def charge(self, step: int, index: int, role: str = ...) -> None:
        """Charge the calls of a reward or (role RESCORE) of a score by any rubric; see `Calls.charge`."""
        ...


class Turn(NamedTuple):
    """The place of a refinement in the run, which tells its calls from all others."""

    step: int
    number: int
    """Of several refinements at one step."""


class Refined(NamedTuple):
    """The outcome of a refinement."""

    figures: Counter[str]
    rubric: Rubric | None = None
    """None: the present one stays."""
    origin: Mapping[str, Any] = {}
    """Fields of the rubric as a candidate."""


class _Looked(NamedTuple):
    """The outcome of looking at one sample."""

    figures: Counter[str]
    analysis: str = ""
    rubric: Rubric | None = None
    """None where none was asked for, or none could be read."""


class MetaRewardModel:
    """Rewrites rubrics in view of what they were used on."""

    def __init__(
        self, calls: Calls, prompts: MetaPrompts, settings: RefinementSettings, scorer: Scorer | None = None
    ) -> None:
        """scorer: for `keep_rubric=spread`."""
        self._calls = calls
        self._prompts = prompts
        self._settings = settings
        self._scorer = scorer
        self._answered: list[tuple[str, int, int, Reply]] = []
        """Calls still to be charged: role, index, attempt and reply."""
        self._rescored: set[tuple[int, int]] = set()
        """Step and index of what was scored by two rubrics, and is still to be charged."""

    @property
    def most_calls(self) -> int:
        """Model calls that a refinement takes at most."""
        settings = self._settings
        scores = 2 * self._scorer.calls_per_score if settings.keep_rubric == "spread" and self._scorer else 0
        written = settings.calls_per_rubric
        return settings.refine_samples * (settings.meta_analysis + written + scores) + written

    async def refine(self, turn: Turn, rubric: Rubric, samples: Sequence[Sample]) -> Refined:
        """Return a rubric to take the place of the present one, made from samples of what it led to."""
        # An analysis and its refinement need no other sample, so that each goes through both by itself.
        async with asyncio.TaskGroup() as together:
            looking = [together.create_task(self._look(turn, number, sample)) for number, sample in enumerate(samples)]
        looked = [one.result() for one in looking]
        figures = sum((one.figures for one in looked), Counter(refinement_samples=len(samples)))
        proposed = [one.rubric for one in looked if one.rubric is not None]
        if not proposed:
            return Refined(figures + Counter(rubrics_refused_no_proposals=1))
        merging, words = self._prompts.merging(rubric, proposed), self._settings.merging_words
        try:
            merged, left_out = await self._write(MERGE, turn, turn.number, merging, words)
        except ValueError as error:
            return Refined(figures + Counter({f"rubrics_refused_{reason(error)}": 1}))
        figures += left_out
        fault = await self._fault(turn, rubric, merged, samples)
        if fault:
            return Refined(figures + Counter({f"rubrics_refused_{fault}": 1}))
        analyses = [(number, one.analysis) for number, one in enumerate(looked, 1) if one.analysis]
        origin = {
            "call": self._calls.key(turn.step, MERGE, turn.number, 0),
            "reflection": "\n\n".join(f"## Sample {number}\n{excerpt(text, EXCERPT)}" for number, text in analyses),
            "blamed": tuple(sample.episode.call for sample in samples),
        }
        return Refined(figures + Counter(rubrics_refined=1), merged, origin)

    def charge(self) -> None:
        """Charge the calls made so far, in an order that does not depend on which came first."""
        for role, _, _, reply in sorted(self._answered, key=lambda one: one[:3]):
            self._calls.charge(role, [reply])
        for step, index in sorted(self._rescored):
            assert self._scorer is not None  # noqa: S101 - what has scored them
            self._scorer.charge(step, index, RESCORE)
        self._answered.clear()
        self._rescored.clear()

    async def _look(self, turn: Turn, number: int, sample: Sample) -> _Looked:
        """Analyse one sample, and write a rubric in view of it."""
        settings, figures, analysis = self._settings, Counter[str](), ""
        index = turn.number * settings.refine_samples + number
        if settings.meta_analysis:
            reply = await self._ask(ANALYSE, turn, index, self._prompts.analysis(sample), settings.analysis_words)
            try:
                analysis = read_analysis(reply)
            # Not refined on without it: that would mix the arms of the ablation (appendix F).
            except ValueError as error:
                return _Looked(Counter({f"analyses_refused_{reason(error)}": 1}))
            figures["analyses_cut_off"] += reply.completions[0].truncated
            if settings.flag_above is not None:
                own = read_own_score(analysis, sample.rubric.maximum)
                figures["own_scores_unread"] += own is None
                share = sample.episode.reward.parts["raw"] / points(sample)
                # A score that cannot be read flags its sample: nothing says that the rubric is right about it.
                if own is not None and abs(own / sample.rubric.maximum - share) <= settings.flag_above:
                    return _Looked(figures + Counter(samples_not_flagged=1), analysis)
        refining = self._prompts.refinement(sample, analysis)
        try:
            written = await self._write(REFINE, turn, index, refining, settings.refinement_words)
        except ValueError as error:
            return _Looked(figures + Counter({f"refinements_refused_{reason(error)}": 1}), analysis)
        return _Looked(figures + written.left_out, analysis, written.rubric)

    async def _fault(self, turn: Turn, rubric: Rubric, merged: Rubric, samples: Sequence[Sample]) -> str:
        """Return why a rubric that could be read does not take the place of the present one; "": it does."""
        if merged.text == rubric.text:
            return "unchanged"
        if self._settings.keep_rubric != "spread" or self._scorer is None:
            return ""
        async with asyncio.TaskGroup() as together:
            scoring = [
                together.create_task(self._scores(turn, side, by, samples)) for side, by in enumerate((rubric, merged))
            ]
        before, after = (one.result() for one in scoring)
        if len(after) < min(2, len(before)):
            return "unscorable"
        return "narrower" if spread(after) < spread(before) else ""

    async def _scores(self, turn: Turn, side: int, rubric: Rubric, samples: Sequence[Sample]) -> list[float]:
        """Return the normalised scores that samples are given by a rubric, of those that are given one."""
        assert self._scorer is not None  # noqa: S101 - asked for only with one
        first = (2 * turn.number + side) * self._settings.refine_samples
        asked = [(first + number, one.episode) for number, one in enumerate(samples)]
        self._rescored.update((turn.step, at) for at, _ in asked)
        rewards = await asyncio.gather(
            *(self._scorer.rescore(turn.step, at, one.asked.problem, one.response, rubric) for at, one in asked)
        )
        return [reward.parts["normalised"] for reward in rewards if "normalised" in reward.parts]

    async def _write(self, role: str, turn: Turn, index: int, prompt: Prompt, words: int) -> Written:
        """Have a rubric written. Raises ValueError("kind: what is wrong") where none can be read."""
        settings = self._settings

        def ask(asked: Prompt, most: int, attempt: int) -> Awaitable[Reply]:
            return self._ask(role, turn, index, asked, most, attempt)

        if settings.refine_by == "item":
            return await write_by_item(ask, self._prompts, prompt, settings.item_words, settings.most_items)
        return await write_whole(ask, prompt, words)

    async def _ask(self, role: str, turn: Turn, index: int, prompt: Prompt, words: int, attempt: int = 0) -> Reply:
        sampling = self._settings.meta_sampling(words)
        reply = await self._calls.ask(prompt, sampling, role=role, step=turn.step, index=index, attempt=attempt)
        self._answered.append((role, index, attempt, reply))
        return reply


def spread(scores: Sequence[float]) -> float:
    """Return the standard deviation of normalised scores; 0 of none."""
    return float(np.std(scores)) if scores else 0.0
