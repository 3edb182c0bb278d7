"""Selection of training examples among responses (Lyria paper, sections 5.1 and 5.2), read as follows.

- Fitter than both parents, or than the original: by more than rounding.
- What a symbolic operator made has no response of a model to imitate, so it is dropped; as a parent it counts.
- A refused request has no response; one that was cut short would teach never to come to an end: both are dropped.
- A response without a readable answer stays, since the paper keeps initial populations whole, unless `parsed_only`.
- A text that was generated again (a retry, a repeated answer) is no candidate of its run, so it is not found here.
  DPFT@Full, which takes all 345 answers as they come, needs a run with method.dedup_attempts=0.
- The same response to the same prompt stays once, in whichever runs it came: runs may repeat each other.
- Where each question is answered once, that is the first usable answer, in the order of the runs; a question is a
  prompt.
- The top share is of what is left then, of each task by itself, rounded up. Among equal scores at its edge a digest of
  prompt and response decides: no problem comes before another, and the order of the runs plays no part.
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
"""A difference in fitness that is none: the same tour the other way round has another floating-point length."""


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the output: a chat, and where it came from."""

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
    """Of prompt and response."""
    score: float
    """Penalised score; 0 where it plays no part."""
    untyped: tuple[bool, bool]
    """Fitness is null; parents_fitness is empty."""


class Selection:
    """Takes fragments in, one after the other, and keeps what becomes an example."""

    def __init__(self, settings: Settings) -> None:
        self.outcomes = Outcomes()
        self._settings = settings
        self._kept: list[_Kept] = []
        self._pairs: set[bytes] = set()
        self._questions: set[bytes] = set()

    def offer(self, fragment: Fragment) -> None:
        """Keep the fragment or drop it. Raises DataError for one without the score that the kind ranks by."""
        reason = self._take(fragment)
        if reason is not None:
            self.outcomes.note(fragment.run, fragment.record.operator, reason)

    def examples(self) -> list[bytes]:
        """End the selection and return the examples as JSON lines, for one call."""
        chosen = _top(self._kept, self._settings.top) if self._settings.kind.ranked else set(range(len(self._kept)))
        for index, kept in enumerate(self._kept):
            self.outcomes.note(kept.run, kept.operator, KEPT if index in chosen else "below_top")
        # `datasets` takes a column's type from the first lines: they must not be all null or all empty
        return [kept.line for kept in sorted((self._kept[i] for i in sorted(chosen)), key=lambda kept: kept.untyped)]

    def _take(self, fragment: Fragment) -> str | None:
        """Keep the fragment, or return why not: the first reason that holds, in the order of `REASONS`."""
        exchange, record = fragment.exchange, fragment.record
        if exchange is None:
            return "symbolic"
        if exchange.completion.finish_reason == "rejected":
            return "refused"
        # It would teach never to come to an end.
        if exchange.completion.truncated:
            return "truncated"
        if self._settings.parsed_only and record.answer is None:
            return "unparsable"
        # Fitter than all that it was made from; one from scratch, without parents, always is.
        fitness = record.fitness
        if not all(fitness is not None and fitness > parent + ROUNDING for parent in fragment.parents_fitness):
            return "not_fitter"
        # A question is the whole prompt: methods that show other texts with a problem ask another question.
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
    """Return the indices of each task's best."""
    by_task: dict[str, list[int]] = defaultdict(list)
    for index, one in enumerate(kept):
        by_task[one.task].append(index)
    chosen: set[int] = set()
    for indices in by_task.values():
        # Equal scores are told apart by content, so that neither the order of the runs nor that of the problems
        # decides.
        best_first = sorted(indices, key=lambda index: (-kept[index].score, kept[index].digest))
        chosen.update(best_first[: math.ceil(share * len(indices))])
    return chosen


def _digest(messages: tuple[Message, ...]) -> bytes:
    return blake2b(msgspec.json.encode(messages, order="deterministic"), digest_size=16).digest()
