"""AdaEvolve's paradigms: new approaches that a model proposes where the best score hardly rises any more.

Read in skydiscover-ai/skydiscover (59643ef). Where fewer than `paradigm_below` of the last `paradigm_window` children
raised the best fitness of all islands, one call proposes `paradigms` approaches. Each serves `paradigm_uses` children,
in turns, which change the best program of all islands. Until all are used up, nothing new is asked for.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

from evorun.methods.context import Context
from evorun.methods.islands.population import Member
from evorun.methods.islands.settings import IslandsConfig
from evorun.tasks.capabilities import Paradigm

PARADIGM = "paradigm"
"""The call role that proposes approaches."""


class Paradigms:
    """The approaches of one problem's search: those in use, and those tried before with what came of them."""

    def __init__(self, config: IslandsConfig) -> None:
        self._config: Any = config
        self._improved: deque[bool] = deque(maxlen=config.paradigm_window)
        """For each of the last children: True where it was the best so far."""
        self._active: Sequence[Paradigm] = ()
        self._uses: list[int] = []
        self._fitness_before = 0.0
        """Best fitness when the approaches in use were proposed."""
        self._tried: deque[tuple[Paradigm, float]] = deque(maxlen=config.paradigm_memory)

    def record(self, improved: bool) -> None:
        """Count a child that was made, whether by an approach or not."""
        self._improved.append(improved)

    @property
    def is_due(self) -> bool:
        """True where the search is stuck and no approach is left to use."""
        config = self._config
        if not config.paradigms or len(self._improved) < config.paradigm_window or self._next_place() is not None:
            return False
        return bool(sum(self._improved) < config.paradigm_below * config.paradigm_window)

    def take(self) -> Paradigm | None:
        """Return the approach of the next child, and count its use; None where none is left."""
        place = self._next_place()
        if place is None:
            return None
        self._uses[place] += 1
        return self._active[place]

    def _next_place(self) -> int | None:
        """Return the place of the approach that was used least, the first of several; None where all are used up."""
        place = min(range(len(self._uses)), key=self._uses.__getitem__, default=None)
        return None if place is None or self._uses[place] >= self._config.paradigm_uses else place

    async def renew(self, ctx: Context, best: Member, step: int) -> dict[str, float]:
        """Ask for new approaches where they are due, again where none can be read; return the step's counts."""
        config = self._config
        if not config.paradigms:
            return {}
        found: Sequence[Paradigm] = ()
        unread = 0
        # A budget that would end before the children that use them has no call for approaches.
        left = ctx.calls_left
        if self.is_due and (left is None or left > config.retries + config.children):
            gain = best.fitness - self._fitness_before
            self._tried.extend((paradigm, gain) for paradigm in self._active)
            prompt = ctx.task.paradigms_prompt(ctx.problem, best.candidate, tuple(self._tried), config.paradigms)
            self._active, self._uses, self._fitness_before = (), [], best.fitness
            for attempt in range(config.retries + 1):
                asked = {"role": PARADIGM, "step": step, "sampling": config.sampling, "attempt": attempt}
                replies = await ctx.generate([prompt], **asked)
                if not replies:
                    break
                if replies[0].error is None:
                    found = ctx.task.parse_paradigms(replies[0].completions[0].text)[: config.paradigms]
                if found:
                    self._active, self._uses = found, [0] * len(found)
                    break
                unread += 1
        return {"paradigms": len(found), "unread_paradigms": unread}
