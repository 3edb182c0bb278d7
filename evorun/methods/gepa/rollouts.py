"""Rollouts of GEPA's prompts: on the labelled validation split, or on the problems with their public tests."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from evorun.methods.context import RunContext
from evorun.methods.gepa.bridge import GepaState, Rollout
from evorun.models.base import Sampling
from evorun.rollouts.calls import Calls
from evorun.rollouts.episodes import Asked, Episode, max_turns_on
from evorun.rollouts.replies import TextCounts
from evorun.rollouts.responses import respond
from evorun.runs.archive import ArchivedCandidates, Snapshot
from evorun.runs.candidates import Candidate, Response, Step
from evorun.runs.scores import primary_score
from evorun.tasks.base import Demonstration, Grade, Problem, Prompt

T = TypeVar("T")

UNANSWERED = Response(text="", answer=None, error="rejected: the budget has ended")


class OnValidation:
    """`split`: labels of the validation split score prompts; the run's problems are answered under the best one.

    They are answered again after each improvement (ours), which gives the curve of the paper's Figure 2.
    """

    role = "evaluate"

    def __init__(
        self,
        ctx: RunContext,
        sampling: Sampling,
        train: Sequence[Demonstration],
        validation: Sequence[Demonstration],
    ) -> None:
        self.train = train
        self.validation = validation
        self._ctx = ctx
        self._sampling = sampling
        self._answered: tuple[Candidate | None, dict[str, Candidate]] = (None, {})
        """The prompt under which the problems were last answered, and the answers by problem id."""
        self._answers = _make_archives(ctx)
        self._texts: dict[str, TextCounts] = defaultdict(TextCounts)
        """Counts of the problems' answers since the last step; answers to examples are no results."""

    async def evaluate(self, instruction: str, batch: Sequence[Demonstration], number: int) -> list[Rollout]:
        task = self._ctx.shared.task
        asked = [Asked(example.problem, task.instructed_prompt(example.problem, instruction)) for example in batch]
        episodes = await respond(self._ctx.shared, asked, role=self.role, step=number, sampling=self._sampling)
        # GEPA expects a score for each example.
        padded = [*episodes, *[None] * (len(batch) - len(episodes))]
        responses = [UNANSWERED if episode is None else episode.response for episode in padded]
        grades = await _gather(map(self._ctx.grade, batch, responses))
        measure = primary_score(task.scores)
        values = [measure.value_in(grade) for grade in grades]
        # An unscored response must neither help nor stop the search, so it counts as its batch's worst.
        known = [measure.utility(value) for value in values if value is not None]
        unscored = min(known, default=0.0)
        if len(known) < len(values):
            self._ctx.warn(
                f"{len(values) - len(known)} of {len(values)} responses have no {measure.name}: the task could not "
                "score them; GEPA counts each as the worst of its batch"
            )
        scores = [unscored if value is None else measure.utility(value) for value in values]
        return [
            _make_rollout(self._ctx, example.problem, episode, response, score, example, grade)
            for example, episode, response, score, grade in zip(batch, padded, responses, scores, grades, strict=True)
        ]

    def min_calls(self) -> int:
        # A response to every validation problem, and one to every problem of the run.
        problems = [*(example.problem for example in self.validation), *self._ctx.problems]
        return sum(max_turns_on(self._ctx.shared.task, problem) for problem in problems)

    async def affords(self, minibatch: int) -> bool:
        # The minibatch before and after the reflection (one call), and the validation of a better prompt.
        turns = max(max_turns_on(self._ctx.shared.task, example.problem) for example in self.train)
        calls = 2 * minibatch * turns + 1 + self.min_calls()
        return self._ctx.shared.affordable(calls, self.role) == calls

    def takes_part(self, example: Demonstration) -> bool:
        return True  # the run pays, not the examples

    def payer(self, batch: Sequence[Demonstration]) -> Calls:
        return self._ctx.shared  # all problems share the search's cost

    async def steps(self, step: int, state: GepaState) -> Mapping[str, Step]:
        """Answer the problems when there is a new best prompt; each keeps its last parsed answer."""
        best, problems = state.best, self._ctx.problems
        previous_prompt, current = self._answered
        if previous_prompt is not best:
            answers = await _gather(self._answer(problem, step, best.text) for problem in problems)
            # Without budget for a new answer the last one stays; an unparsed response is no answer.
            kept = [
                current.get(problem.id) if answer is None else answer
                for problem, answer in zip(problems, answers, strict=True)
            ]
            current = {
                problem.id: answer
                for problem, answer in zip(problems, kept, strict=True)
                if answer is not None and answer.error is None
            }
            self._answered = (best, current)
        extra = {"prompts": float(len(state.pool)), "validation_score": best.mean or 0.0}
        return {
            problem.id: Step(
                step=step,
                best=current.get(problem.id),
                candidates=Snapshot(self._answers[problem.id]),
                extra=extra | self._texts.pop(problem.id, TextCounts()).diagnostics(),
            )
            for problem in problems
        }

    async def _answer(self, problem: Problem, step: int, instruction: str) -> Candidate | None:
        ctx = self._ctx.context_for(problem)
        prompt = ctx.task.instructed_prompt(problem, instruction)
        asked = [Asked(problem, prompt)]
        episodes = await respond(ctx, asked, role="answer", step=step, sampling=self._sampling)
        if not episodes:
            return None
        response = episodes[0].response
        self._texts[problem.id].add(ctx.task, episodes[0].replies[-1], response)
        rated = _make_candidate(f"{step}.0", step, response, None)
        self._answers[problem.id].extend([rated])
        return rated


