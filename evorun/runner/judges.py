"""Judges by code in the place of a model: they read the two answers that a judge's prompt carries."""

from dataclasses import dataclass
from functools import cached_property

import msgspec

from evorun.models.base import Completion, Reply, Request, make_rejection
from evorun.simulation.engine import CHARACTERS_PER_TOKEN
from evorun.tasks.base import LoadedTask, Problem
from evorun.tasks.capabilities import Judgment
from evorun.tasks.judges import Judge

JUDGED = ("judge", "rate")
"""The hints `role` of prompts that show two answers to compare."""


@dataclass
class PluginJudge:
    """Answers judges' prompts of a `TextTask` with the verdicts of a plug-in."""

    judge: Judge
    loaded: LoadedTask
    name: str

    @cached_property
    def _problems(self) -> dict[str, Problem]:
        return {problem.id: problem for problem in self.loaded.problems}

    async def complete(self, request: Request) -> Reply:
        """Judge the two answers in the request's `hints`."""
        hints = request.hints
        if hints.get("role") not in JUDGED or hints.get("problem") not in self._problems:
            return make_rejection(request, f"judge={self.name} answers judges' prompts on the run's problems only")
        first, second = hints["answers"]
        judgment = await self.judge.compare(self._problems[hints["problem"]], first, second, request.seed)
        return make_verdict_reply(request, judgment)

    async def close(self) -> None:
        """Close the plug-in's judge."""
        await self.judge.close()


def make_verdict_reply(request: Request, judgment: Judgment) -> Reply:
    """Return a judgment as the reply of a model that answers a judge's prompt of a `TextTask`.

    Where ratings are asked for, the better response has the highest and the other one the lowest, or both the middle.
    """
    reply: dict[str, object] = {"solution": judgment.verdict, "reasoning": judgment.reason}
    if request.hints["role"] == "rate":
        first, second = {"A": (10, 1), "B": (1, 10)}.get(judgment.verdict, (5, 5))
        reply = {"reasoning": judgment.reason, "rating_a": first, "rating_b": second}
    text = msgspec.json.encode(reply).decode()
    completion = Completion(text=text, finish_reason="stop", tokens=len(text) // CHARACTERS_PER_TOKEN + 1)
    characters = sum(len(message["content"]) for message in request.messages)
    return Reply(
        completions=(completion,) * request.sampling.n,
        prompt_tokens=characters // CHARACTERS_PER_TOKEN,
        seconds=0.0,
    )
