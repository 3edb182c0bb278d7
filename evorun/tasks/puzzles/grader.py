"""Ground truth of a puzzle: its own metrics."""

from evorun.runs.candidates import Response
from evorun.tasks.base import Grade, Problem, Tools
from evorun.tasks.puzzles.task import Puzzle


class PuzzleGrader:
    """Grades by the metrics of section 3; correct is CR."""

    def __init__(self, task: Puzzle) -> None:
        self._task = task

    async def grade(self, problem: Problem, response: Response, tools: Tools) -> Grade:
        """Grade one response; one that could not be read has the worst value of each metric."""
        correct, scores = self._task.measure(problem, response.answer)
        detail = response.error or ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
        return Grade(correct=correct, scores=scores, detail=detail)
