"""The grader of summaries, which alone holds the references."""

from collections.abc import Mapping

from evorun.errors import DataError
from evorun.runs.candidates import Response
from evorun.tasks.base import Grade, GradingTools, Problem
from evorun.tasks.billsum.rouge import Rouge, shared
from evorun.tasks.billsum.task import BillSum


class RougeGrader:
    """Measures summaries by ROUGE, off the event loop."""

    def __init__(
        self, task: BillSum, references: Mapping[str, str | None], *, stemmer: bool, rouge: Rouge | None = None
    ) -> None:
        """references: by problem id. stemmer: words count without their suffixes. rouge: None: the shared one."""
        self._task = task
        self._references = references
        self._stemmer = stemmer
        self._rouge = rouge

    async def grade(self, problem: Problem, response: Response, tools: GradingTools) -> Grade:
        """Grade one response; one that could not be read has 0. Raises DataError for a problem that is not known."""
        if problem.id not in self._references:
            raise DataError(f"problem '{problem.id}': expected one of the {len(self._references)} loaded problems")
        reference = self._references[problem.id]
        if reference is None or response.answer is None:
            return self._task.score(problem, response, reference)
        rouge = self._rouge or shared()
        return Grade(scores=await rouge.measure(reference, response.answer, stemmer=self._stemmer))
