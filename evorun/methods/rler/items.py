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
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, NamedTuple

import msgspec

from evorun.methods.context import RunContext
from evorun.methods.learning.parts import Batch, RewardSource
from evorun.methods.rler.settings import ItemSettings
from evorun.models.base import Message, Reply
from evorun.rollouts.episodes import Episode
from evorun.rollouts.item_scores import ask_for_score, read_item_score, weigh_scores
from evorun.rollouts.rewards import Reward
from evorun.rollouts.rubric_rewards import SCORE, Unread, ask_until_read
from evorun.runs.candidates import Candidate, Response
from evorun.tasks.base import Problem, Prompt
from evorun.tasks.excerpts import excerpt
from evorun.tasks.prompt_files import PromptFiles
from evorun.tasks.rubric_items import WeightedItem, items_schema, read_written_items
from evorun.tasks.rubrics import MAX_ITEMS, refuse_doubled
from evorun.tasks.tags import escape_tags
from evorun.tasks.thinking import without_thinking

WRITE = "write_items"
"""Role of the calls that write criteria."""
PERSISTENT, ADAPTIVE = "persistent", "adaptive"


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
                id=criterion.id,
                kind="rubric",
                generation=criterion.step,
                operator=criterion.origin,
                text=f"{criterion.item.title}: {criterion.item.description} ({criterion.item.weight:+g})",
                answer=None,
                mean=criterion.mean,
                sd=criterion.spread,
                survivor=criterion.active,
            )
            for items in self._items.values()
            for criterion in items
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
        adaptive = [criterion for problem in seen for criterion in self._items[problem] if criterion.origin == ADAPTIVE]
        active = sum(criterion.active for criterion in adaptive)
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
            known = [criterion.item for criterion in items if criterion.active]
            written = await self._write(step, group[0].number, answered, known)
            items += [
                Item(f"{problem.id}#{number}", item, ADAPTIVE, step) for number, item in enumerate(written, len(items))
            ]
        used = [criterion for criterion in items if criterion.active]
        async with asyncio.TaskGroup() as together:
            judging = [together.create_task(self._judge(step, episode, used)) for episode in answered]
        judged = [task.result() for task in judging]
        for criterion in used:
            scores = [response.scores[criterion.id] for response in judged if criterion.id in response.scores]
            criterion.mean, criterion.spread = (fmean(scores), pstdev(scores)) if scores else (None, None)
        self._deactivate([criterion for criterion in used if criterion.origin == ADAPTIVE])
        return {episode.number: response.reward for episode, response in zip(answered, judged, strict=True)}

    def _deactivate(self, adaptive: Sequence[Item]) -> None:
        """Keep the criteria with the largest spread; one of which nothing could be read has none yet, and stays."""
        ranked = sorted(adaptive, key=lambda criterion: -(criterion.spread or 0.0))
        kept = {criterion.id for criterion in ranked[: self._settings.max_active] if criterion.spread}
        for criterion in adaptive:
            criterion.active = criterion.spread is None or criterion.id in kept

    async def _write(
        self, step: int, index: int, answered: Sequence[Episode], known: Sequence[WeightedItem]
    ) -> tuple[WeightedItem, ...]:
        """Ask for new criteria; return none where no reply can be read."""
        prompt = self._prompts.write(answered, known)

        def read(text: str) -> tuple[WeightedItem, ...]:
            written = read_written_items(without_thinking(text), self._settings.max_new)
            refuse_doubled([item.title for item in (*known, *written)])
            return written

        settings = self._settings
        found = await ask_until_read(
            self._calls,
            (WRITE, step, index),
            prompt,
            settings.write_sampling,
            read,
            attempts=settings.write_attempts,
            owed=self._owe(WRITE, step, index),
        )
        if isinstance(found, Unread):
            self._figures[f"items_unread_{found.kind}"] += 1
            return ()
        self._figures["items_written"] += len(found)
        return found

    async def _judge(self, step: int, episode: Episode, items: Sequence[Item]) -> Judged:
        """Judge a response by each criterion."""
        settings = self._settings

        async def ask(place: int, item: WeightedItem) -> float | Unread:
            as_json = settings.reward_json
            prompt = ask_for_score(self._task, episode.asked.problem, episode.response, item, as_json=as_json)
            return await ask_until_read(
                self._calls,
                (SCORE, step, episode.number * MAX_ITEMS + place),
                prompt,
                settings.reward_sampling,
                partial(read_item_score, item=item, as_json=as_json),
                attempts=settings.score_attempts,
                owed=self._owe(SCORE, step, episode.number),
            )

        async with asyncio.TaskGroup() as together:
            asking = [together.create_task(ask(place, criterion.item)) for place, criterion in enumerate(items)]
        found = [task.result() for task in asking]
        scores = {place: score for place, score in enumerate(found) if not isinstance(score, Unread)}
        faults = [score.kind for score in found if isinstance(score, Unread)]
        by_id = {items[place].id: score for place, score in scores.items()}
        value = weigh_scores(scores, [criterion.item for criterion in items])
        if value is None:
            return Judged(Reward(None, unscored=faults[0] if faults else "no_items"), by_id)
        return Judged(Reward(value, {"items": float(len(items)), "unread_items": float(len(faults))}), by_id)

    def _owe(self, role: str, step: int, index: int) -> list[Reply]:
        """Return a list for a call's replies, which are charged with the episode of this index."""
        owed: list[Reply] = []
        self._owed[step, index].append((role, owed))
        return owed


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
