"""The schedule of a run that learns: budget, lag, and which work runs concurrently."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from evorun.methods.context import RunContext
from evorun.methods.learning.evaluation import Evaluations, answer_prompt
from evorun.methods.learning.parts import Batch, DrawnPrompt, LearningSettings, PromptSource, RewardSource
from evorun.rollouts.episodes import Asked, Rollouts
from evorun.runs.candidates import Step

_Figures: TypeAlias = dict[str, float]
_Work: TypeAlias = Coroutine[Any, Any, _Figures]

ROLLOUT = "rollout"
BEYOND_UPDATE = "beyond_update"
"""Journal name of the time by which the evolution of rewards outlasts the concurrent update."""


class _Draw(NamedTuple):
    """A step's batch before it is played."""

    step: int
    prompts: Sequence[DrawnPrompt]
    asked: Sequence[Asked]


class Scheduler:
    """Plays the batches and the evaluations of a run, as early as lag and budget allow."""

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
        self._drawn_for = 0
        """The latest step whose batch has been drawn."""
        self._next_draw: _Draw | None = None
        """The next step's draw; None: not drawn yet, or there is none."""
        self._next_batch: Batch | None = None
        """The next step's batch, if it has already been played."""

    async def batches(self) -> AsyncIterator[Batch]:
        """Yield the batch of each step, until the steps or the budget end."""
        while True:
            if self._drawn_for == self._step:
                self._draw_next()
            draw, batch = self._next_draw, self._next_batch
            self._next_draw = self._next_batch = None
            if draw is None:
                return
            self._step = draw.step
            yield batch or await self._play(draw)

    async def together(self, update: _Work, prompts: _Work, rewards: _Work) -> tuple[_Figures, _Figures, _Figures]:
        """Update the weights and evolve prompts and rewards concurrently; with a lag, play the next batch, too."""
        if self._ctx.max_lag:  # with weights and prompts from before this step
            self._draw_next()
        async with asyncio.TaskGroup() as group:  # the update is issued first
            updating = group.create_task(update)
            evolving_prompts, evolving_rewards = group.create_task(prompts), group.create_task(rewards)
            playing = None if self._next_draw is None else group.create_task(self._play(self._next_draw))
            if self._rewards.max_calls_after(self._step):
                group.create_task(self._time_beyond(updating, evolving_rewards))
        self._next_batch = None if playing is None else playing.result()
        return updating.result(), evolving_prompts.result(), evolving_rewards.result()

    async def evaluate(self, prompt: DrawnPrompt) -> Mapping[str, Step]:
        """Answer the run's problems with the present weights; with `eval_beside_rollouts`, play the next batch, too."""
        if self._config.eval_beside_rollouts and 0 < self._step == self._drawn_for:
            self._draw_next(pending=self._evaluations.max_calls)
        async with asyncio.TaskGroup() as group:  # both with the weights after this step's update
            evaluation = group.create_task(self._evaluations.evaluate(self._step, prompt.text))
            to_play = self._next_draw if self._next_batch is None else None
            playing = None if to_play is None else group.create_task(self._play(to_play))
        self._next_batch = self._next_batch if playing is None else playing.result()
        return evaluation.result()

    def _draw_next(self, pending: int = 0) -> None:
        """Draw problems and prompts of the next step, if there is one and the budget covers it.

        pending: maximum number of calls still to be made before it.
        """
        ctx, config, step = self._ctx, self._config, self._step + 1
        self._drawn_for = step
        if step > self._last_step:
            return
        problems = ctx.batch(step, config.problems_per_step, self._max_problems)
        prompts = self._prompts.draw(step)  # E-SPL, equation 4
        task = ctx.training.task
        asked = [
            Asked(problem, answer_prompt(task, problem, prompt.text, after_problem=self._after_problem), prompt.id)
            for problem in problems
            for prompt in prompts
        ]
        asked = [request for request in asked for _ in range(config.group)]
        # A step starts only if the budget also covers the evaluation after it; with a lag, the previous step's
        # evaluation is still to come, too.
        unevaluated = [step - 1, step] if ctx.max_lag and step > 1 else [step]
        evolution = self._prompts.max_calls(len(problems), config.group)
        needed = self._rollouts.max_calls([request.problem for request in asked]) + self._rewards.max_calls(
            len(asked), step
        )
        needed += len(unevaluated) * (self._evaluations.max_calls + evolution)
        needed += sum(map(self._rewards.max_calls_after, unevaluated)) + pending
        if ctx.shared.affordable(needed, ROLLOUT) < needed:
            ctx.warn(
                f"the budget ends training before step {step} of {self._last_step}: a step and the evaluation after it "
                f"take {needed} calls"
            )
            return
        self._next_draw = _Draw(step, prompts, asked)

    async def _play(self, draw: _Draw) -> Batch:
        episodes = await self._rollouts.play(draw.step, draw.asked, self._config.sampling)
        return Batch(draw.step, draw.prompts, episodes, self._config.group)

    async def _time_beyond(self, update: asyncio.Task[_Figures], evolution: asyncio.Task[_Figures]) -> None:
        """Record in the journal for how long an evolution outlasts the concurrent update."""

        async def wait_for_evolution() -> bool:
            await evolution
            return True

        await update
        # The journal stores durations; no other record may, since they would differ after a resume.
        await self._ctx.shared.remember(self._step, BEYOND_UPDATE, self._step, wait_for_evolution, bool)
