"""A task's problems and grades for programs of others: the packages that `evorun export format=verifiers` writes."""

import asyncio
import math
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

from evorun.cli.plain import composed
from evorun.errors import ConfigError, DataError
from evorun.models.base import Message
from evorun.runner.gold import MethodTools
from evorun.runner.task_settings import read_sandbox, read_task
from evorun.runs.scores import primary_score
from evorun.sandbox.lazy import LazySandbox
from evorun.tasks.capabilities import HasTools


class TaskGrading:
    """Poses a task's problems and grades texts, whichever event loop asks; programs run in evorun's sandbox."""

    def __init__(self, *settings: str, training: bool = False) -> None:
        """Load the task. settings: as a run takes them (`task=math`, `task.limit=100`).

        training: the problems to train on in place of the task's own. Raises ConfigError for a task of several turns or
        graded by opinion, and what loading raises.
        """
        values = composed(settings)
        config = read_task(values)
        if issubclass(config.task_class, HasTools) or config.task_class.graded_by_opinion:
            raise ConfigError(f"task={config.name}: expected a task of one turn with ground truth; choose another one")
        self._loaded = config.load_training() if training else config.load()
        self._problems = {problem.id: problem for problem in self._loaded.problems}
        task = self._loaded.task
        self._measure = task.reward_score or primary_score(task.scores)  # as in training
        self._tools = MethodTools(LazySandbox(read_sandbox(values, config), config.private_files))
        # A sandbox belongs to one event loop.
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="evorun grading", daemon=True).start()

    @property
    def description(self) -> str:
        """The source of the problems, in words."""
        return self._loaded.provenance.description

    def prompts(self) -> list[tuple[str, tuple[Message, ...]]]:
        """Return each problem's id and prompt, in order."""
        task: Any = self._loaded.task
        return [(name, task.generation_prompt(problem).messages) for name, problem in self._problems.items()]

    async def reward(self, problem_id: str, text: str) -> float:
        """Return a text's reward as in training, higher for better ones: in [0, 1] where the score has bounds.

        Raises DataError for an unknown problem, and where the grader gives no score.
        """
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._grade(problem_id, text), self._loop))

    async def _grade(self, problem_id: str, text: str) -> float:
        if problem_id not in self._problems:
            raise DataError(f"problem '{problem_id}': expected one of the task's {len(self._problems)}")
        problem = self._problems[problem_id]
        grade = await self._loaded.grade(problem, self._loaded.task.parse(problem, text), self._tools)
        value = self._measure.value_in(grade)
        if value is None or not math.isfinite(value):
            raise DataError(f"problem '{problem_id}': expected a finite {self._measure.name}, got {value}")
        return self._measure.utility(value)


@cache
def shared_grading(settings: Sequence[str], training: bool) -> TaskGrading:
    """Return the task that all who give the same settings, a tuple, share in this process."""
    return TaskGrading(*settings, training=training)
