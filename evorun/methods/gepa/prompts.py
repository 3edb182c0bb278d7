"""GEPA's prompts as candidates: those of its pool, with parents and scores, and those that it proposed and rejected."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from evorun.runs.candidates import Candidate
from evorun.tasks.json_text import well_formed

COMPONENT = "system_prompt"
"""Name of the one text that GEPA evolves here."""

OPERATORS = ("seed", "reflect", "merge")
"""By the number of parents."""


class GepaState(NamedTuple):
    """The prompts after an iteration."""

    pool: list[Candidate]
    """Those that GEPA has accepted, as it numbers them.

    Their mean is the mean score on the validation half; a problem that could not pay for it any more counts 0.
    """
    rejected: list[Candidate]
    """Those that did no better than their parent on its minibatch."""

    @property
    def best(self) -> Candidate:
        """The prompt with the highest score, the earliest of equals."""
        return max(self.pool, key=lambda prompt: prompt.mean or 0.0)


class Prompts:
    """The prompts of GEPA's iterations so far; each iteration proposes one at most."""

    def __init__(self, validation: int) -> None:
        """validation: how many problems choose among prompts."""
        self._validation = validation
        self._state = GepaState([], [])
        self.proposed: str | None = None
        """The prompt that the present iteration tries."""
        self.call: str | None = None
        """Key of the call that writes the next proposal; None for the seed and for merges, which no model writes."""

    def after(self, iteration: int, state: Any) -> GepaState:
        """Return the prompts after an iteration, by GEPA's own state."""
        pool, rejected = self._state
        accepted = range(len(pool), len(state.program_candidates))
        for index in accepted:
            parents = [parent for parent in state.parent_program_for_candidate[index] if parent is not None]
            mean = sum(state.prog_candidate_val_subscores[index].values()) / self._validation
            pool.append(self._candidate(state.program_candidates[index][COMPONENT], iteration, parents, mean))
        # GEPA's state drops a prompt that did no better than its parent on the minibatch; the records keep it.
        if self.proposed is not None and not accepted:
            parent = state.full_program_trace[-1]["selected_program_candidate"]
            rejected.append(self._candidate(self.proposed, iteration, [parent], None))
        self.proposed = None
        # Copies: the event loop reads them while GEPA's thread may go on.
        return GepaState(list(pool), list(rejected))

    def _candidate(self, text: str, iteration: int, parents: Sequence[int], mean: float | None) -> Candidate:
        return Candidate(
            id=f"{iteration}.0",
            kind="system_prompt",
            generation=iteration,
            parents=tuple(self._state.pool[parent].id for parent in parents),
            operator=OPERATORS[len(parents)],
            text=well_formed(text),
            answer=None,
            call=self.call if len(parents) == 1 else None,
            mean=mean,
            survivor=mean is not None,
        )
