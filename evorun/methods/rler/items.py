"""Rewards by weighted criteria of each problem: persistent ones and those that a model writes from its responses.

RLER (DR Tulu, arXiv 2511.19399): once per step and problem, a model sees the problem's responses and writes criteria
that tell them apart. Each criterion is judged by itself, from 0 to 2, and halved. A response's reward is the sum of
judgments times weights, divided by the sum of the positive weights, or by 1 where that is less. Criteria without spread
become inactive, and of the others those with the largest spread stay. Rubrics as rewards (arXiv 2507.17746) is the same
with persistent criteria alone.

A judgment that cannot be read is counted and left out of its response's reward; it is never a 0.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, NamedTuple, TypeVar

import msgspec

from evorun.methods.context import RunContext
from evorun.methods.learning.parts import Batch, RewardSource
from evorun.methods.rler.settings import ItemSettings
from evorun.models.base import Message, Reply, Sampling
from evorun.rollouts.episodes import Episode
from evorun.rollouts.rewards import Reward
from evorun.rollouts.rubric_rewards import SCORE, fault_kind
from evorun.runs.candidates import Candidate, Response
from evorun.tasks.base import Problem, Prompt
from evorun.tasks.excerpts import excerpt
from evorun.tasks.json_text import replace_lone_surrogates
from evorun.tasks.prompt_files import PromptFiles
from evorun.tasks.rubric_items import HIGHEST, WeightedItem, items_schema, read_written_items, refuse_doubled
from evorun.tasks.rubric_json import tagged_scores
from evorun.tasks.rubric_scores import read_scores
from evorun.tasks.rubrics import MAX_ITEMS
from evorun.tasks.tags import escape_tags
from evorun.tasks.thinking import without_thinking

T = TypeVar("T")

WRITE = "write_items"
"""Role of the calls that write criteria."""
PERSISTENT, ADAPTIVE = "persistent", "adaptive"


class _Fault(NamedTuple):
    """No attempt gave a readable reply."""

    kind: str


class Item(msgspec.Struct):
    """A criterion of a problem, and its latest judgments."""

    id: str
    item: WeightedItem
    origin: str
    """persistent or adaptive."""
    step: int
    """The step that it was written in; 0 for persistent ones."""
    active: bool = True
    mean: float | None = None
    """Mean of its latest judgments, in [0, 1]; `spread`: their standard deviation."""
    spread: float | None = None


class Judged(NamedTuple):
    """A response's judgments."""

    reward: Reward
    scores: Mapping[str, float]
    """In [0, 1], by the criterion's id; without those that could not be read."""


