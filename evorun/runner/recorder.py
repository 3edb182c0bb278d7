"""Records of what methods report: steps, graded beside the search, then candidates and each problem's prediction."""

import asyncio
from collections.abc import Mapping, Sequence

from msgspec.structs import asdict

from evorun.runs.candidates import SHARED, Candidate, CandidateId, Response, Step
from evorun.runs.directory import RATINGS, RunDirectory
from evorun.runs.progress import Progress
from evorun.runs.schema import (
    Belief,
    Best,
    CandidateRecord,
    ComparisonRecord,
    PredictionRecord,
    RatingRecord,
    Spent,
    StepRecord,
    Stop,
)
from evorun.runs.scores import Score, mean_of_samples
from evorun.tasks.base import Grade, Grader, GradingTools, Problem

Cost = Mapping[str, Spent]
"""By role."""

GRADED_AT_ONCE = 64
"""Candidates of a problem that are in memory at its end (ours): the problems of a run often end together."""
_NO_RESPONSE = Response(text="", answer=None, error="no response")
"""The response of a problem without candidates: the grader gives it the worst of the task's scores."""


class ProblemRecorder:
    """Writes one problem's records, in order. What was offered is graded and written while the method goes on."""

    def __init__(
        self,
        problem: Problem,
        grader: Grader,
        tools: GradingTools,
        primary: Score,
        directory: RunDirectory,
        progress: Progress,
    ) -> None:
        self._problem = problem
        self._grades = _Grades(problem, grader, tools, progress)
        self._primary = primary
        self._directory = directory
        self._progress = progress
        self._offered: asyncio.Queue[tuple[Step, Cost] | None] = asyncio.Queue()
        self._last: Step | None = None
        self._steps = 0

    def offer(self, step: Step, cost: Cost) -> None:
        """Hand over a step and what the problem has cost so far."""
        self._offered.put_nowait((step, cost))

    def close(self) -> None:
        """Say that no step will follow."""
        self._offered.put_nowait(None)

    async def write_steps(self) -> None:
        """Grade and write the steps that are offered, until the recorder is closed."""
        while (offered := await self._offered.get()) is not None:
            step, cost = offered
            grade = await self._grades.of(step.best)
            record = StepRecord(
                problem=self._problem.id,
                stratum=self._problem.stratum,
                step=step.step,
                best=None if step.best is None else Best(step.best.id, step.best.answer, step.best.text),
                belief=_belief(step.best),
                # A prediction without a candidate is wrong; a step without one is not decided yet.
                correct=None if step.best is None else grade.correct,
                pool=sum(one.survivor for one in step.candidates) if step.pool is None else step.pool,
                candidates=len(step.candidates),
                cost=dict(cost),
                extra={**step.extra, **_duel_counts(step)},
                scores=dict(await self._scores(step, grade)),
            )
            self._directory.records("steps").append([record])
            self._directory.records("comparisons").append(
                [
                    ComparisonRecord(**asdict(duel), problem=self._problem.id, step=step.step)
                    for duel in step.comparisons
                ]
            )
            value = None if step.best is None else self._primary.value_in(grade)
            self._progress.stepped(self._problem.id, step.step, value)
            self._last = step
            self._steps += 1

    async def write_end(self, cost: Cost, stopped_by_budget: bool) -> None:
        """Grade and write the candidates and the prediction; all steps have been written."""
        # The last step lists all candidates of the search, each with the final belief in it.
        candidates: Sequence[Candidate] = () if self._last is None else self._last.candidates
        for first in range(0, len(candidates), GRADED_AT_ONCE):
            await self._write_candidates(candidates[first : first + GRADED_AT_ONCE])
        best = None if self._last is None else self._last.best
        grade = await self._grades.of(best)
        scores = grade.scores if self._last is None else await self._scores(self._last, grade)
        stop: Stop = "budget" if stopped_by_budget else "failed" if best is None else "generations"
        record = PredictionRecord(
            problem=self._problem.id,
            stratum=self._problem.stratum,
            candidate=None if best is None else best.id,
            answer=None if best is None else best.answer,
            correct=grade.correct,
            scores=dict(scores),
            belief=_belief(best),
            candidates=len(candidates),
            steps=self._steps,
            stop=stop,
            cost=dict(cost),
        )
        self._directory.records("predictions").append([record])
        self._progress.ended(self._problem.id)

    async def _write_candidates(self, candidates: Sequence[Candidate]) -> None:
        grades = await asyncio.gather(*(self._grades.of(candidate, final=True) for candidate in candidates))
        self._directory.records("candidates").append(
            [
                CandidateRecord(
                    **asdict(candidate), problem=self._problem.id, correct=grade.correct, scores=dict(grade.scores)
                )
                for candidate, grade in zip(candidates, grades, strict=True)
            ]
        )

    async def _scores(self, step: Step, grade: Grade) -> Mapping[str, float]:
        """Return the scores of the best candidate, and the mean of the primary one over a step's samples."""
        # Samples are there in evaluations of methods that train: their mean is the pass rate.
        if not step.samples:
            return grade.scores
        grades = await asyncio.gather(*(self._grades.of(sample) for sample in step.samples))
        values = [value for one in grades if (value := self._primary.value_in(one)) is not None]
        if not values:
            return grade.scores
        return {**grade.scores, mean_of_samples(self._primary).name: sum(values) / len(values)}


class SharedRecorder:
    """Writes the candidates that serve all problems: each once, and the belief in it whenever that has changed."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._ratings: dict[CandidateId, RatingRecord] = {}
        """The belief in each, as of the step that changed it."""

    def record(self, step: int, candidates: Sequence[Candidate]) -> None:
        """Write what is new after a step, of all candidates that there are."""
        # Shared candidates (system prompts) come back at every step; a line each time would grow with its square.
        new = [candidate for candidate in candidates if candidate.id not in self._ratings]
        changed = []
        for one in candidates:
            last = self._ratings.get(one.id)
            if last is None or (last.mean, last.sd, last.survivor) != (one.mean, one.sd, one.survivor):
                self._ratings[one.id] = RatingRecord(step, one.id, one.mean, one.sd, one.survivor)
                changed.append(self._ratings[one.id])
        if changed:
            self._directory.records("candidates").append([CandidateRecord(**asdict(c), problem=SHARED) for c in new])
            self._directory.records(RATINGS).append(changed)


class _Grades:
    """The grades of one problem's candidates, and of none, each asked for once."""

    def __init__(self, problem: Problem, grader: Grader, tools: GradingTools, progress: Progress) -> None:
        self._problem = problem
        self._progress = progress
        self._grader = grader
        self._tools = tools
        self._known: dict[str | None, Grade] = {}

    async def of(self, candidate: Candidate | None, *, final: bool = False) -> Grade:
        """Return a grade, which is remembered unless it is the `final` one that anybody asks for."""
        key = None if candidate is None else candidate.id
        known = self._known.get(key)
        if known is None:
            self._progress.grading += 1
            try:
                known = await self._grader.grade(self._problem, candidate or _NO_RESPONSE, self._tools)
            finally:
                self._progress.grading -= 1
            if not final:
                self._known[key] = known
        return known


def _belief(best: Candidate | None) -> Belief | None:
    return None if best is None else Belief(best.mean, best.sd)


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
