"""Refinement of a rubric by a meta reward model: analysis, refinement, merging (MPO, section 2.3 and appendix C).

Whatever the model writes is data: an unusable reply is counted by its reason, and the present rubric stays.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from msgspec.structs import replace

from evorun.methods.mpo.meta_prompts import (
    MetaPrompts,
    Sample,
    answer_text,
    read_analysis,
    read_count,
    read_item,
    read_own_score,
    read_refinement,
)
from evorun.methods.mpo.refinement_settings import ANALYSE, MERGE, REFINE, RefinementSettings
from evorun.methods.mpo.rubric_trials import Answered, Trial
from evorun.models.base import Message, Reply
from evorun.rollouts.calls import Calls
from evorun.rollouts.episodes import Episode
from evorun.rollouts.monitors import measure
from evorun.rollouts.rubric_rewards import RESCORE, RubricRewards, fault_kind, normalised_score
from evorun.tasks.base import Prompt
from evorun.tasks.excerpts import excerpt
from evorun.tasks.rubric_json import tagged_rubric
from evorun.tasks.rubrics import Rubric, read_rubric

T = TypeVar("T")

EXCERPT = 1_000
"""Characters of each analysis in a rubric's record (ours); the journal has the whole."""


@dataclass(frozen=True)
class _CallKey:
    """The part of the journal key that the calls for one text share."""

    role: str
    step: int
    index: int


class Validation(NamedTuple):
    """The data that validate a new rubric."""

    held_out: Sequence[Answered]
    """Responses that no refinement has seen."""
    exploits: Sequence[Answered]
    """Responses that deserve no points."""


class Refined(NamedTuple):
    """The outcome of a refinement."""

    figures: Counter[str]
    rubric: Rubric | None = None
    """None: the present rubric stays."""
    origin: Mapping[str, Any] = {}
    """Fields of the rubric as a candidate."""


class _SampleResult(NamedTuple):
    """The outcome of analysing and refining on one sample, or on several together."""

    figures: Counter[str]
    analysis: str = ""
    rubric: Rubric | None = None
    """None where none was asked for or could be read."""
    call: str = ""
    """Key of the call that wrote the rubric."""


class Written(NamedTuple):
    """The outcome of asking for a rubric."""

    rubric: Rubric | None
    """None: none could be read."""
    figures: Counter[str]
    """Counts of retried replies and of criteria left out, by kind of fault."""
    refused: str = ""
    """The kind of the last fault, where none could be read."""
    call: int = 0
    """Number of the call that wrote the rubric; with separate items, of the call that gave their count."""


