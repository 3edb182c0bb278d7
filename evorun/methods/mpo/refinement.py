"""Refinement of a rubric by a meta reward model: analysis, refinement, merging (MPO, section 2.3 and appendix C).

All that the model writes is data: what cannot be used is counted by its reason, and the present rubric stays.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from msgspec.structs import replace

from evorun.methods.learning.parts import normalised_score
from evorun.methods.mpo.meta_prompts import (
    MetaPrompts,
    Sample,
    points,
    read_analysis,
    read_count,
    read_item,
    read_own_score,
    read_refinement,
    reason,
    said,
)
from evorun.methods.mpo.refinement_settings import ANALYSE, MERGE, REFINE, RefinementSettings
from evorun.methods.mpo.rubric_trials import Answered, Trial, max_scores
from evorun.models.base import Message, Reply
from evorun.rollouts.calls import Calls
from evorun.rollouts.episodes import Episode
from evorun.rollouts.monitors import measure
from evorun.rollouts.rubric_rewards import RESCORE, RubricRewards
from evorun.tasks.base import Prompt
from evorun.tasks.excerpts import excerpt
from evorun.tasks.rubric_json import tagged_rubric
from evorun.tasks.rubrics import Rubric, read_rubric

T = TypeVar("T")

EXCERPT = 1_000
"""Characters of each analysis in a rubric's record. `ours`: the journal has the whole of it."""


class RefinementKey(NamedTuple):
    """The place of a refinement in the run, which tells its calls from all others."""

    step: int
    number: int
    """Of several refinements at one step."""


@dataclass(frozen=True)
class _Place:
    """What tells the calls that write one text from all others."""

    role: str
    step: int
    index: int


class Checks(NamedTuple):
    """What a new rubric is validated on."""

    held_out: Sequence[Answered]
    """Responses that no refinement has seen."""
    exploits: Sequence[Answered]
    """Responses that deserve nothing."""


class Refined(NamedTuple):
    """The outcome of a refinement."""

    figures: Counter[str]
    rubric: Rubric | None = None
    """None: the present one stays."""
    origin: Mapping[str, Any] = {}
    """Fields of the rubric as a candidate."""


class _Looked(NamedTuple):
    """The outcome of looking at one sample, or at several together."""

    figures: Counter[str]
    analysis: str = ""
    rubric: Rubric | None = None
    """None where none was asked for, or none could be read."""
    call: str = ""
    """Key of the call that wrote it."""


class Written(NamedTuple):
    """The outcome of asking for a rubric."""

    rubric: Rubric | None
    """None: none could be read."""
    refused: str = ""
    """The kind of the last fault, where none could be read."""
    retried: Mapping[str, int] = {}
    """Replies that were asked for again, by the kind of their fault."""
    items_refused: Mapping[str, int] = {}
    """Criteria that were left out, by the kind of their fault."""
    call: int = 0
    """Number of the call that brought the rubric; of one written by items, the call that brought their count."""


class _Unread(ValueError):
    """The last of the replies cannot be read."""

    def __init__(self, fault: str, reply: Reply) -> None:
        super().__init__(fault)
        self.reply = reply


