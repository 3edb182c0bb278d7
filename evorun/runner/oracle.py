"""`judge=oracle`: a judge that decides by the ground truth, as an upper bound on what better judges could give.

It takes the place of an engine, behind the journal and the meter. A method sees only its verdicts, and each costs a
call.
"""

import asyncio
import math
from dataclasses import dataclass, field

from evorun.models.base import Reply, Request, make_rejection
from evorun.models.config import EngineConfig, ModelConfig
from evorun.runner.judges import JUDGED, make_verdict_reply
from evorun.runs.candidates import Response, Verdict
from evorun.runs.scores import primary_score
from evorun.tasks.base import GradingTools, LoadedTask
from evorun.tasks.capabilities import Judgment

ORACLE = "oracle"


@dataclass
class OracleConfig(EngineConfig):
    """The engine of `judge=oracle`; it has no settings."""

    knows_truth = True
    by_code = True

    name: str = ORACLE


ORACLE_MODEL = ModelConfig(name=ORACLE, id=ORACLE)


@dataclass
class OracleJudge:
    """A judge that prefers the response with the better grade; equal grades are a tie.

    Correctness decides first, then the task's other scores, in the order of their declaration.
    """

    loaded: LoadedTask
    tools: GradingTools
    name: str = ORACLE
    _known: dict[tuple[str, str | None], list[float]] = field(default_factory=dict)

    async def complete(self, request: Request) -> Reply:
        """Judge the two answers that the prompt of a `TextTask` carries in its `hints`."""
        hints = request.hints
        if hints.get("role") not in JUDGED:
            return make_rejection(request, "judge=oracle answers judges' prompts only")
        first, second = await asyncio.gather(*(self._value(hints["problem"], answer) for answer in hints["answers"]))
        verdict: Verdict = "A" if first > second else "B" if second > first else "T"
        return make_verdict_reply(request, Judgment(verdict=verdict, reason="By the ground truth."))

    async def _value(self, problem_id: str, answer: str | None) -> list[float]:
        """Return the utilities of an answer, in order of precedence; higher is better."""
        if (problem_id, answer) not in self._known:
            problem = next(problem for problem in self.loaded.problems if problem.id == problem_id)
            response = Response(text=answer or "", answer=answer)
            grade = await self.loaded.grade(problem, response, self.tools)
            first = primary_score(self.loaded.task.scores)
            measures = [first, *(score for score in self.loaded.task.scores if score != first)]
            values = [(measure, measure.value_in(grade)) for measure in measures]
            self._known[problem_id, answer] = [
                -math.inf if value is None else measure.utility(value) for measure, value in values
            ]
        return self._known[problem_id, answer]

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""
