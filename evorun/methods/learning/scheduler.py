"""The schedule of a run that learns: budget, lag, and which work runs concurrently."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from evorun.methods.context import RunContext
from evorun.methods.learning.evaluation import Evaluations, answer_prompt
from evorun.methods.learning.parts import Batch, DrawnPrompt, LearningSettings, PromptSource, RewardSource
from evorun.rollouts.episodes import Asked, Episode, Rollouts
from evorun.runs.candidates import Step

_Figures: TypeAlias = dict[str, float]
_Work: TypeAlias = Coroutine[Any, Any, _Figures]

ROLLOUT = "rollout"
BEYOND_UPDATE = "beyond_update"
"""Journal name of the time by which the evolution of rewards outlasts the concurrent update."""


class _Ahead(NamedTuple):
    """A step whose rollouts have begun."""

    step: int
    prompts: Sequence[DrawnPrompt]
    playing: asyncio.Task[Sequence[Episode]]
    max_calls: int
    """Upper bound on the calls of the step, from its rollouts to its evolution, without evaluations."""


class Scheduler:
    """Plays the batches and the evaluations of a run, as early as lag and budget allow.

    The rollouts of step s begin once step s - 1 - `training.max_lag` is complete, whether or not those of the steps in
    between have ended. They see weights, prompts and rewards as they were after that step: what a step sees depends on
    its number, never on the time, so a resumed run repeats it. All calls of an episode have the same weights.

    An async context manager: leaving it cancels the rollouts under way.
    """

    def __init__(
        self,
        ctx: RunContext,
        config: LearningSettings,
        prompts: PromptSource,
        rewards: RewardSource,
        *,
        last_step: int,
        max_problems: int | None,
        learned: bool,
        after_problem: bool,
    ) -> None:
        """max_problems: total over all batches; None: every batch is full.

        learned: whether the weights learn from completions. after_problem: see `answer_prompt`.
        """
        self._ctx = ctx
        self._config = config
        self._prompts = prompts
        self._rewards = rewards
        self._last_step = last_step
        self._max_problems = max_problems
        self._after_problem = after_problem
        self._rollouts = Rollouts(ctx.shared, ctx.training.task, ROLLOUT, rewards.rewards, learned=learned)
        self._evaluations = Evaluations(ctx, config, after_problem)
        self._step = 0
        """The present step."""
        self._evaluated = 0
        """The latest step whose evaluation has begun."""
        self._ahead: deque[_Ahead] = deque()
        """The steps after the present one whose rollouts have begun."""
        self._ended = False
        """True once the budget does not cover another step."""

    async def __aenter__(self) -> "Scheduler":
        return self

    async def __aexit__(self, *raised: object) -> None:
        for ahead in self._ahead:
            ahead.playing.cancel()
        await asyncio.gather(*(ahead.playing for ahead in self._ahead), return_exceptions=True)

    async def batches(self) -> AsyncIterator[Batch]:
        """Yield the batch of each step, until the steps or the budget end."""
        while True:
            self._play_ahead()
            if not self._ahead:
                return
            await self._wait_for_rollouts()
            step, prompts, playing, _ = self._ahead.popleft()
            self._step = step
            # Not when the last rollout ends: the cost so far would depend on the time.
            self._rollouts.charge(step, playing.result())
            yield Batch(step, prompts, playing.result(), self._config.group)

    async def together(self, update: _Work, prompts: _Work, rewards: _Work) -> tuple[_Figures, _Figures, _Figures]:
        """Update the weights and evolve prompts and rewards concurrently."""
        async with asyncio.TaskGroup() as group:  # the update is issued first
            updating = group.create_task(update)
            evolving_prompts, evolving_rewards = group.create_task(prompts), group.create_task(rewards)
            if self._rewards.max_calls_after(self._step):
                group.create_task(self._time_beyond(updating, evolving_rewards))
        return updating.result(), evolving_prompts.result(), evolving_rewards.result()

    async def evaluate(self, prompt: DrawnPrompt) -> Mapping[str, Step]:
        """Answer the run's problems with the present weights; with a lag or `eval_beside_rollouts`, beside rollouts."""
        if self._step > 0 and (self._config.eval_beside_rollouts or self._ctx.max_lag):
            self._play_ahead()
        self._evaluated = self._step
        return await self._evaluations.evaluate(self._step, prompt.text)

    async def _wait_for_rollouts(self) -> None:
        """Wait for those of the next step. Raises whatever ends those of any step under way."""
        under_way = {ahead.playing for ahead in self._ahead}
        while not self._ahead[0].playing.done():
            ended, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            for playing in ended:
                playing.result()

    def _play_ahead(self) -> None:
        """Begin the rollouts of all steps that may see what there is after the present step."""
        begun = self._ahead[-1].step if self._ahead else self._step
        for step in range(begun + 1, min(self._step + 1 + self._ctx.max_lag, self._last_step) + 1):
            if self._ended or not self._begin(step):
                return

    def _begin(self, step: int) -> bool:
        """Draw problems and prompts of a step, and begin its rollouts; return False if the budget does not cover it."""
        ctx, config = self._ctx, self._config
        problems = ctx.batch(step, config.problems_per_step, self._max_problems)
        prompts = self._prompts.draw(step)  # E-SPL, equation 4
        task = ctx.training.task
        asked = [
            Asked(problem, answer_prompt(task, problem, prompt.text, after_problem=self._after_problem), prompt.id)
            for problem in problems
            for prompt in prompts
        ]
        asked = [request for request in asked for _ in range(config.group)]
        calls = self._rollouts.max_calls([request.problem for request in asked])
        calls += self._rewards.max_calls(len(asked), step) + self._rewards.max_calls_after(step)
        calls += self._prompts.max_calls(len(problems), config.group)
        # A step begins only if the budget also covers the steps under way, and the evaluations up to the one after it.
        evaluated = range(self._evaluated + 1, step)
        evaluations = 1 + sum(map(config.evaluates_after, evaluated))
        needed = calls + sum(ahead.max_calls for ahead in self._ahead) + evaluations * self._evaluations.max_calls
        if ctx.shared.affordable(needed, ROLLOUT) < needed:
            self._ended = True
            under_way = ", with the steps under way," if self._ahead else ""
            ctx.warn(
                f"the budget ends training before step {step} of {self._last_step}: a step and the evaluation after it"
                f"{under_way} take {needed} calls"
            )
            return False
        self._ahead.append(_Ahead(step, prompts, asyncio.create_task(self._play(step, asked)), calls))
        return True

    async def _play(self, step: int, asked: Sequence[Asked]) -> Sequence[Episode]:
        episodes = await self._rollouts.play_uncharged(step, asked, self._config.sampling)
        return await self._rewards.complete(step, episodes)

    async def _time_beyond(self, update: asyncio.Task[_Figures], evolution: asyncio.Task[_Figures]) -> None:
        """Record in the journal for how long an evolution outlasts the concurrent update."""

        async def wait_for_evolution() -> bool:
            await evolution
            return True

        await update
        # The journal stores durations; no other record may, since they would differ after a resume.
        await self._ctx.shared.remember(self._step, BEYOND_UPDATE, self._step, wait_for_evolution, bool)