class MetaRewardModel:
    """Rewrites rubrics in view of the episodes that they scored."""

    def __init__(self, calls: Calls, prompts: MetaPrompts, settings: RefinementSettings, scorer: RubricRewards) -> None:
        self._calls = calls
        self._prompts = prompts
        self._settings = settings
        self._scorer = scorer
        self._trials: list[Trial] = []
        self._uncharged: list[tuple[str, int, int, Reply]] = []
        """Calls that have not been charged yet: role, index, attempt and reply."""

    @property
    def max_calls(self) -> int:
        """Maximum model calls of a refinement."""
        settings, merged = self._settings, self._settings.refine_on == "each"
        refined = (settings.refine_samples if merged else 1) * (settings.meta_analysis + settings.calls_per_rubric)
        return refined + merged * settings.calls_per_rubric + settings.max_scores * self._scorer.calls_per_score

    async def refine(
        self, step: int, number: int, rubric: Rubric, samples: Sequence[Sample], validation: Validation | None = None
    ) -> Refined:
        """Return a rubric to replace the present one, made from samples that it scored.

        number: index among the refinements of a step. validation: the data that validate a new rubric, with
        `keep_rubric=validated`.
        """
        # Meta-analysis and meta-refinement: each sample goes through both independently of the others.
        async with asyncio.TaskGroup() as together:
            groups = [[sample] for sample in samples] if self._settings.refine_on == "each" else [samples]
            numbered = enumerate(groups, number * self._settings.refine_samples)
            tasks = [together.create_task(self._refine_on(step, index, group)) for index, group in numbered]
        results = [task.result() for task in tasks]
        figures = sum((result.figures for result in results), Counter(refinement_samples=len(samples)))
        proposed = {result.call: result.rubric for result in results if result.rubric is not None}
        if not proposed:
            return Refined(figures + Counter(rubrics_refused_no_proposals=1))
        # Meta-merging: a rubric merged from all refinements replaces the present one, unless a check refuses it.
        trial = Trial(self._scorer, self._settings, step, number)
        self._trials.append(trial)
        if self._settings.refine_on == "all":
            [(call, new)] = proposed.items()
            fault = await self._find_fault(trial, rubric, new, samples, validation)
        else:
            merging = self._prompts.merging(rubric, list(proposed.values()))
            written = await self._write(_CallKey(MERGE, step, number), merging, self._settings.merging_words)
            figures += written.figures
            call, merged = self._calls.key(step, MERGE, number, written.call), written.rubric
            fault = written.refused
            if merged is not None:
                fault = await self._find_fault(trial, rubric, merged, samples, validation)
            if merged is None or fault not in ("", "unchanged"):
                # Otherwise all these calls would be wasted, and the present rubric would stay for another period.
                call, new = list(proposed.items())[await trial.widest(list(proposed.values()), answered(samples))]
                merge_fault, fault = fault, await self._find_fault(trial, rubric, new, samples, validation)
                figures[f"rubrics_from_proposal_{merge_fault}"] += not fault
            else:
                new = merged
        if fault:
            return Refined(figures + Counter({f"rubrics_refused_{fault}": 1}))
        analyses = [(number, result.analysis) for number, result in enumerate(results, 1) if result.analysis]
        title = "Sample {}".format if self._settings.refine_on == "each" else "All samples".format
        origin = {
            "call": call,
            "reflection": "\n\n".join(f"## {title(number)}\n{excerpt(text, EXCERPT)}" for number, text in analyses),
            "blamed": tuple(sample.episode.call for sample in samples),
        }
        return Refined(figures + Counter(rubrics_refined=1), new, origin)

    def charge(self) -> None:
        """Charge the calls made so far, in an order that does not depend on their timing."""
        for role, _, _, reply in sorted(self._uncharged, key=lambda call: call[:3]):
            self._calls.charge(role, [reply])
        self._uncharged.clear()
        for step, index in sorted(scored for trial in self._trials for scored in trial.scored):
            self._scorer.charge(step, index, RESCORE)
        self._trials.clear()

    async def _refine_on(self, step: int, index: int, samples: Sequence[Sample]) -> _SampleResult:
        """Analyse samples together and write a rubric in view of them. index: of these samples within the step."""
        settings, figures, analysis = self._settings, Counter[str](), ""
        if settings.meta_analysis:
            asked = self._prompts.analysis(samples)
            reply = await self._ask(_CallKey(ANALYSE, step, index), asked, settings.analysis_words)
            try:
                analysis = read_analysis(reply)
            # Refining without an analysis would mix the arms of the ablation (appendix F).
            except ValueError as error:
                return _SampleResult(Counter({f"analyses_refused_{fault_kind(error)}": 1}))
            figures["analyses_cut_off"] += reply.completions[0].truncated
            if settings.flag_above is not None:
                [sample] = samples
                own_score = read_own_score(analysis, sample.rubric.maximum)
                figures["own_scores_unread"] += own_score is None
                parts = sample.episode.reward.parts
                share = parts["raw"] / parts["maximum"]  # below the rubric's maximum where criteria were left out
                # An unreadable score flags its sample: nothing confirms the rubric's score.
                if own_score is not None and abs(own_score / sample.rubric.maximum - share) <= settings.flag_above:
                    return _SampleResult(figures + Counter(samples_not_flagged=1), analysis)
        refining = self._prompts.refinement(samples, analysis)
        written = await self._write(_CallKey(REFINE, step, index), refining, settings.refinement_words)
        figures += written.figures
        if written.rubric is None:
            figures[f"refinements_refused_{written.refused}"] += 1
        return _SampleResult(figures, analysis, written.rubric, self._calls.key(step, REFINE, index, written.call))

    async def _find_fault(
        self, trial: Trial, old: Rubric, new: Rubric, samples: Sequence[Sample], validation: Validation | None
    ) -> str:
        """Return why a new rubric must not replace the present one; "" if it may."""
        if new.text == old.text:
            return "unchanged"
        if self._settings.keep_rubric == "spread":
            return await trial.fault_of_spread(old, new, answered(samples))
        return await trial.fault_of_validation(old, new, *validation) if validation is not None else ""

    async def _write(self, place: _CallKey, prompt: Prompt, words: int) -> Written:
        """Have a rubric written: in one reply of at most `words` words, or criterion by criterion."""
        if self._settings.refine_by == "item":
            return await self._write_by_item(place, prompt)
        wrap, figures = str if prompt.json_schema is None else tagged_rubric, Counter[str]()
        call, _, rubric, fault = await self._ask_until_read(
            place, prompt, words, 0, lambda reply: read_refinement(reply, words, wrap), figures
        )
        return Written(rubric, figures, fault, call)

    async def _write_by_item(self, place: _CallKey, prompt: Prompt) -> Written:
        """Ask for the number of criteria, then for one after the other, in one conversation.

        MPO's released code does the same. An unreadable or repeated criterion is left out.
        """
        words, max_items = self._settings.item_words, self._settings.most_items
        items, figures, rubric = list[str](), Counter[str](), None

        def read_next(reply: Reply) -> str:
            item = read_item(reply, words)
            read_rubric("\n".join(["<rubric>", *items, item, "</rubric>"]))
            return item

        call, reply, count, fault = await self._ask_until_read(
            place, prompt, max_items, 0, lambda reply: read_count(answer_text(reply), max_items), figures
        )
        if count is None:
            return Written(None, figures, fault)
        for number in range(1, count + 1):
            last_reply = Message(role="assistant", content=answer_text(reply) or "(nothing)")
            messages = (*prompt.messages, last_reply, *self._prompts.item(number, count).messages)
            prompt = replace(prompt, messages=messages, hints={**prompt.hints, "criterion": number})
            _, reply, item, fault = await self._ask_until_read(place, prompt, words, number, read_next, figures)
            if item is not None:
                items.append(item)
                continue
            figures[f"items_refused_{fault}"] += 1
            if reply.error is not None:  # the conversation no longer fits the context
                break
        if items:
            rubric = read_rubric("\n".join(["<rubric>", *items, "</rubric>"]))
        return Written(rubric, figures, "" if items else "empty", call)

    async def _ask_until_read(
        self,
        place: _CallKey,
        prompt: Prompt,
        words: int,
        part: int,
        read: Callable[[Reply], T],
        figures: Counter[str],
    ) -> tuple[int, Reply, T | None, str]:
        """Ask until a reply can be read; return the call's number, the reply, and what was read.

        Where no reply can be read, return None and the kind of the last fault. part: index within a rubric that is
        written in several replies. figures: count the retried replies; the retry tells the model what was wrong.
        """
        request, attempts = prompt, self._settings.refine_attempts
        for attempt in range(attempts):
            number = part * attempts + attempt
            reply = await self._ask(place, request, words, number)
            try:
                return number, reply, read(reply), ""
            except ValueError as error:
                # The engine would refuse the request again, even more so with a fault added to it.
                if reply.error is not None or attempt == attempts - 1:
                    return number, reply, None, fault_kind(error)
                figures[f"{'merges' if place.role == MERGE else 'refinements'}_retried_{fault_kind(error)}"] += 1
                # Only the reason: with the faulty reply, a full context would overflow.
                request = self._prompts.with_fault(prompt, str(error).partition(": ")[2])
        raise AssertionError("method.refine_attempts is at least 1")

    async def _ask(self, place: _CallKey, prompt: Prompt, words: int, attempt: int = 0) -> Reply:
        sampling = self._settings.meta_sampling(words, place.role)
        reply = await self._calls.ask(prompt, sampling, **vars(place), attempt=attempt)
        self._uncharged.append((place.role, place.index, attempt, reply))
        return reply


