"""A right grader passes the suite, and graders with each fault that matters fail by name."""

import time
from typing import Any

import pytest

from evorun.runs.candidates import Response
from evorun.runs.scores import Score
from evorun.tasks.base import Grade, Problem
from evorun.tasks.rows.answers import NumberRows, Rows
from evorun.testing import check_grader

ROWS = {"Which river?": "the Rhine", "Which sea?": "the North Sea", "Which lake?": "Lake Constance"}
WRONG = {"Which river?": ["the Rhone"]}


class Words(Rows):
    """Scores by the share of the right answer's words."""

    scores = (Score("overlap", 0.0, 1.0),)

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        given, right = set((response.answer or "").split()), set((reference or "").split())
        return Grade(scores={"overlap": len(given & right) / len(given | right)})


class Lenient(Rows):
    def comparable(self, answer: str) -> str:
        return answer[:6]


class Generous(Rows):
    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        return Grade(correct=True)


class Hopeful(Rows):
    """Takes a reply without an answer for a right one."""

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        return Grade(correct=True) if response.answer is None else super().score(problem, response, reference)


class Strict(Rows):
    def comparable(self, answer: str) -> str:
        return answer if answer.istitle() else f"{answer}{id(answer)}"


class Fragile(Rows):
    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        assert response.answer is not None
        return super().score(problem, response, reference)


class Unreadable(Rows):
    def read_part(self, text: str, problem: Problem) -> str:
        return text.split("Answer: ")[1]


class Percent(Words):
    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        return Grade(scores={"overlap": 100 * super().score(problem, response, reference).scores["overlap"]})


class Undefined(Words):
    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        graded = super().score(problem, response, reference)
        return graded if response.answer else Grade(scores={"overlap": float("nan")})


class Remembering(Words):
    """Refuses the same answer a second time."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, int] = {}

    def score(self, problem: Problem, response: Response, reference: Any) -> Grade:
        self.seen.setdefault(response.text, len(self.seen))
        return Grade(
            scores=super().score(problem, response, reference).scores, detail=f"text {self.seen[response.text]}"
        )


class Waiting(Rows):
    def comparable(self, answer: str) -> str:
        time.sleep(0)
        return super().comparable(answer)


class Wordless(Rows):
    def score(self, problem: Problem, response: Response, gold: str | None) -> Any:
        return response.answer == gold


@pytest.mark.parametrize("grader", [Rows, Words])
def test_a_right_grader_passes(grader: type[Rows]) -> None:
    check_grader(grader, ROWS, wrong=WRONG)


@pytest.mark.parametrize(
    ("grader", "message"),
    [
        (Lenient, "less than the best score for the reply 'Answer: the Rhone'"),
        (Generous, "which is wrong"),
        (Hopeful, "less than the best score without an answer"),
        (Strict, "share of the best score for the reply 'Answer: the Rhine'"),
        (Fragile, "expected a grade of any reply, got AssertionError"),
        (Unreadable, "expected readers that never raise, got IndexError"),
        (Percent, "expected the score 'overlap' from 0 to 1, got 100"),
        (Undefined, "expected a finite score 'overlap'"),
        (Remembering, "grade by a new grader, in another order"),
        (Waiting, r"found time\.sleep"),
        (Wordless, "expected a Grade, found True"),
        (NumberRows, "made without arguments"),
    ],
)
def test_a_grader_with_a_fault_fails(grader: type[Rows], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_grader(grader, ROWS, wrong=WRONG)


def test_most_answers_to_other_rows_must_be_wrong() -> None:
    with pytest.raises(AssertionError, match="6 of 6 are right"):
        check_grader(Generous, ROWS)


def test_two_answers_tell_no_grader_from_chance() -> None:
    with pytest.raises(AssertionError, match="three or more different answers"):
        check_grader(Rows, dict(list(ROWS.items())[:2]))
