"""`judge=oracle`: a judge that decides by the ground truth, as the upper bound of what better judges could give.

It stands where a model's engine stands, behind the journal and the meter: a method gets its verdicts, each at the price
of a call, and no more of the truth than these.
"""

import asyncio
import math
from dataclasses import dataclass, field

import msgspec

from evorun.models.base import Completion, Reply, Request, rejected
from evorun.models.config import EngineConfig, ModelConfig
from evorun.models.simulated import CHARACTERS_PER_TOKEN
from evorun.runs.candidates import Response
from evorun.runs.scores import yardstick
from evorun.tasks.base import GradingTools, LoadedTask

ORACLE = "oracle"


@dataclass
class OracleConfig(EngineConfig):
    """The engine of `judge=oracle`; it has no settings."""

    knows_truth = True

    name: str = ORACLE


ORACLE_MODEL = ModelConfig(name=ORACLE, id=ORACLE)


@dataclass
class OracleJudge:
    """Prefers the response with the better grade; equally good ones are a tie.

    Right comes before wrong; then the task's other scores decide, in the order in which it declares them.
    """

    loaded: LoadedTask
    tools: GradingTools
    name: str = ORACLE
    _known: dict[tuple[str, str | None], list[float]] = field(default_factory=dict)

    async def complete(self, request: Request) -> Reply:
        """Return a judgment of the two answers that the prompt of a `TextTask` names beside its words (`hints`)."""
        hints = request.hints
        if hints.get("role") != "judge":
            return rejected(request, "judge=oracle answers judges' prompts only")
        first, second = await asyncio.gather(*(self._value(hints["problem"], answer) for answer in hints["answers"]))
        verdict = "A" if first > second else "B" if second > first else "T"
        text = msgspec.json.encode({"solution": verdict, "reasoning": "By the ground truth."}).decode()
        completion = Completion(text=text, finish_reason="stop", tokens=len(text) // CHARACTERS_PER_TOKEN + 1)
        characters = sum(len(message["content"]) for message in request.messages)
        return Reply(
            completions=(completion,) * request.sampling.n,
            prompt_tokens=characters // CHARACTERS_PER_TOKEN,
            seconds=0.0,
        )

    async def _value(self, problem: str, answer: str | None) -> list[float]:
        """Return how good an answer to the problem with this id is, what counts most first; higher is better."""
        if (problem, answer) not in self._known:
            found = next(one for one in self.loaded.problems if one.id == problem)
            response = Response(text=answer or "", answer=answer)
            grade = await self.loaded.grade(found, response, self.tools)
            first = yardstick(self.loaded.task.scores)
            measures = [first, *(score for score in self.loaded.task.scores if score != first)]
            values = [(measure, measure.value_in(grade)) for measure in measures]
            self._known[problem, answer] = [
                -math.inf if value is None else measure.utility(value) for measure, value in values
            ]
        return self._known[problem, answer]

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""