def answered(samples: Sequence[Sample]) -> list[Answered]:
    """Return the problems and responses of samples, without scores."""
    return [Answered(sample.episode.asked.problem, sample.episode.response) for sample in samples]


def choose(
    samples: Sequence[Sample], count: int, how: str, rng: np.random.Generator, script: str | None = None
) -> list[Sample]:
    """Return `count` of the samples, or all if there are fewer, in their order.

    how: random; thirds, equally many at random from each third by score; informative, see `_worths`; or boundary, those
    with scores nearest to the middle of the scale. script: see `evorun.rollouts.monitors.measure`.
    """
    shuffled = rng.permutation(len(samples)).tolist()
    if how == "random":
        return [samples[index] for index in sorted(shuffled[:count])]
    if how == "thirds":
        by_score = sorted(shuffled, key=lambda index: normalised_score(samples[index].episode))
        thirds = [third.tolist() for third in np.array_split(by_score, 3)]
        return [samples[index] for third in thirds for index in rng.permutation(third)[: count // 3].tolist()]
    worths = [
        _worths(sample.episode, script) if how == "informative" else (-abs(normalised_score(sample.episode) - 0.5),)
        for sample in samples
    ]
    # Sorting is stable, so chance decides among equals.
    rankings = [sorted(shuffled, key=lambda index: -worths[index][at]) for at in range(len(worths[0]) if worths else 0)]
    turns = dict.fromkeys(index for places in zip(*rankings, strict=True) for index in places)
    return [samples[index] for index in sorted(list(turns)[:count])]


def _worths(episode: Episode, script: str | None) -> tuple[float, ...]:
    """Return independent criteria for choosing an episode as a sample, higher being better.

    They are a high score, a low score, points for a suspected exploit, many words, and few words.
    """
    score = normalised_score(episode)
    monitors = measure(episode.response.text, episode.replies[-1].completions[0].finish_reason, script)
    suspect = max(monitors[name] for name in ("foreign_script", "title_only", "repeated", "missing_end"))
    return score, -score, score * suspect, monitors["words"], -monitors["words"]
