"""Grades of tasks without right and wrong: the gold judge's opinion by the task's expert rubric."""

from evorun.runs.candidates import Response
from evorun.runs.scores import Score
from evorun.runs.spending import EXPERT
from evorun.tasks.base import Grade, GradingTools, Problem
from evorun.tasks.capabilities import SupportsRubrics
from evorun.tasks.rubric_json import tagged_scores
from evorun.tasks.rubric_scores import read_scores
from evorun.tasks.thinking import without_thinking

RUBRIC = Score("rubric", 0, 1, label="gold score")
"""The share of the rubric's maximum points: the primary score of such tasks.

Labelled, since a method may evolve rubrics of its own, which this score does not go by.
"""

MAX_ATTEMPTS = 3
"""Maximum attempts to get a readable opinion (ours)."""


class OpinionGrader:
    """Grades a response by the gold judge's opinion; without a readable opinion there is no score."""

    def __init__(self, task: SupportsRubrics, rubric: str = EXPERT) -> None:
        """rubric: its name. Raises ConfigError where the task has no such rubric."""
        self._task = task
        self._rubrics = {key: task.starting_rubric(rubric, key) for key in task.rubric_keys()}

    async def grade(self, problem: Problem, response: Response, tools: GradingTools) -> Grade:
        if not response.text.strip():
            return Grade(scores={RUBRIC.name: 0.0}, detail="empty")
        rubric = self._rubrics[self._task.rubric_key(problem)]
        reason = ""
        for attempt in range(MAX_ATTEMPTS):
            # A retry asks for JSON, which engines can enforce.
            prompt = self._task.scoring_prompt(problem, response, rubric, as_json=attempt > 0)
            opinion = await tools.judge(prompt, attempt)
            try:
                if opinion is not None:
                    tagged = tagged_scores(without_thinking(opinion), rubric) if attempt else opinion
                    return Grade(scores={RUBRIC.name: read_scores(tagged, rubric).normalised})
                reason = "refused: the judge's reply was refused or cut off"
            except ValueError as error:
                reason = str(error)
        return Grade(detail=f"unscored, {reason}")
