"""From questions to a loaded task: the grader, which alone holds the answers, and the problems without them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from evorun.errors import DataError
from evorun.runs.candidates import Response
from evorun.tasks.base import Grade, LoadedTask, Problem, Provenance, Tools
from evorun.tasks.loading import load_rows
from evorun.tasks.math_contest.records import Question
from evorun.tasks.math_contest.simulator import ContestSimulator
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
        # The task's own comparison is of texts, and settles most answers in microseconds; math-verify takes
        # milliseconds.
        grades = [self._task.score(problem, response, gold) for gold in accepted]
        grade = next((grade for grade in grades if grade.correct), grades[0])
        if answer is None:
            return msgspec.structs.replace(grade, detail=response.error or "no answer")
        if grade.correct or self._task.integers:
            return grade
        equal, detail = False, ""
        for gold in accepted:
            equal, detail = await (self._verifier or shared()).compare(gold, answer, self._task.question(problem))
            if equal:
                break
        return msgspec.structs.replace(grade, correct=equal, detail="" if equal else detail)


def loaded(
    task: MathContest, selected: Sequence[Question], held_out: Sequence[Question], provenance: Provenance
) -> LoadedTask:
    """Return the task with the selected questions to work on and the held-out ones as demonstrations."""
    answers = {question.problem.id: question.answers for question in (*selected, *held_out)}
    solutions = {question.problem.id: question.solution for question in selected if question.solution}
    rows, validation = ([(q.problem, q.answers[0]) for q in questions] for questions in (selected, held_out))
    with_answers = load_rows(
        task,
        rows,
        validation=validation,
        provenance=provenance,
        grader=ContestGrader(task, answers),
        simulator=ContestSimulator,
    )
    return replace(with_answers, solutions=solutions)
