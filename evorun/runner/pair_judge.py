"""The judge of a tournament: it compares two responses to a prompt, in the order shown."""

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


class ParsedJudgment(NamedTuple):
    """A judgment, and why it is invalid."""

    judgment: Judgment
    invalid: str | None
    """Why there is no verdict, as in `JudgmentRecord`; None for a valid judgment."""


class PairJudge:
    """Asks a model for each distinct judgment once."""

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
        """problems: ids of the prompts. The task has the capability `SupportsJudging`."""
        self.judged: dict[Pairing, ParsedJudgment] = {}
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
        """Ask for the missing judgments; return False when the budget allows only some of them."""
        distinct = dict.fromkeys(pairings)
        new = [pairing for pairing in distinct if pairing not in self.judged and not self.forfeited(pairing)]
        # Admit in order and before any call, so that a resumed tournament cuts off the same pairings.
        allowed = new[: self._meter.admit(len(new), JUDGE)]
        try:
            async with asyncio.TaskGroup() as group:
                made = [group.create_task(self._reply(pairing)) for pairing in allowed]
        except BaseExceptionGroup as errors:
            raise first_error(errors) from None
        for pairing, task in zip(allowed, made, strict=True):
            self._calls[pairing.problem].charge(JUDGE, [task.result()])
            self.judged[pairing] = self._read(task.result())
        return len(allowed) == len(new)

    async def _reply(self, pairing: Pairing) -> Reply:
        first, second = self.responses(pairing)
        prompt = self._task.judge_prompt(self._problems[pairing.problem], first, second)
        # Number the pair, not the draw: more repetitions, or longer ones, then reuse earlier judgments.
        index = pairing.first * len(self._entrants) + pairing.second
        return await self._calls[pairing.problem].ask(
            prompt, self._sampling, role=JUDGE, step=0, index=index, attempt=0
        )

    def _read(self, reply: Reply) -> ParsedJudgment:
        if reply.error is not None:
            return ParsedJudgment(Judgment(verdict="invalid", reason=reply.error), "rejected")
        completion = reply.completions[0]
        judgment: Judgment = self._task.parse_judgment(completion.text)
        if judgment.verdict != "invalid":
            return ParsedJudgment(judgment, None)
        return ParsedJudgment(judgment, "cut_off" if completion.truncated else "unreadable")

    def responses(self, pairing: Pairing) -> tuple[Response | None, Response | None]:
        """Return the two responses in the order shown, None for a missing one."""
        first, second = (self._entrants[i].responses.get(pairing.problem) for i in (pairing.first, pairing.second))
        return first, second

    def forfeited(self, pairing: Pairing) -> bool:
        """Tell whether either entrant has no response to the prompt."""
        return None in self.responses(pairing)

    def score(self, pairing: Pairing) -> float | None:
        """Return the score of the response shown first; None without a verdict."""
        first, second = self.responses(pairing)
        if first is None or second is None:  # no response loses, as no answer counts as wrong
            return 0.5 * (1 + (first is not None) - (second is not None))
        return SCORES.get(self.judged[pairing].judgment.verdict) if pairing in self.judged else None
