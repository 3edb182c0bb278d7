"""Grades of tasks without right and wrong: the gold judge's opinion by the task's expert rubric."""

from evorun.runs.candidates import Response
from evorun.runs.scores import Score
from evorun.tasks.base import Grade, GradingTools, Problem
from evorun.tasks.capabilities import SupportsRubrics
from evorun.tasks.rubric_json import tagged_scores
from evorun.tasks.rubric_scores import read_scores
from evorun.tasks.thinking import without_thinking

RUBRIC = Score("rubric", 0, 1)
"""Points by the task's rubric, as a share of its maximum: the primary score of such a task."""

EXPERT = "expert"
"""The rubric that the gold judge grades by."""

ATTEMPTS = 3
"""Opinions asked for until one can be read (ours)."""


class OpinionGrader:
    """Grades a response by what the gold judge says of it; one of which it says nothing readable has no score."""

    def __init__(self, task: SupportsRubrics, rubric: str = EXPERT) -> None:
        """rubric: its name. Raises ConfigError where the task has none of that name."""
        self._task = task
        self._rubrics = {key: task.given_rubric(rubric, key) for key in task.rubric_keys()}

    async def grade(self, problem: Problem, response: Response, tools: GradingTools) -> Grade:
        if not response.text.strip():
            return Grade(scores={RUBRIC.name: 0.0}, detail="empty")
        rubric = self._rubrics[self._task.rubric_key(problem)]
        reason = ""
        for attempt in range(ATTEMPTS):
            # Whoever does not keep to a form of words is asked again in one that engines hold the reply to.
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