class MetaRewardModel:
    """Rewrites rubrics in view of what they were used on."""

    def __init__(self, calls: Calls, prompts: MetaPrompts, settings: RefinementSettings, scorer: RubricRewards) -> None:
        self._calls = calls
        self._prompts = prompts
        self._settings = settings
        self._scorer = scorer
        self._trials: list[Trial] = []
        self._answered: list[tuple[str, int, int, Reply]] = []
        """Calls still to be charged: role, index, attempt and reply."""

    @property
    def most_calls(self) -> int:
        """Model calls that a refinement takes at most."""
        settings = self._settings
        written = settings.calls_per_rubric
        merged = settings.refine_on == "each"
        looks = settings.refine_samples if merged else 1
        scores = max_scores(settings) * self._scorer.calls_per_score
        return looks * (settings.meta_analysis + written) + merged * written + scores

    async def refine(
        self, turn: RefinementKey, rubric: Rubric, samples: Sequence[Sample], checks: Checks | None = None
    ) -> Refined:
        """Return a rubric to take the place of the present one, made from samples of what it led to.

        checks: what a new rubric is validated on, with `keep_rubric=validated`.
        """
        # Meta-analysis and meta-refinement: each sample goes through both by itself, since neither needs another one.
        async with asyncio.TaskGroup() as together:
            groups = [[one] for one in samples] if self._settings.refine_on == "each" else [samples]
            looking = [together.create_task(self._look(turn, number, group)) for number, group in enumerate(groups)]
        looked = [one.result() for one in looking]
        figures = sum((one.figures for one in looked), Counter(refinement_samples=len(samples)))
        proposed = {one.call: one.rubric for one in looked if one.rubric is not None}
        if not proposed:
            return Refined(figures + Counter(rubrics_refused_no_proposals=1))
        # Meta-merging: one rubric out of all refinements takes the place of the present one, unless a check refuses it.
        trial = Trial(self._scorer, self._settings, turn.step, turn.number)
        self._trials.append(trial)
        if self._settings.refine_on == "all":
            [(call, new)] = proposed.items()
            fault = await self._fault(trial, rubric, new, samples, checks)
        else:
            merging = self._prompts.merging(rubric, list(proposed.values()))
            written = await self._write(_Place(MERGE, turn.step, turn.number), merging, self._settings.merging_words)
            figures += counted(written, "merges")
            call, merged = self._calls.key(turn.step, MERGE, turn.number, written.call), written.rubric
            fault = written.refused if merged is None else await self._fault(trial, rubric, merged, samples, checks)
            if merged is None or fault not in ("", "unchanged"):
                # All that was paid for would be lost, and the present rubric stay as long again.
                call, new = list(proposed.items())[await trial.widest(list(proposed.values()), answered(samples))]
                instead, fault = fault, await self._fault(trial, rubric, new, samples, checks)
                figures[f"rubrics_from_proposal_{instead}"] += not fault
            else:
                new = merged
        if fault:
            return Refined(figures + Counter({f"rubrics_refused_{fault}": 1}))
        analyses = [(number, one.analysis) for number, one in enumerate(looked, 1) if one.analysis]
        title = "Sample {}".format if self._settings.refine_on == "each" else "All samples".format
        origin = {
            "call": call,
            "reflection": "\n\n".join(f"## {title(number)}\n{excerpt(text, EXCERPT)}" for number, text in analyses),
            "blamed": tuple(sample.episode.call for sample in samples),
        }
        return Refined(figures + Counter(rubrics_refined=1), new, origin)

    def charge(self) -> None:
        """Charge the calls made so far, in an order that does not depend on which came first."""
        for role, _, _, reply in sorted(self._answered, key=lambda one: one[:3]):
            self._calls.charge(role, [reply])
        self._answered.clear()
        for step, index in sorted(scored for trial in self._trials for scored in trial.scored):
            self._scorer.charge(step, index, RESCORE)
        self._trials.clear()

    async def _look(self, turn: RefinementKey, number: int, samples: Sequence[Sample]) -> _Looked:
        """Analyse samples together, and write a rubric in view of them. number: of these among a refinement's."""
        settings, figures, analysis = self._settings, Counter[str](), ""
        index = turn.number * settings.refine_samples + number
        if settings.meta_analysis:
            reply = await self._ask(
                _Place(ANALYSE, turn.step, index), self._prompts.analysis(samples), settings.analysis_words
            )
            try:
                analysis = read_analysis(reply)
            # Not refined on without it: that would mix the arms of the ablation (appendix F).
            except ValueError as error:
                return _Looked(Counter({f"analyses_refused_{reason(error)}": 1}))
            figures["analyses_cut_off"] += reply.completions[0].truncated
            if settings.flag_above is not None:
                [sample] = samples
                own = read_own_score(analysis, sample.rubric.maximum)
                figures["own_scores_unread"] += own is None
                share = sample.episode.reward.parts["raw"] / points(sample)
                # A score that cannot be read flags its sample: nothing says that the rubric is right about it.
                if own is not None and abs(own / sample.rubric.maximum - share) <= settings.flag_above:
                    return _Looked(figures + Counter(samples_not_flagged=1), analysis)
        refining = self._prompts.refinement(samples, analysis)
        written = await self._write(_Place(REFINE, turn.step, index), refining, settings.refinement_words)
        figures += counted(written, "refinements")
        if written.rubric is None:
            figures[f"refinements_refused_{written.refused}"] += 1
        return _Looked(figures, analysis, written.rubric, self._calls.key(turn.step, REFINE, index, written.call))

    async def _fault(
        self, trial: Trial, old: Rubric, new: Rubric, samples: Sequence[Sample], checks: Checks | None
    ) -> str:
        """Return why a rubric that could be read does not take the place of the present one; "": it does."""
        if new.text == old.text:
            return "unchanged"
        if self._settings.keep_rubric == "spread":
            return await trial.fault_of_spread(old, new, answered(samples))
        return await trial.fault_of_validation(old, new, *checks) if checks is not None else ""

    async def _write(self, place: _Place, prompt: Prompt, words: int) -> Written:
        """Have a rubric written, in one reply of so many words at most or criterion by criterion."""
        if self._settings.refine_by == "item":
            return await self._write_by_item(place, prompt)
        wrap, retried = str if prompt.json_schema is None else tagged_rubric, Counter[str]()
        try:
            call, _, rubric = await self._ask_until_read(
                place, prompt, words, 0, lambda reply: read_refinement(reply, words, wrap), retried
            )
        except ValueError as error:
            return Written(None, reason(error), retried)
        return Written(rubric, retried=retried, call=call)

    async def _write_by_item(self, place: _Place, prompt: Prompt) -> Written:
        """Ask how many criteria there are to be, and then for one after the other, in one conversation.

        As MPO's released code has it. A criterion that cannot be read, or that stands there already, is left out.
        """
        words, most = self._settings.item_words, self._settings.most_items
        items, retried, left_out, rubric = list[str](), Counter[str](), Counter[str](), None

        def read_next(reply: Reply) -> str:
            item = read_item(reply, words)
            read_rubric("\n".join(["<rubric>", *items, item, "</rubric>"]))
            return item

        try:
            call, reply, count = await self._ask_until_read(
                place, prompt, most, 0, lambda reply: read_count(said(reply), most), retried
            )
        except ValueError as error:
            return Written(None, reason(error), retried)
        for number in range(1, count + 1):
            heard = Message(role="assistant", content=said(reply) or "(nothing)")
            messages = (*prompt.messages, heard, *self._prompts.item(number, count).messages)
            prompt = replace(prompt, messages=messages, hints={**prompt.hints, "criterion": number})
            try:
                _, reply, item = await self._ask_until_read(place, prompt, words, number, read_next, retried)
                items.append(item)
            except _Unread as unread:
                left_out[reason(unread)] += 1
                reply = unread.reply
                if reply.error is not None:  # the conversation has outgrown the context
                    break
        if items:
            rubric = read_rubric("\n".join(["<rubric>", *items, "</rubric>"]))
        return Written(rubric, "" if items else "empty", retried, left_out, call)

    async def _ask_until_read(
        self,
        place: _Place,
        prompt: Prompt,
        words: int,
        part: int,
        read: Callable[[Reply], T],
        retried: Counter[str],
    ) -> tuple[int, Reply, T]:
        """Ask until a reply can be read; return the call's number, the reply and what was read.

        part: of a rubric that is written in several replies. retried: counts those that were asked for again; the model
        is told what was wrong. Raises _Unread with the last fault.
        """
        asked, attempts = prompt, self._settings.refine_attempts
        for attempt in range(attempts):
            number = part * attempts + attempt
            reply = await self._ask(place, asked, words, number)
            try:
                return number, reply, read(reply)
            except ValueError as error:
                # What the engine refuses, it refuses again, and all the more with a fault added to it.
                if reply.error is not None or attempt == attempts - 1:
                    raise _Unread(str(error), reply) from None
                retried[reason(error)] += 1
                # The reason alone: with the reply that it speaks of, a full context would overflow.
                asked = self._prompts.with_fault(prompt, str(error).partition(": ")[2])
        raise AssertionError("method.refine_attempts is at least 1")

    async def _ask(self, place: _Place, prompt: Prompt, words: int, attempt: int = 0) -> Reply:
        sampling = self._settings.meta_sampling(words, place.role)
        reply = await self._calls.ask(prompt, sampling, **vars(place), attempt=attempt)
        self._answered.append((place.role, place.index, attempt, reply))
        return reply


