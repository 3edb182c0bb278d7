"""Conformance of graders of rows: right answers win, others mostly lose, in any order, on any text."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from evorun.runs.candidates import Response
from evorun.runs.scores import find_violation, primary_score
from evorun.tasks.base import Grade, Problem
from evorun.tasks.rows.answers import Rows
from evorun.testing.expectations import expect, expect_equal
from evorun.testing.faults import refusing_blocked_loops
from evorun.testing.task_parsers import ODD_TEXTS


class _Case(NamedTuple):
    """A reply to a problem, and the right answer that it is graded by."""

    problem: Problem
    text: str
    gold: str

    @property
    def shown(self) -> str:
        short = self.text if len(self.text) <= 60 else f"{self.text[:60]}..."
        return f"the reply {short!r} to {self.problem.data['question']!r:.60}"


def check_grader(
    grader: type[Rows], rows: Mapping[str, str], *, wrong: Mapping[str, Sequence[str]] | None = None
) -> None:
    """Check a grader of rows. Raises AssertionError for the first rule that it breaks.

    rows: right answers by question, at least three, all different: to each question most of the others must be wrong.
    wrong: answers to these questions that must be worse than the right one, such as near misses.
    """
    expect(len(set(rows.values())) >= 3, f"rows: expected three or more different answers, got {len(rows)} rows")
    with refusing_blocked_loops():
        _check(grader, rows, wrong or {})


def _check(grader: type[Rows], rows: Mapping[str, str], wrong: Mapping[str, Sequence[str]]) -> None:
    task = _make(grader)
    problems = {
        question: Problem(id=str(number), stratum="all", data={"question": question})
        for number, question in enumerate(rows)
    }

    def replies(question: str, answers: Iterable[str]) -> list[_Case]:
        problem = problems[question]
        return [_Case(problem, task.write(problem, answer), rows[question]) for answer in answers]

    right = [case for question, answer in rows.items() for case in replies(question, [answer])]
    near = [case for question, answers in wrong.items() for case in replies(question, answers)]
    others = [
        case for question, answer in rows.items() for case in replies(question, sorted({*rows.values()} - {answer}))
    ]
    odd = [_Case(case.problem, text, case.gold) for case in right for text in ODD_TEXTS]
    for case in right:
        expect(_parse(task, case).answer is not None, f"expected a right answer that can be read, found {case.shown}")
        expect_equal(_quality(task, case), 1.0, f"share of the best score for {case.shown}, the right one")
    for case in near:
        expect(_quality(task, case) < 1.0, f"expected less than the best score for {case.shown}, which is wrong")
    best = sum(_quality(task, case) == 1.0 for case in others)
    expect(
        best <= len(others) / 2, f"expected most answers to other rows to be wrong, {best} of {len(others)} are right"
    )
    for case in odd:
        if _quality(task, case) == 1.0:
            expect(_parse(task, case).answer, f"expected less than the best score without an answer, for {case.shown}")
    cases = [*right, *near, *others, *odd]
    grades, other = [_grade(task, case) for case in cases], _make(grader)
    for case, grade in reversed(list(zip(cases, grades, strict=True))):
        expect_equal(_grade(other, case), grade, f"grade by a new grader, in another order, of {case.shown}")


def _make(grader: type[Rows]) -> Rows:
    try:
        return grader()
    except TypeError as error:
        raise AssertionError(f"expected a grader that is made without arguments, got {error}") from error


def _parse(task: Rows, case: _Case) -> Response:
    try:
        response = task.parse(case.problem, case.text)
        if response.answer is not None:
            signature = task.signature(case.problem, response)
            expect(isinstance(signature, str), f"signature: expected a text, found {signature!r:.60} for {case.shown}")
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"expected readers that never raise, got {error!r} for {case.shown}") from error
    return response


def _grade(task: Rows, case: _Case) -> Grade:
    response = _parse(task, case)
    try:
        grade = task.score(case.problem, response, case.gold)
    except Exception as error:
        raise AssertionError(f"expected a grade of any reply, got {error!r} for {case.shown}") from error
    expect(isinstance(grade, Grade), f"expected a Grade, found {grade!r:.60} for {case.shown}")
    violation = find_violation(task.scores, grade)
    expect(violation is None, f"{violation}, for {case.shown}")
    for score in task.scores:
        expect(
            score.value_in(grade) is not None, f"expected a finite score '{score.name}', found none for {case.shown}"
        )
    return grade


def _quality(task: Rows, case: _Case) -> float:
    """Return the primary score of a reply as a share of its best value: 1 is right."""
    score = primary_score(task.scores)
    value = score.value_in(_grade(task, case))
    assert value is not None  # noqa: S101 - `_grade` refuses it
    expect(score.low is not None and score.high is not None, f"score '{score.name}': expected a low and a high bound")
    return score.utility(value)
