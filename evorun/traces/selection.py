"""Selects training examples from responses (Lyria paper, sections 5.1 and 5.2).

evorun reads the paper as follows:

- A response stays if it is fitter than both parents, or than the original, by more than rounding.
- The output of a symbolic operator is dropped: no model wrote it, so there is nothing to learn. It counts as a parent.
- Refused requests are dropped, and so are truncated responses, which would teach the model never to stop.
- A response without a readable answer stays unless `parsed_only`, since the paper keeps initial populations whole.
- A text that was generated again (a retry, a repeated answer) is no candidate of its run, so it does not appear here.
  DPFT@Full, which takes all 345 answers, needs a run with method.dedup_attempts=0.
- The same response to the same prompt stays once, whichever runs contain it: runs may repeat each other.
- Where each question has one answer, the first usable answer stays, in the order of the runs. A question is a prompt.
- The top share applies to the remaining responses, per task, rounded up. A digest of prompt and response breaks ties at
  its edge, so that neither the order of the problems nor that of the runs matters.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from evorun.errors import DataError
from evorun.models.base import Message
from evorun.traces.counts import KEPT, Outcomes
from evorun.traces.fragments import PENALISED_SCORE, Exchange, Fragment
from evorun.traces.kinds import Settings

ROUNDING = 1e-9
"""Differences in fitness up to this are rounding: a tour reversed has another floating-point length."""


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the output: a chat, and its origin."""

    messages: tuple[Message, ...]
    problem: str
    task: str
    kind: str
    operator: str
    candidate: str
    fitness: float | None
    parents_fitness: tuple[float, ...]
    run: str


class _Kept(NamedTuple):
    line: bytes
    task: str
    run: str
    operator: str
    digest: bytes
    """Digest of prompt and response."""
    score: float
    """Penalised score; 0 if the kind is not ranked."""
    untyped: tuple[bool, bool]
    """True for null fitness, and true for empty parents_fitness."""


class Selection:
    """Receives fragments one by one, and keeps those that become examples."""

    def __init__(self, settings: Settings) -> None:
        self.outcomes = Outcomes()
        self._settings = settings
        self._kept: list[_Kept] = []
        self._pairs: set[bytes] = set()
        self._questions: set[bytes] = set()

    def offer(self, fragment: Fragment) -> None:
        """Keep the fragment or drop it. Raises DataError if it lacks the score that the kind ranks by."""
        reason = self._take(fragment)
        if reason is not None:
            self.outcomes.note(fragment.run, fragment.record.operator, reason)

    def examples(self) -> list[bytes]:
        """End the selection and return the examples as JSON lines. Call it once."""
        chosen = _top(self._kept, self._settings.top) if self._settings.kind.ranked else set(range(len(self._kept)))
        for index, kept in enumerate(self._kept):
            self.outcomes.note(kept.run, kept.operator, KEPT if index in chosen else "below_top")
        # `datasets` infers a column's type from the first lines, which must not be all null or all empty.
        return [kept.line for kept in sorted((self._kept[i] for i in sorted(chosen)), key=lambda kept: kept.untyped)]

    def _take(self, fragment: Fragment) -> str | None:
        """Keep the fragment, or return the first reason against it, in the order of `REASONS`."""
        exchange, record = fragment.exchange, fragment.record
        if exchange is None:
            return "symbolic"
        if exchange.completion.finish_reason == "rejected":
            return "refused"
        # A truncated response would teach the model never to stop.
        if exchange.completion.truncated:
            return "truncated"
        if self._settings.parsed_only and record.answer is None:
            return "unparsable"
        # Fitter than all its parents; a response without parents always is.
        fitness = record.fitness
        if not all(fitness is not None and fitness > parent + ROUNDING for parent in fragment.parents_fitness):
            return "not_fitter"
        # A question is the whole prompt: a method that shows other texts with a problem asks another question.
        question, pair = _digest(exchange.messages), _digest(exchange.chat)
        if pair in self._pairs:
            return "duplicate"
        if self._settings.kind.once and question in self._questions:
            return "answered"
        self._pairs.add(pair)
        self._questions.add(question)
        self._kept.append(self._keep(fragment, exchange, pair))
        return None

    def _keep(self, fragment: Fragment, exchange: Exchange, pair: bytes) -> _Kept:
        record = fragment.record
        example = Example(
            messages=exchange.chat,
            problem=record.problem,
            task=fragment.task,
            kind=self._settings.name,
            operator=record.operator,
            candidate=record.id,
            fitness=fragment.fitness,
            parents_fitness=fragment.parents_fitness,
            run=fragment.run,
        )
        score = record.scores.get(PENALISED_SCORE) if self._settings.kind.ranked else 0.0
        if score is None:
            raise DataError(
                f"{fragment.run}: expected a {PENALISED_SCORE} to rank by, candidate '{record.id}' of problem "
                f"'{record.problem}' has none; export this task ({fragment.task}) as kind=dpft_full"
            )
        return _Kept(
            line=msgspec.json.encode(example),
            task=fragment.task,
            run=fragment.run,
            operator=record.operator,
            digest=pair,
            score=score,
            untyped=(fragment.fitness is None, not fragment.parents_fitness),
        )


def _top(kept: Sequence[_Kept], share: Decimal) -> set[int]:
    """Return the indices of each task's best examples."""
    by_task: dict[str, list[int]] = defaultdict(list)
    for index, example in enumerate(kept):
        by_task[example.task].append(index)
    chosen: set[int] = set()
    for indices in by_task.values():
        # Content breaks ties, so that neither the order of the runs nor that of the problems matters.
        best_first = sorted(indices, key=lambda index: (-kept[index].score, kept[index].digest))
        chosen.update(best_first[: math.ceil(share * len(indices))])
    return chosen


def _digest(messages: tuple[Message, ...]) -> bytes:
    return blake2b(msgspec.json.encode(messages, order="deterministic"), digest_size=16).digest()