def counted(written: Written, what: str) -> Counter[str]:
    """Return figures of a rubric's writing: replies that were asked for again, and criteria left out, by reason."""
    retried = {f"{what}_retried_{kind}": count for kind, count in written.retried.items()}
    return Counter(retried | {f"items_refused_{kind}": count for kind, count in written.items_refused.items()})


def answered(samples: Sequence[Sample]) -> list[Answered]:
    """Return the problems and responses of samples."""
    return [Answered(one.episode.asked.problem, one.episode.response) for one in samples]


def choose(
    samples: Sequence[Sample], count: int, how: str, rng: np.random.Generator, script: str | None = None
) -> list[Sample]:
    """Return `count` of the samples, or all where there are no more, in their order.

    how: random; thirds: as many at random from each third by score; informative; or
    boundary: those whose scores are the nearest to the middle of the scale. script: see
    `evorun.rollouts.monitors.measure`.
    """
    shuffled = rng.permutation(len(samples)).tolist()
    if how == "random":
        return [samples[index] for index in sorted(shuffled[:count])]
    if how == "thirds":
        by_score = sorted(shuffled, key=lambda index: normalised_score(samples[index].episode))
        thirds = [third.tolist() for third in np.array_split(by_score, 3)]
        return [samples[index] for third in thirds for index in rng.permutation(third)[: count // 3].tolist()]
    worths = [_worths(one.episode, script) if how == "informative" else (_nearness(one.episode),) for one in samples]
    # Sorting is stable, so that chance decides among equals.
    rankings = [sorted(shuffled, key=lambda index: -worths[index][at]) for at in range(len(worths[0]) if worths else 0)]
    turns = dict.fromkeys(index for places in zip(*rankings, strict=True) for index in places)
    return [samples[index] for index in sorted(list(turns)[:count])]


def _worths(episode: Episode, script: str | None) -> tuple[float, ...]:
    """Return what makes an episode worth a look, each by itself.

    A high score; a low one; points for what looks like an exploit; many words, and few.
    """
    score = normalised_score(episode)
    monitors = measure(episode.response.text, episode.replies[-1].completions[0].finish_reason, script)
    suspect = max(monitors[name] for name in ("foreign_script", "title_only", "repeated", "missing_end"))
    return score, -score, score * suspect, monitors["words"], -monitors["words"]


def _nearness(episode: Episode) -> float:
    return -abs(normalised_score(episode) - 0.5)
