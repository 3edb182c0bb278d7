"""Rewards by a rubric: a reward model scores each response, with a rationale before the points (MPO, section 2.3)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple, TypeAlias, TypeVar

from evorun.models.base import Reply, Sampling
from evorun.rollouts.calls import Calls, Role
from evorun.rollouts.episodes import Episode
from evorun.rollouts.rewards import Graded, Reward
from evorun.rollouts.rubric_settings import RubricSettings
from evorun.runs.candidates import Response
from evorun.tasks.base import Grade, Problem, Prompt, Task
from evorun.tasks.capabilities import SupportsRubrics
from evorun.tasks.json_text import replace_lone_surrogates
from evorun.tasks.rubric_json import tagged_scores
from evorun.tasks.rubric_scores import Scores, read_digits, read_scores
from evorun.tasks.rubrics import MAX_ITEMS, Rubric, RubricItem
from evorun.tasks.thinking import outside_thinking, without_thinking

T = TypeVar("T")

SCORE, PLAN, RESCORE = "score", "plan", "rescore"
REWARD_ROLES: Mapping[str, Role] = dict.fromkeys((SCORE, PLAN, RESCORE), Role("reward"))
"""Roles of the calls; RESCORE: scores a response again by another rubric, without learning from it."""


_TOO_SHORT = "The response has no worked solution: fewer than {} words besides its answer."
"""The reason of a score that no call was made for."""


class Unread(NamedTuple):
    """No attempt gave a readable reply."""

    kind: str
    """Kind of the last attempt's failure."""


_Scored: TypeAlias = tuple[str, int, int]
"""Role, step, and index of the episode."""
Call: TypeAlias = tuple[str, int, int]
"""Role, step, and index of a call."""
_PlanKey: TypeAlias = tuple[str, str]
"""Problem id, and the rubric's text."""


class _Said(NamedTuple):
    """A score, and the words before it."""

    scores: Scores
    rationale: str