class _Scored(NamedTuple):
    """A parsed response, which may be the best one to its problem."""

    number: int
    """Its index among all responses to the problem."""
    mean: float
    instruction: str
    """The prompt that it was sampled under."""


class OnProblems:
    """`inference`: public tests of the run's problems score prompts; each problem keeps its best response."""

    role = "generate"

    def __init__(self, ctx: RunContext, sampling: Sampling) -> None:
        self.train: Sequence[Problem] = ctx.problems
        self.validation: Sequence[Problem] = self.train
        self._taking_part = {problem.id for problem in ctx.problems}
        self._ctx = ctx
        self._sampling = sampling
        self._responses = _make_archives(ctx)
        self._scored: dict[str, list[_Scored]] = {problem.id: [] for problem in ctx.problems}
        self._texts: dict[str, TextCounts] = defaultdict(TextCounts)
        """Counts of each problem's responses since the last step."""

    async def evaluate(self, instruction: str, batch: Sequence[Problem], number: int) -> list[Rollout]:
        indices = range(len(batch))
        tried = await _gather(self._try(instruction, batch[index], number, index) for index in indices)
        # Added in the order of the batch, which may hold a problem twice: among equals the earliest is best.
        for problem, (_, rated) in zip(batch, tried, strict=True):
            if rated is not None:
                if rated.mean is not None:
                    number = len(self._responses[problem.id])
                    self._scored[problem.id].append(_Scored(number, rated.mean, instruction))
                self._responses[problem.id].extend([rated])
        return [rollout for rollout, _ in tried]

    async def _try(
        self, instruction: str, problem: Problem, number: int, index: int
    ) -> tuple[Rollout, Candidate | None]:
        """Answer a problem; `index` is its index in the batch, which GEPA may fill up with repeated problems.

        There is no candidate where the budget allows no answer.
        """
        ctx = self._ctx.context_for(problem)
        prompt = ctx.task.instructed_prompt(problem, instruction)
        asked = [Asked(problem, prompt)]
        episodes = await respond(ctx, asked, role=self.role, step=number, sampling=self._sampling, indices=[index])
        episode = episodes[0] if episodes else None
        response = UNANSWERED if episode is None else episode.response
        if episode is not None:
            self._texts[problem.id].add(ctx.task, episode.replies[-1], response)
        [response] = await ctx.observe([response])
        # An answer that did not parse has no feedback.
        score = response.feedback.score if response.feedback is not None else 0.0
        rated = (
            _make_candidate(f"{number}.{index}", number, response, None if response.error else score)
            if episode
            else None
        )
        return _make_rollout(self._ctx, problem, episode, response, score), rated

    def min_calls(self) -> int:
        return sum(max_turns_on(self._ctx.shared.task, problem) for problem in self.validation)

    async def affords(self, minibatch: int) -> bool:
        """Drop the problems whose shares do not cover an iteration; return whether any is left."""
        before = 0
        # Repeated while problems drop out: with fewer problems, one may be in a minibatch more often.
        while self._taking_part and len(self._taking_part) != before:
            before = len(self._taking_part)
            # GEPA's sampler may repeat problems to fill the last minibatch of an epoch.
            repeats = 1 if before % minibatch == 0 else max(2, math.ceil(minibatch / before))
            # In the minibatch before and after the reflection, and in the validation of a better prompt.
            responses = 2 * repeats + 1
            self._taking_part = {
                problem.id for problem in self.train if self.takes_part(problem) and self._affords(problem, responses)
            }
        return bool(self._taking_part)

    def _affords(self, problem: Problem, responses: int) -> bool:
        """Return whether a problem's share covers `responses` responses and a reflection."""
        ctx = self._ctx.context_for(problem)
        calls = responses * max_turns_on(ctx.task, problem) + 1
        return ctx.affordable(calls, self.role) == calls

    def takes_part(self, example: Problem) -> bool:
        return example.id in self._taking_part

    def payer(self, batch: Sequence[Problem]) -> Calls:
        """Return the problem of the batch with the fewest calls so far; ties go to the first."""
        return min(map(self._ctx.context_for, batch), key=lambda ctx: ctx.calls_made)

    async def steps(self, step: int, state: GepaState) -> Mapping[str, Step]:
        """Return each problem's best response so far: by public score, then by its prompt's, then the earliest."""
        score_by_prompt = {prompt.text: prompt.mean or 0.0 for prompt in state.pool}
        extra = {"prompts": float(len(state.pool)), "validation_score": state.best.mean or 0.0}
        steps = {}
        for name, responses in self._responses.items():
            # Rejected prompts are not in the pool; their responses rank below those of accepted ones.
            scored = self._scored[name]
            best = max(
                scored, key=lambda rollout: (rollout.mean, score_by_prompt.get(rollout.instruction, -1.0)), default=None
            )
            steps[name] = Step(
                step=step,
                best=None if best is None else responses[best.number],
                candidates=Snapshot(responses),
                extra=extra | self._texts.pop(name, TextCounts()).diagnostics(),
            )
        return steps


