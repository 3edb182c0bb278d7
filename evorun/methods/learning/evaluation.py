"""Evaluation of the policy: the run's problems answered with the weights of one training step."""

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from evorun.fields import Checked, NonNegativeFloat, NonNegativeInt, PositiveInt
from evorun.methods.context import RunContext
from evorun.models.base import Message, Sampling
from evorun.rollouts.episodes import Asked, Rollouts
from evorun.rollouts.replies import TextCounts
from evorun.runs.archive import ArchivedCandidates, Snapshot
from evorun.runs.candidates import Candidate, Step
from evorun.tasks.base import Problem, Prompt

ROLE = "evaluate"


@dataclass(kw_only=True)
class EvaluationSettings(Checked):
    """Hyperparameters of an evaluation."""

    section = "method"

    eval_samples: NonNegativeInt
    """Completions per problem beside the greedy one; their mean score (for right and wrong: pass rate) is recorded."""
    eval_temperature: NonNegativeFloat
    eval_top_p: Annotated[float, Meta(gt=0, le=1)]
    eval_max_tokens: PositiveInt
    """Maximum completion tokens of a response."""

    @property
    def eval_calls(self) -> int:
        """Model calls per problem in one evaluation."""
        return 1 + self.eval_samples

    def eval_sampling(self, index: int) -> Sampling:
        """Return the sampling parameters of a problem's completion; the first one is greedy."""
        # Index 0 is greedy whatever `eval_temperature` is: accuracy is measured on it.
        if index == 0:
            return Sampling(temperature=0.0, max_tokens=self.eval_max_tokens)
        return Sampling(temperature=self.eval_temperature, top_p=self.eval_top_p, max_tokens=self.eval_max_tokens)


@dataclass(kw_only=True)
class RepeatedEvaluationSettings(EvaluationSettings):
    """Hyperparameters of evaluations between steps: part of the configuration of every method that trains."""

    eval_every: PositiveInt | None
    """Training steps between two evaluations; null: none in between. One precedes the first step, and one follows the
    last."""

    def evaluates_after(self, step: int) -> bool:
        """Return whether an evaluation follows a step, unless it is the last."""
        return self.eval_every is not None and step % self.eval_every == 0


def answer_prompt(task: Any, problem: Problem, system_prompt: str, *, after_problem: bool = False) -> Prompt:
    """Ask for an answer under a system prompt; an empty one means the task's own prompt.

    after_problem: put the system prompt into the user's message, after the task's own text of the problem.
    """
    prompt: Prompt
    if system_prompt and not after_problem:
        prompt = task.instructed_prompt(problem, system_prompt)
        return prompt
    prompt = task.generation_prompt(problem)
    if not system_prompt:
        return prompt
    *before, last = prompt.messages
    message = Message(role=last["role"], content=f"{last['content']}\n\n{system_prompt}")
    return msgspec.structs.replace(prompt, messages=(*before, message))


@dataclass
class Evaluations:
    """The evaluations of a run so far."""

    ctx: RunContext
    settings: EvaluationSettings
    after_problem: bool = False
    """See `answer_prompt`."""
    _candidates: dict[str, ArchivedCandidates] = field(default_factory=dict)
    """Candidates by problem, over all evaluations."""

    @property
    def max_calls(self) -> int:
        """Maximum model calls of one evaluation."""
        rollouts = Rollouts(self.ctx.shared, self.ctx.shared.task, ROLE)
        # Multi-turn tasks take up to `max_turns` calls per completion.
        return self.settings.eval_calls * rollouts.max_calls(self.ctx.problems)

    async def evaluate(self, step: int, system_prompt: str = "") -> dict[str, Step]:
        """Answer every problem with the weights of a training step; return the steps by problem id.

        Each problem's answer is the greedy completion. system_prompt: see `answer_prompt`.
        """
        async with asyncio.TaskGroup() as group:
            tasks = {
                problem.id: group.create_task(self._evaluate(problem, step, system_prompt))
                for problem in self.ctx.problems
            }
        return {name: task.result() for name, task in tasks.items()}

    async def _evaluate(self, problem: Problem, step: int, system_prompt: str) -> Step:
        ctx = self.ctx.context_for(problem)
        prompt = answer_prompt(ctx.task, problem, system_prompt, after_problem=self.after_problem)
        # Greedy first and alone, so that a short budget pays for the answer before the samples.
        episode_request, rollouts = Asked(problem, prompt), Rollouts(ctx, ctx.task, ROLE)
        greedy = await rollouts.play(step, [episode_request], self.settings.eval_sampling(0))
        indices = range(1, self.settings.eval_calls)
        sampled = await rollouts.play(step, [episode_request] * len(indices), self.settings.eval_sampling(1), indices)
        texts, candidates = TextCounts(), []
        for index, episode in [*enumerate(greedy), *zip(indices, sampled, strict=False)]:  # the budget may leave fewer
            response, replies = episode.response, episode.replies
            texts.add(ctx.task, replies[-1], response)
            candidates.append(
                Candidate.from_response(
                    response,
                    id=f"{step}.{index}",
                    generation=step,
                    operator="greedy" if index == 0 else "sample",
                    survivor=index == 0 and response.error is None,
                    call=ctx.key(step, ROLE, index, len(replies) - 1),
                )
            )
        # Every step lists the candidates of earlier evaluations, too, since candidates.jsonl comes from the last step.
        all_candidates = self._candidates.setdefault(problem.id, ArchivedCandidates(ctx.archive))
        all_candidates.extend(candidates)
        return Step(
            step=step,
            best=next((candidate for candidate in candidates if candidate.survivor), None),
            candidates=Snapshot(all_candidates),
            samples=[candidate for candidate in candidates if candidate.operator == "sample"],
            extra=texts.diagnostics(),
        )