class RubricRewards:
    """Scores responses by the rubric of their step.

    After `score_attempts` unreadable replies the episode's reward is None, with the kind of the last failure. A request
    that the engine refuses is not repeated.
    A score's index is the episode's times MAX_ITEMS, plus that of the item where each item has its own call.
    """

    def __init__(
        self,
        calls: Calls,
        task: Task,
        get_rubric: Callable[[str, int], Rubric],
        settings: RubricSettings,
        grade: Callable[[Problem, Response], Awaitable[Grade]],
        *,
        references: Mapping[str, str] | None = None,
        overflow_penalty: float = 0.0,
    ) -> None:
        """get_rubric: the rubric of a key by which responses of a step are scored. grade: for `exact_match_rate`.

        references: right solutions by problem id, for `plan_reference`. overflow_penalty: see `Graded`.
        """
        assert isinstance(task, SupportsRubrics)  # noqa: S101 - methods that use rubrics declare so in `needs`
        self._calls = calls
        self._task: SupportsRubrics = task
        self._get_rubric = get_rubric
        self._settings = settings
        self._graded = Graded(calls, task, grade, 0.0)
        self._references = references or {}
        self._overflow_penalty = overflow_penalty
        self._plans: dict[_PlanKey, asyncio.Task[str | Unread]] = {}
        """Shared by the responses to a problem under the same rubric."""
        self._owed: dict[_Scored, list[list[Reply]]] = {}
        """Replies that have not been charged yet, by item."""
        self._owed_plans: dict[_PlanKey, list[Reply]] = {}
        self._planned: dict[_Scored, _PlanKey] = {}
        """The plan that scored a response, until it is charged."""

    @property
    def overflow(self) -> Reward | None:
        return Reward(-self._overflow_penalty) if self._overflow_penalty else None

    @property
    def calls_per_score(self) -> int:
        """Maximum model calls of `rescore_jointly`."""
        settings = self._settings
        return settings.score_attempts * (1 + (settings.scoring == "plan") + settings.reward_digits)

    def max_calls(self, episodes: int, step: int) -> int:
        """Return the maximum calls for the rewards of `episodes` episodes of a step."""
        if self._settings.scoring != "by_item":
            return episodes * self.calls_per_score
        rubrics = [self._get_rubric(key, step) for key in self._task.rubric_keys()]
        return episodes * max(map(self.count_max_calls, rubrics))

    def count_max_calls(self, rubric: Rubric) -> int:
        """Return the maximum calls for a score by this rubric, as training scores."""
        by_item = self._settings.scoring == "by_item"
        return self.calls_per_score * (len(rubric.items) if by_item and rubric.items else 1)

    async def reward(self, step: int, index: int, problem: Problem, response: Response) -> Reward:
        key = self._task.rubric_key(problem)
        rubric = self._get_rubric(key, step)
        if self._is_exact(step, problem) and not self._is_too_short(response):
            return self._of_grade(await self._graded.reward(step, index, problem, response), rubric)
        return await self._score(SCORE, step, index, problem, response, self._thinned(step, key, rubric))

    async def rescore(self, step: int, index: int, problem: Problem, response: Response, rubric: Rubric) -> Reward:
        """Score a response by any rubric, and by all of its items, in the same calls as training.

        `index` distinguishes the responses of one step. `charge(step, index, RESCORE)` charges the calls.
        """
        return await self._score(RESCORE, step, index, problem, response, rubric)

    async def rescore_jointly(
        self, step: int, index: int, problem: Problem, response: Response, rubric: Rubric
    ) -> Reward:
        """Score a response as `rescore` does, but by all items in one call, whatever `scoring` is."""
        return await self._score(RESCORE, step, index, problem, response, rubric, jointly=True)

    def charge(self, step: int, index: int, role: str = SCORE) -> None:
        scored = (role, step, index)
        # The first of the episodes that share a plan pays for it.
        plan = self._planned.pop(scored, None)
        if plan is not None:
            self._calls.charge(PLAN, self._owed_plans.pop(plan, ()))
        self._calls.charge(role, chain.from_iterable(self._owed.pop(scored, ())))

    def _is_too_short(self, response: Response) -> bool:
        return _count_solution_words(response) < self._settings.min_words

    def _is_exact(self, step: int, problem: Problem) -> bool:
        """Draw whether the task's own grade rewards the responses to a problem: one mode for all that are compared."""
        settings = self._settings
        if not settings.exact_match_rate:
            return False
        names = (step, problem.id) if settings.mode_drawn == "item" else (step,)
        return bool(self._calls.rng("scoring_mode", *names).random() < settings.exact_match_rate)

    def _of_grade(self, graded: Reward, rubric: Rubric) -> Reward:
        if graded.value is None:
            return Reward(None, correct=graded.correct, unscored="ungraded")
        raw = graded.value * rubric.maximum
        return self._reward(raw, graded.value, rubric, exact=True, correct=graded.correct)

    def _reward(
        self,
        raw: float,
        normalised: float,
        rubric: Rubric,
        *,
        exact: bool = False,
        correct: bool | None = None,
        rationale: str = "",
    ) -> Reward:
        parts = {"raw": raw, "normalised": normalised, "maximum": rubric.maximum}
        value = {**parts, "by_total": raw / rubric.maximum}[self._settings.reward_scale]
        if self._settings.exact_match_rate:
            parts["exact_match"] = float(exact)
        return Reward(value, parts, correct, rationale=rationale)

    def _thinned(self, step: int, key: str, rubric: Rubric) -> Rubric:
        """Return the rubric without the items that a step leaves out; one item always stays."""
        if not self._settings.rubric_dropout or len(rubric.items) < 2:
            return rubric
        draws = self._calls.rng("rubric_dropout", step, key).random(len(rubric.items))
        kept = [place for place, draw in enumerate(draws) if draw >= self._settings.rubric_dropout]
        return rubric.subset(kept or [int(draws.argmax())])

    async def _score(
        self,
        role: str,
        step: int,
        index: int,
        problem: Problem,
        response: Response,
        rubric: Rubric,
        *,
        jointly: bool = False,
    ) -> Reward:
        if self._is_too_short(response):
            return self._reward(0.0, 0.0, rubric, rationale=_TOO_SHORT.format(self._settings.min_words))
        scored: _Scored = (role, step, index)
        plan: str | None = None
        if self._settings.scoring == "plan":
            planned = await self._plan(scored, problem, rubric)
            if isinstance(planned, Unread):
                return Reward(None, unscored=f"plan_{planned.kind}")
            plan = planned
        by_item = self._settings.scoring == "by_item" and not jointly and rubric.items
        items: tuple[RubricItem | None, ...] = rubric.items if by_item else (None,)
        owed = self._owed[scored] = [[] for _ in items]

        async def ask(number: int, item: RubricItem | None) -> _Said | Unread:
            if self._settings.reward_digits:
                ask_for = partial(self._task.scoring_prompt, problem, response, rubric, item, plan)
                maximum = rubric.maximum if item is None else item.maximum
                return await self._ask_in_digits(
                    (role, step, index * MAX_ITEMS + number), ask_for, maximum, owed[number]
                )
            as_json = self._settings.reward_json

            def read(text: str) -> _Said:
                tagged = tagged_scores(without_thinking(text), rubric, item) if as_json else text
                return _Said(read_scores(tagged, rubric, item), outside_thinking(tagged).strip())

            prompt = self._task.scoring_prompt(problem, response, rubric, item, plan, as_json=as_json)
            return await self._ask((role, step, index * MAX_ITEMS + number), prompt, read, owed[number])

        async with asyncio.TaskGroup() as group:
            scoring = [group.create_task(ask(number, item)) for number, item in enumerate(items)]
        said: list[_Said] = []
        for finished in scoring:  # of several failures the first in the rubric's order counts, not in time
            answer = finished.result()
            if isinstance(answer, Unread):
                return Reward(None, unscored=answer.kind)
            said.append(answer)
        return self._reward(
            sum(answer.scores.total for answer in said),
            sum(answer.scores.normalised for answer in said) / len(said),
            rubric,
            rationale="\n\n".join(answer.rationale for answer in said),
        )

    async def _plan(self, scored: _Scored, problem: Problem, rubric: Rubric) -> str | Unread:
        """Return the plan for a problem under a rubric, which is asked for once."""
        key = self._planned[scored] = (problem.id, rubric.text)
        if key not in self._plans:
            prompt = self._task.planning_prompt(problem, rubric, self._references.get(problem.id))
            # Keyed by content: which of a step's episodes asks first differs between repetitions.
            about = blake2b("\x1f".join(key).encode("utf-8", "replace"), digest_size=7).digest()
            owed = self._owed_plans[key] = []
            asked = self._ask((PLAN, 0, int.from_bytes(about)), prompt, _read_scoring_plan, owed)
            self._plans[key] = asyncio.create_task(asked)
        return await self._plans[key]

    async def _ask_in_digits(
        self, call: Call, ask_for: Callable[..., Prompt], maximum: float, owed: list[Reply]
    ) -> _Said | Unread:
        """Ask for reasons, and then in the same conversation for points that the engine holds to digits.

        ask_for: makes the prompts (`reasons` of `scoring_prompt`). owed: takes the replies.
        """
        role, step, index = call
        settings = self._settings
        failure = Unread("")
        for attempt in range(0, 2 * settings.score_attempts, 2):
            reply = await self._calls.ask(
                ask_for(reasons=""), settings.reward_sampling, role=role, step=step, index=index, attempt=attempt
            )
            owed.append(reply)
            if reply.error is not None:
                return Unread("refused")
            # Cut off or not, the points depend on them.
            reasons = without_thinking(replace_lone_surrogates(reply.completions[0].text)).strip()
            if not reasons:
                failure = Unread("missing")
                continue
            prompt = ask_for(reasons=reasons)
            reply = await self._calls.ask(
                prompt, settings.points_sampling, role=role, step=step, index=index, attempt=attempt + 1
            )
            owed.append(reply)
            if reply.error is not None:
                return Unread("refused")
            try:
                value = read_digits(read_complete_text(reply), maximum)
                return _Said(Scores((value,), value, value / maximum), reasons)
            except ValueError as error:
                failure = Unread(fault_kind(error))
        return failure

    async def _ask(self, call: Call, prompt: Prompt, read: Callable[[str], T], owed: list[Reply]) -> T | Unread:
        settings = self._settings
        return await ask_until_read(
            self._calls, call, prompt, settings.reward_sampling, read, attempts=settings.score_attempts, owed=owed
        )


