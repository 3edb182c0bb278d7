"""Drives a per-problem method over a task: problems in flight, grading beside the search, records as they come."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evorun.methods.base import Candidate, Comparison, Context, PerProblem, Rated, Step
from evorun.runs.budget import Meter
from evorun.runs.directory import RunDirectory
from evorun.runs.effects import JournaledModel
from evorun.runs.progress import Progress
from evorun.runs.schema import (
    Belief,
    Best,
    CandidateRecord,
    ComparisonRecord,
    PredictionRecord,
    Spent,
    StepRecord,
)
from evorun.tasks.base import Grade, Grader, Problem, Task


@dataclass
class Driver:
    """Runs one method on all problems of a task and writes what happens to the run directory."""

    method: PerProblem
    task: Task
    grader: Grader
    models: Mapping[str, JournaledModel]
    directory: RunDirectory
    seed: int
    concurrency: int
    progress: Progress
    seconds_by_role: dict[str, float] = field(default_factory=dict)
    """Model seconds by role, once all problems have ended."""

    async def run(self, problems: Sequence[Problem], meters: Sequence[Meter]) -> None:
        """Solve all problems, at most `concurrency` at once.

        Raises the first error that stops the run (EvorunError or a defect); the other problems are then cancelled,
        and what they have recorded is kept.
        """
        places = asyncio.Semaphore(self.concurrency)
        try:
            async with asyncio.TaskGroup() as group:
                for problem, meter in zip(problems, meters, strict=True):
                    group.create_task(self._solve_in_turn(problem, meter, places))
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        for meter in meters:
            for role, usage in sorted(meter.by_role.items()):
                self.seconds_by_role[role] = self.seconds_by_role.get(role, 0.0) + usage.seconds

    async def _solve_in_turn(self, problem: Problem, meter: Meter, places: asyncio.Semaphore) -> None:
        async with places:
            await self._solve(problem, meter)

    async def _solve(self, problem: Problem, meter: Meter) -> None:
        ctx = Context(task=self.task, problem=problem, seed=self.seed, meter=meter, models=self.models)
        grades = _Grades(self.grader, problem)
        last: Step | None = None
        async for step in self.method.solve(ctx):
            correct = None if step.best is None else (await grades.of(step.best.candidate)).correct
            self._write_step(problem, step, correct, meter)
            self.progress.stepped(problem.id, step.step, correct)
            last = step
        await self._write_end(problem, last, grades, meter)
        self.progress.ended(problem.id)

    def _write_step(self, problem: Problem, step: Step, correct: bool | None, meter: Meter) -> None:
        best = step.best
        record = StepRecord(
            problem=problem.id,
            stratum=problem.stratum,
            step=step.step,
            best=None if best is None else _named(best.candidate),
            belief=_belief(best),
            correct=correct,
            pool=sum(rated.survivor for rated in step.candidates),
            candidates=len(step.candidates),
            cost=_cost(meter),
            extra={**step.extra, **_duel_counts(step)},
        )
        self.directory.records("steps").append([record])
        duels = [_comparison_record(problem, step.step, duel) for duel in step.comparisons]
        self.directory.records("comparisons").append(duels)

    async def _write_end(self, problem: Problem, last: Step | None, grades: "_Grades", meter: Meter) -> None:
        candidates = [] if last is None else last.candidates
        self.directory.records("candidates").append(
            [_candidate_record(problem, rated, await grades.of(rated.candidate)) for rated in candidates]
        )
        best = None if last is None else last.best
        grade = Grade(correct=False) if best is None else await grades.of(best.candidate)
        record = PredictionRecord(
            problem=problem.id,
            stratum=problem.stratum,
            candidate=None if best is None else best.candidate.id,
            answer=None if best is None else best.candidate.response.answer,
            correct=grade.correct,
            scores=grade.scores,
            belief=_belief(best),
            candidates=len(candidates),
            steps=0 if last is None else last.step + 1,
            stop="budget" if meter.exhausted else "failed" if best is None else "generations",
            cost=_cost(meter),
        )
        self.directory.records("predictions").append([record])


class _Grades:
    """The grades of one problem's candidates, each asked for once."""

    def __init__(self, grader: Grader, problem: Problem) -> None:
        self._grader = grader
        self._problem = problem
        self._known: dict[str, Grade] = {}

    async def of(self, candidate: Candidate) -> Grade:
        if candidate.id not in self._known:
            self._known[candidate.id] = await self._grader.grade(self._problem, candidate.response)
        return self._known[candidate.id]


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first single exception in a group, however deep."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _named(candidate: Candidate) -> Best:
    return Best(candidate.id, candidate.response.answer, candidate.response.text)


def _belief(rated: Rated | None) -> Belief | None:
    return None if rated is None else Belief(rated.mean, rated.sd)


def _cost(meter: Meter) -> dict[str, Spent]:
    return {role: Spent(**counts) for role, counts in meter.counts().items()}


def _duel_counts(step: Step) -> dict[str, float]:
    if not step.comparisons:
        return {}
    decisive = sum(duel.outcome is not None for duel in step.comparisons)
    verdicts = [verdict for duel in step.comparisons for verdict in duel.verdicts]
    return {
        "duels": len(step.comparisons),
        "decisive": decisive,
        "position_a": verdicts.count("A"),
        "position_b": verdicts.count("B"),
        "ties": verdicts.count("T"),
        "invalid_judgments": verdicts.count("invalid"),
    }


def _comparison_record(problem: Problem, step: int, duel: Comparison) -> ComparisonRecord:
    return ComparisonRecord(
        problem=problem.id,
        step=step,
        first=duel.first,
        second=duel.second,
        verdicts=duel.verdicts,
        outcome=duel.outcome,
        reasons=duel.reasons,
    )


def _candidate_record(problem: Problem, rated: Rated, grade: Grade) -> CandidateRecord:
    candidate = rated.candidate
    return CandidateRecord(
        problem=problem.id,
        id=candidate.id,
        generation=candidate.generation,
        parents=candidate.parents,
        operator=candidate.operator,
        text=candidate.response.text,
        answer=candidate.response.answer,
        reasoning=candidate.response.reasoning,
        error=candidate.response.error,
        mean=rated.mean,
        sd=rated.sd,
        survivor=rated.survivor,
        correct=grade.correct,
        attempts=candidate.attempts,
    )
