"""Ground truth of a contest: an answer is right when its value is that of a known one."""

from collections.abc import Mapping, Sequence

import msgspec

from evorun.errors import DataError
from evorun.runs.candidates import Response
from evorun.tasks.base import Grade, Problem, Tools
from evorun.tasks.math_contest.task import MathContest
from evorun.tasks.math_contest.verification import Verifier, shared


class ContestGrader:
    """Grades as the task scores, and compares by value what its texts leave open."""

    def __init__(
        self, task: MathContest, answers: Mapping[str, Sequence[str]], *, verifier: Verifier | None = None
    ) -> None:
        """Hold the accepted answers of each problem id, integers as `read_integer` returns them.

        verifier: compares answers that are no integers; None: the one that this process shares.
        """
        self._task = task
        self._answers = answers
        self._verifier = verifier

    async def grade(self, problem: Problem, response: Response, tools: Tools) -> Grade:
        """Grade one response; one without an answer is wrong. Raises DataError for a problem that is not known."""
        if problem.id not in self._answers:
            raise DataError(f"problem '{problem.id}': expected one of the {len(self._answers)} loaded problems")
        accepted, answer = self._answers[problem.id], response.answer
        grades = [self._task.score(problem, response, gold) for gold in accepted]
        grade = next((grade for grade in grades if grade.correct), grades[0])
        if answer is None:
            return msgspec.structs.replace(grade, detail=response.error or "no answer")
        if grade.correct or self._task.integers:
            return grade
        equal, detail = False, ""
        for gold in accepted:
            equal, detail = await (self._verifier or shared()).compare(gold, answer)
            if equal:
                break
        return msgspec.structs.replace(grade, correct=equal, detail="" if equal else detail)
