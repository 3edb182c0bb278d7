"""Ground truth of a contest: an answer is right when its value is that of the known one."""

from collections.abc import Mapping, Sequence

from evorun.errors import DataError
from evorun.tasks.base import Grade, Problem, Response, Tools
from evorun.tasks.math_contest.boxes import is_in_form
from evorun.tasks.math_contest.reading import canonical
from evorun.tasks.math_contest.verification import Verifier, shared


class ContestGrader:
    """Grades by value; `scores` holds `format`: 1 when the text has the form asked for (see `is_in_form`), else 0."""

    def __init__(
        self, answers: Mapping[str, Sequence[str]], *, integers: bool, verifier: Verifier | None = None
    ) -> None:
        """Hold the accepted answers of each problem id.

        integers: the answers are integers, written as `read_integer` returns them, and equal when they are the same.
        verifier: compares other answers; None: the one that this process shares.
        """
        self._answers = answers
        self._integers = integers
        self._verifier = verifier

    async def grade(self, problem: Problem, response: Response, tools: Tools) -> Grade:
        """Grade one response; one without an answer is wrong. Raises DataError for a problem that is not known."""
        if problem.id not in self._answers:
            raise DataError(f"problem '{problem.id}': expected one of the {len(self._answers)} loaded problems")
        correct, detail = await self._compared(self._answers[problem.id], response)
        return Grade(correct=correct, scores={"format": float(is_in_form(response.text))}, detail=detail)

    async def _compared(self, accepted: Sequence[str], response: Response) -> tuple[bool, str]:
        answer = response.answer
        if answer is None:
            return False, response.error or "no answer"
        if self._integers:
            return answer in accepted, ""
        if canonical(answer) in map(canonical, accepted):
            return True, ""
        detail = ""
        for gold in accepted:
            equal, detail = await (self._verifier or shared()).compare(gold, answer)
            if equal:
                return True, ""
        return False, detail