async def ask_until_read(
    calls: Calls,
    call: Call,
    prompt: Prompt,
    sampling: Sampling,
    read: Callable[[str], T],
    *,
    attempts: int,
    owed: list[Reply],
) -> T | Unread:
    """Ask until a reply can be read; a request that the engine refuses is not repeated.

    read: raises ValueError("kind: what is wrong"). owed: takes the replies.
    """
    role, step, index = call
    failure = Unread("")
    for attempt in range(attempts):
        reply = await calls.ask(prompt, sampling, role=role, step=step, index=index, attempt=attempt)
        owed.append(reply)
        if reply.error is not None:
            return Unread("refused")
        try:
            return read(read_complete_text(reply))
        except ValueError as error:
            failure = Unread(fault_kind(error))
    return failure


def normalised_score(episode: Episode) -> float:
    """Return the share of the rubric's points that an episode received."""
    return episode.reward.parts["normalised"]


def is_scored_by_rubric(episode: Episode) -> bool:
    """Return whether an episode was answered and then scored by a reward model, not by the task's grade."""
    parts = episode.reward.parts
    return episode.replies[-1].error is None and "normalised" in parts and not parts.get("exact_match")


def fault_kind(error: ValueError) -> str:
    """Return the kind of a reply's fault, for counts: readers of rubrics and scores raise "kind: what is wrong"."""
    return str(error).partition(":")[0]


def _count_solution_words(response: Response) -> int:
    """Count the words of a response other than its answer, as MPO's released code does on MATH."""
    return len(response.text.replace(response.answer or "", "").replace("\\boxed{", "").split())


def read_complete_text(reply: Reply) -> str:
    """Return a reply's text. Raises ValueError for a reply that was cut off."""
    [completion] = reply.completions
    # Whatever score it has: the missing rest could have changed it.
    if completion.truncated:
        raise ValueError("cut_off: the reply ran out of tokens")
    return replace_lone_surrogates(completion.text)


def _read_scoring_plan(text: str) -> str:
    plan = without_thinking(text).strip()
    if not plan:
        raise ValueError("missing: the reply has no plan")
    return plan
