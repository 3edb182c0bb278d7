"""The judge of a tournament: it compares two responses to a prompt, in the order in which they are shown."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from evorun.models.base import Reply, Sampling
from evorun.rollouts.calls import Calls, Role
from evorun.runner.driver import first_error
from evorun.runner.pairings import Entrant, Pairing
from evorun.runs.budget import Meter
from evorun.runs.candidates import Response
from evorun.runs.effects import JournaledModel
from evorun.runs.journal import Journal
from evorun.tasks.base import LoadedTask
from evorun.tasks.capabilities import Judgment

JUDGE = "judge"
SCORES = {"A": 1.0, "T": 0.5, "B": 0.0}
"""The score of the response shown first, by verdict."""


class Asked(NamedTuple):
    """A judgment that was asked for."""

    judgment: Judgment
    invalid: str | None
    """Why there is no verdict; see `JudgmentRecord`."""


class PairJudge:
    """Asks a model for each different judgment once."""

    def __init__(
        self,
        entrants: Sequence[Entrant],
        loaded: LoadedTask,
        problems: Sequence[str],
        model: JournaledModel,
        journal: Journal,
        meter: Meter,
        *,
        sampling: Sampling,
        seed: int,
    ) -> None:
        """problems: ids of the prompts. The task has the capability `Judges`."""
        self.said: dict[Pairing, Asked] = {}
        self._entrants = entrants
        self._task: Any = loaded.task
        self._meter = meter
        self._sampling = sampling
        self._problems = {problem.id: problem for problem in loaded.problems}
        roles = {JUDGE: Role(JUDGE)}
        self._calls = {
            problem: Calls(
                name=problem,
                task=loaded.task,
                seed=seed,
                meter=meter,
                models={JUDGE: model},
                roles=roles,
                remember=journal.remember,
            )
            for problem in problems
        }

    async def ask(self, pairings: Sequence[Pairing]) -> bool:
        """Ask for what is not judged yet; return False where the budget allows only a part of it."""
        new = [one for one in dict.fromkeys(pairings) if one not in self.said and not self.forfeited(one)]
        # Admitted in order and before any call, so that a resumed tournament cuts the same ones off.
        allowed = new[: self._meter.admit(len(new), JUDGE)]
        try:
            async with asyncio.TaskGroup() as group:
                made = [group.create_task(self._reply(one)) for one in allowed]
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        for one, task in zip(allowed, made, strict=True):
            self._calls[one.problem].charge(JUDGE, [task.result()])
            self.said[one] = self._read(task.result())
        return len(allowed) == len(new)

    async def _reply(self, one: Pairing) -> Reply:
        first, second = self.responses(one)
        prompt = self._task.judge_prompt(self._problems[one.problem], first, second)
        # The pair's number, not the draw's: more repetitions, or longer ones, find what is judged already.
        index = one.first * len(self._entrants) + one.second
        return await self._calls[one.problem].ask(prompt, self._sampling, role=JUDGE, step=0, index=index, attempt=0)

    def _read(self, reply: Reply) -> Asked:
        if reply.error is not None:
            return Asked(Judgment(verdict="invalid", reason=reply.error), "rejected")
        completion = reply.completions[0]
        judgment: Judgment = self._task.parse_judgment(completion.text)
        if judgment.verdict != "invalid":
            return Asked(judgment, None)
        return Asked(judgment, "cut_off" if completion.truncated else "unreadable")

    def responses(self, one: Pairing) -> tuple[Response | None, Response | None]:
        """Return the two responses in the order shown, None for one that is not there."""
        first, second = (self._entrants[i].responses.get(one.problem) for i in (one.first, one.second))
        return first, second

    def forfeited(self, one: Pairing) -> bool:
        """Tell whether one of the two has no response to the prompt."""
        return None in self.responses(one)

    def score(self, one: Pairing) -> float | None:
        """Return the score of the response shown first; None without a verdict."""
        first, second = self.responses(one)
        if first is None or second is None:  # who has none loses, as a problem without an answer counts as wrong
            return 0.5 * (1 + (first is not None) - (second is not None))
        return SCORES.get(self.said[one].judgment.verdict) if one in self.said else None