async def _gather(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results in order; an error cancels the other coroutines."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(coroutine) for coroutine in work]
    return [task.result() for task in tasks]


def _make_archives(ctx: RunContext) -> dict[str, ArchivedCandidates]:
    """Return an empty list for the responses to each problem."""
    return {problem.id: ArchivedCandidates(ctx.context_for(problem).archive) for problem in ctx.problems}


def _make_rollout(
    ctx: RunContext,
    problem: Problem,
    episode: Episode | None,
    response: Response,
    score: float,
    example: Demonstration | None = None,
    grade: Grade | None = None,
) -> Rollout:
    """Return a scored response with its record for the reflection: the question, the response, the feedback."""
    task = ctx.shared.task
    # The question as the task asks it, without the instruction, which GEPA shows separately.
    question: Prompt = task.instructed_prompt(problem, "")
    output = response.text if episode is None or len(episode.turns) == 1 else episode.transcript
    record = {
        "Inputs": question.messages[-1]["content"],
        "Generated Outputs": output or "(nothing)",
        "Feedback": task.reflection_record(problem, response, example, grade),
    }
    return Rollout(response.text, score, record)


def _make_candidate(name: str, generation: int, response: Response, mean: float | None) -> Candidate:
    return Candidate.from_response(
        response, id=name, generation=generation, operator="instruct", mean=mean, survivor=response.error is None
    )
