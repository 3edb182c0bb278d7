"""Recorders of what methods report: steps, graded beside the search, then candidates and predictions."""

import asyncio
from collections.abc import Mapping, Sequence

from msgspec.structs import asdict

from evorun.runs.candidates import SHARED, Candidate, CandidateId, Response, Step
from evorun.runs.directory import RATINGS, RunDirectory
from evorun.runs.progress import Progress
from evorun.runs.schema import (
    Belief,
    CandidateRecord,
    ComparisonRecord,
    PredictionRecord,
    RatingRecord,
    ReturnedCandidate,
    Spent,
    StepRecord,
    Stop,
)
from evorun.runs.scores import Score, mean_of_samples
from evorun.tasks.base import Grade, Grader, GradingTools, Problem

Cost = Mapping[str, Spent]
"""By role."""

GRADED_AT_ONCE = 64
"""Candidates of a problem in memory at once at its end (ours): the problems of a run often end together."""
NO_RESPONSE = Response(text="", answer=None, error="no response")
"""The response of a problem without candidates: the grader gives it the worst of the task's scores."""


class ProblemRecorder:
    """Writes one problem's records, in order; grades and writes steps while the method continues."""

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
        """Queue a step, with the problem's cost so far."""
        self._offered.put_nowait((step, cost))

    def close(self) -> None:
        """Signal that no step will follow."""
        self._offered.put_nowait(None)

    async def write_steps(self) -> None:
        """Grade and write the queued steps until the recorder is closed."""
        while (offered := await self._offered.get()) is not None:
            step, cost = offered
            grade = await self._grades.grade(step.best)
            record = StepRecord(
                problem=self._problem.id,
                stratum=self._problem.stratum,
                step=step.step,
                best=None if step.best is None else ReturnedCandidate(step.best.id, step.best.answer, step.best.text),
                belief=_belief(step.best),
                # A prediction without a candidate is wrong; a step without one is undecided.
                correct=None if step.best is None else grade.correct,
                pool=sum(candidate.survivor for candidate in step.candidates) if step.pool is None else step.pool,
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
            self._progress.count_step(self._problem.id, step.step, value)
            self._last = step
            self._steps += 1

    async def write_end(self, cost: Cost, stopped_by_budget: bool) -> None:
        """Grade and write the candidates and the prediction, after all steps are written."""
        # The last step lists all candidates of the search, each with the final belief in it.
        candidates: Sequence[Candidate] = () if self._last is None else self._last.candidates
        for first in range(0, len(candidates), GRADED_AT_ONCE):
            await self._write_candidates(candidates[first : first + GRADED_AT_ONCE])
        best = None if self._last is None else self._last.best
        grade = await self._grades.grade(best)
        scores = grade.scores if self._last is None else await self._scores(self._last, grade)
        stop: Stop
        if self._last is not None and self._last.reached_goal:  # a budget that is used up too cut nothing off
            stop = "goal"
        else:
            stop = "budget" if stopped_by_budget else "failed" if best is None else "generations"
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
        self._progress.count_finished_problem(self._problem.id)

    async def _write_candidates(self, candidates: Sequence[Candidate]) -> None:
        grades = await asyncio.gather(*(self._grades.grade(candidate, final=True) for candidate in candidates))
        self._directory.records("candidates").append(
            [
                CandidateRecord(
                    **asdict(candidate), problem=self._problem.id, correct=grade.correct, scores=dict(grade.scores)
                )
                for candidate, grade in zip(candidates, grades, strict=True)
            ]
        )

    async def _scores(self, step: Step, grade: Grade) -> Mapping[str, float]:
        """Return the scores of the best candidate, and the mean primary score over a step's samples."""
        # Only the evaluations of methods that train have samples; their mean is the pass rate.
        if not step.samples:
            return grade.scores
        grades = await asyncio.gather(*(self._grades.grade(sample) for sample in step.samples))
        values = [value for sample_grade in grades if (value := self._primary.value_in(sample_grade)) is not None]
        if not values:
            return grade.scores
        return {**grade.scores, mean_of_samples(self._primary).name: sum(values) / len(values)}


class SharedRecorder:
    """Writes the candidates that serve all problems: each once, and its rating whenever that has changed."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._ratings: dict[CandidateId, RatingRecord] = {}
        """The latest rating of each candidate."""

    def record(self, step: int, candidates: Sequence[Candidate]) -> None:
        """Write what is new after a step; `candidates` holds all that exist."""
        # Shared candidates (system prompts) return at every step: a line each time would grow quadratically.
        new = [candidate for candidate in candidates if candidate.id not in self._ratings]
        changed = []
        for candidate in candidates:
            rating = candidate.mean, candidate.sd, candidate.survivor
            last = self._ratings.get(candidate.id)
            if last is None or (last.mean, last.sd, last.survivor) != rating:
                self._ratings[candidate.id] = RatingRecord(step, candidate.id, *rating)
                changed.append(self._ratings[candidate.id])
        if changed:
            self._directory.records("candidates").append([CandidateRecord(**asdict(c), problem=SHARED) for c in new])
            self._directory.records(RATINGS).append(changed)


class _Grades:
    """Grades one problem's candidates, or a missing one, each once."""

    def __init__(self, problem: Problem, grader: Grader, tools: GradingTools, progress: Progress) -> None:
        self._problem = problem
        self._progress = progress
        self._grader = grader
        self._tools = tools
        self._known: dict[str | None, Grade] = {}

    async def grade(self, candidate: Candidate | None, *, final: bool = False) -> Grade:
        """Return a candidate's grade; a `final` request is the last for it, so its grade is not kept."""
        key = None if candidate is None else candidate.id
        known = self._known.get(key)
        if known is None:
            self._progress.grading += 1
            try:
                known = await self._grader.grade(self._problem, candidate or NO_RESPONSE, self._tools)
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