class ItemReward(RewardSource):
    """The source of such rewards, and the criteria of all problems; implements `Rewards` as well."""

    def __init__(self, ctx: RunContext, settings: ItemSettings, group: int, overflow_penalty: float) -> None:
        """group: episodes of a problem in a step. Raises ConfigError for an unusable prompt file of the user."""
        self.rewards = self
        self.overflow = Reward(-overflow_penalty) if overflow_penalty else None
        self._calls, self._task, self._settings, self._group = ctx.shared, ctx.training.task, settings, group
        self._prompts = ItemPrompts(self._task, settings)
        self._items: dict[str, list[Item]] = {}
        self._owed: dict[tuple[int, int], list[tuple[str, list[Reply]]]] = defaultdict(list)
        """Replies not yet charged, with their role, by step and the index of the episode that pays."""
        self._figures = Counter[str]()
        self._most_persistent = max((len(self.find(problem)) for problem in ctx.training.problems), default=0)

    # --- what the loop asks ---

    async def reward(self, step: int, index: int, problem: Problem, response: Response) -> Reward:
        """Return no reward yet: `complete` judges a problem's responses together."""
        return Reward(None)

    def charge(self, step: int, index: int) -> None:
        for role, replies in self._owed.pop((step, index), ()):
            self._calls.charge(role, replies)

    def max_calls(self, episodes: int, step: int) -> int:
        settings = self._settings
        adaptive = settings.max_active + settings.max_new if settings.adaptive else 0
        written = settings.adaptive * (episodes // self._group) * settings.write_attempts
        return written + episodes * (self._most_persistent + adaptive) * settings.score_attempts

    @property
    def candidates(self) -> Sequence[Candidate]:
        """All criteria of the problems seen so far; active ones are survivors."""
        return [
            Candidate(
                id=one.id,
                kind="rubric",
                generation=one.step,
                operator=one.origin,
                text=f"{one.item.title}: {one.item.description} ({one.item.weight:+g})",
                answer=None,
                mean=one.mean,
                sd=one.spread,
                survivor=one.active,
            )
            for items in self._items.values()
            for one in items
        ]

    async def complete(self, step: int, episodes: Sequence[Episode]) -> Sequence[Episode]:
        """Write and judge the criteria of each problem; return the episodes with their rewards."""
        self._figures.clear()
        groups: dict[str, list[Sequence[Episode]]] = {}
        for first in range(0, len(episodes), self._group):
            group = episodes[first : first + self._group]
            groups.setdefault(group[0].asked.problem.id, []).append(group)

        async def in_turn(of_problem: Sequence[Sequence[Episode]]) -> dict[int, Reward]:
            rewards: dict[int, Reward] = {}
            for group in of_problem:  # a small split may draw a problem twice
                rewards |= await self._judge_group(step, group)
            return rewards

        async with asyncio.TaskGroup() as together:
            judging = [together.create_task(in_turn(of_problem)) for of_problem in groups.values()]
        rewards = {number: reward for task in judging for number, reward in task.result().items()}
        return [episode._replace(reward=rewards.get(episode.number, episode.reward)) for episode in episodes]

    async def evolve(self, batch: Batch, figures: Mapping[str, float]) -> dict[str, float]:
        """Return the figures of the step's criteria, which `complete` has changed."""
        seen = {episode.asked.problem.id for episode in batch.episodes}
        adaptive = [one for problem in seen for one in self._items[problem] if one.origin == ADAPTIVE]
        active = sum(one.active for one in adaptive)
        counts = {"items_active": active, "items_inactive": len(adaptive) - active, **self._figures}
        return {name: float(count) for name, count in sorted(counts.items())}

    def save(self, ctx: RunContext) -> None:
        saved = {problem: msgspec.to_builtins(items) for problem, items in self._items.items() if items}
        ctx.save_artifact("rubric_items.json", saved)

    # --- a problem's criteria ---

    def find(self, problem: Problem) -> list[Item]:
        """Return all criteria of a problem, beginning with those of its data."""
        if problem.id not in self._items:
            given = self._task.rubric_items(problem) if self._settings.persistent else ()
            self._items[problem.id] = [
                Item(f"{problem.id}#{number}", item, PERSISTENT, 0) for number, item in enumerate(given)
            ]
        return self._items[problem.id]

    async def _judge_group(self, step: int, group: Sequence[Episode]) -> dict[int, Reward]:
        problem = group[0].asked.problem
        items = self.find(problem)
        # What was refused, or cut off under a penalty, is not judged.
        answered = [episode for episode in group if episode.replies[-1].error is None and episode.reward.value is None]
        if self._settings.adaptive and len(answered) > 1:
            written = await self._write(step, group[0].number, answered, [one.item for one in items if one.active])
            items += [
                Item(f"{problem.id}#{number}", item, ADAPTIVE, step) for number, item in enumerate(written, len(items))
            ]
        used = [one for one in items if one.active]
        async with asyncio.TaskGroup() as together:
            judging = [together.create_task(self._judge(step, episode, used)) for episode in answered]
        judged = [task.result() for task in judging]
        for one in used:
            scores = [one_judged.scores[one.id] for one_judged in judged if one.id in one_judged.scores]
            one.mean, one.spread = (fmean(scores), pstdev(scores)) if scores else (None, None)
        self._deactivate([one for one in used if one.origin == ADAPTIVE])
        return {episode.number: one_judged.reward for episode, one_judged in zip(answered, judged, strict=True)}

    def _deactivate(self, adaptive: Sequence[Item]) -> None:
        """Keep the criteria with the largest spread; one of which nothing could be read has none yet, and stays."""
        for one in adaptive:
            one.active = one.spread != 0
        spread = [one for one in adaptive if one.active and one.spread is not None]
        for one in sorted(spread, key=lambda one: -(one.spread or 0.0))[self._settings.max_active :]:
            one.active = False

    async def _write(
        self, step: int, index: int, answered: Sequence[Episode], known: Sequence[WeightedItem]
    ) -> tuple[WeightedItem, ...]:
        """Ask for new criteria; return none where no reply can be read."""
        prompt = self._prompts.write(answered, known)

        def read(text: str) -> tuple[WeightedItem, ...]:
            written = read_written_items(without_thinking(text), self._settings.max_new)
            refuse_doubled([*known, *written])
            return written

        settings = self._settings
        found = await self._ask(
            (WRITE, step, index), index, prompt, settings.write_sampling, read, settings.write_attempts
        )
        if isinstance(found, _Fault):
            self._figures[f"items_unread_{found.kind}"] += 1
            return ()
        self._figures["items_written"] += len(found)
        return found

    async def _judge(self, step: int, episode: Episode, items: Sequence[Item]) -> Judged:
        """Judge a response by each criterion."""
        settings = self._settings

        async def ask(place: int, one: Item) -> float | _Fault:
            rubric = one.item.rubric
            [item] = rubric.items
            prompt = self._task.scoring_prompt(
                episode.asked.problem, episode.response, rubric, item, as_json=settings.reward_json
            )

            def read(text: str) -> float:
                tagged = tagged_scores(without_thinking(text), rubric, item) if settings.reward_json else text
                return read_scores(tagged, rubric, item).total / HIGHEST

            call = (SCORE, step, episode.number * MAX_ITEMS + place)
            return await self._ask(
                call, episode.number, prompt, settings.reward_sampling, read, settings.score_attempts
            )

        async with asyncio.TaskGroup() as together:
            asking = [together.create_task(ask(place, one)) for place, one in enumerate(items)]
        found = {one.id: task.result() for one, task in zip(items, asking, strict=True)}
        scores = {name: score for name, score in found.items() if not isinstance(score, _Fault)}
        faults = [score.kind for score in found.values() if isinstance(score, _Fault)]
        weights = {one.id: one.item.weight for one in items}
        if not scores:
            return Judged(Reward(None, unscored=faults[0] if faults else "no_items"), scores)
        most = max(sum(weights[name] for name in scores if weights[name] > 0), 1.0)
        value = sum(weights[name] * score for name, score in scores.items()) / most
        return Judged(Reward(value, {"items": float(len(items)), "unread_items": float(len(faults))}), scores)

    async def _ask(
        self,
        call: tuple[str, int, int],
        payer: int,
        prompt: Prompt,
        sampling: Sampling,
        read: Callable[[str], T],
        attempts: int,
    ) -> T | _Fault:
        """Ask until a reply can be read. call: role, step and index. payer: index of the episode that pays."""
        role, step, index = call
        owed: list[Reply] = []
        self._owed[step, payer].append((role, owed))
        fault = _Fault("")
        for attempt in range(attempts):
            reply = await self._calls.ask(prompt, sampling, role=role, step=step, index=index, attempt=attempt)
            owed.append(reply)
            if reply.error is not None:
                return _Fault("refused")
            try:
                if reply.completions[0].truncated:
                    raise ValueError("cut_off: the reply ran out of tokens")
                return read(replace_lone_surrogates(reply.completions[0].text))
            except ValueError as error:
                fault = _Fault(fault_kind(error))
        return fault


class ItemPrompts:
    """The prompt that asks for criteria, from a file."""

    def __init__(self, task: Any, settings: ItemSettings) -> None:
        """Raises ConfigError naming an unusable file of the user."""
        self._task, self._settings = task, settings
        self._files = PromptFiles([Path(__file__).parent / "prompts"], settings.item_prompts, key="method.item_prompts")

    def write(self, answered: Sequence[Episode], known: Sequence[WeightedItem]) -> Prompt:
        """Ask for criteria that tell these responses apart."""
        asked = "\n\n".join(message["content"] for message in answered[0].asked.prompt.messages)
        text = self._files.render(
            "items",
            task_description=self._task.task_description(),
            prompt=self._excerpt(asked),
            responses=[self._excerpt(episode.response.text) for episode in answered],
            items=[msgspec.structs.asdict(item) for item in known],
            most=self._settings.max_new,
        )
        message = Message(role="user", content=text)
        schema = items_schema(self._settings.max_new) if self._settings.items_json else None
        return Prompt(messages=(message,), json_schema=schema, hints={"role": "items"})

    def _excerpt(self, text: str) -> str:
        # A policy's text must not end its section of the prompt.
        return escape_tags(excerpt(text, self._settings.shown_chars))
