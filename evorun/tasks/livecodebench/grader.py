"""Ground truth of LiveCodeBench: the hidden tests."""

from collections.abc import Mapping

from evorun.errors import DataError
from evorun.runs.candidates import Response
from evorun.sandbox.base import Suite
from evorun.tasks.base import Grade, Problem, Tools
from evorun.tasks.livecodebench.programs import program_for


class TestGrader:
    """Grades by hidden tests: correct means that every one of them passes (§4.1).

    The release's own harness runs the public tests along with them; here they are feedback and do not count.
    """

    __test__ = False  # not for pytest to collect

    def __init__(self, hidden: Mapping[str, Suite]) -> None:
        """hidden: each problem's suite; one object a problem, which is what lets a journal recognise it cheaply."""
        self._hidden = hidden

    async def grade(self, problem: Problem, response: Response, tools: Tools) -> Grade:
        """Grade one response, up to the first test that it fails. Raises DataError for a problem that is not known."""
        if problem.id not in self._hidden:
            raise DataError(f"problem '{problem.id}': expected one of the {len(self._hidden)} loaded problems")
        if response.answer is None:
            return Grade(correct=False, detail="no program")
        suite = self._hidden[problem.id]
        # The rest of the tests could not change the verdict, and hundreds of them may be slow.
        results = await tools.test(program_for(problem, response.answer), suite, stop_at_failure=True)
        verdict, total = results[-1].verdict, len(suite.cases)
        if verdict == "accepted":
            return Grade(correct=True, detail=f"accepted on all {total} hidden tests")
        return Grade(correct=False, detail=f"{verdict} at hidden test {len(results)} of {total}")
