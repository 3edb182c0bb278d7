"""The history that a run shares with the run it was forked or extended from: calls that are answered, not made."""

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from evorun.errors import HistoryError
from evorun.models.encoding import encode_question
from evorun.runs.call_keys import parse_call_key, parse_step
from evorun.runs.candidates import SHARED
from evorun.runs.journal_file import Effect
from evorun.runs.journal_reader import JournalReader
from evorun.runs.manifest import Origin
from evorun.runs.paths import display


def describe_key(key: str) -> str:
    """Return a journal key in words: `'generate' 1 in step 2 of sample/7`."""
    call = parse_call_key(key)
    if call is None or isinstance(call.index, str):
        return f"'{key}'"
    again = f" (attempt {call.attempt + 1})" if call.attempt else ""
    whom = "all problems" if call.problem == SHARED else call.problem
    return f"'{call.role}' {call.index}{again} in step {call.step} of {whom}"


def iterate_history(journal: JournalReader, at: int | None) -> Iterator[Effect]:
    """Yield the effects of a recorded run: all, or those before step `at` and those without a step."""
    for number, (key, _) in enumerate(journal.index()):
        place = parse_step(key)
        if at is None or place is None or place[1] < at:
            yield journal.effect(number)


def find_ends(journal: JournalReader, origin: Origin | None) -> list[int]:
    """Return the steps at which runs ended that the run of a journal, with its origin, has extended."""
    if origin is None:
        return []
    last: dict[str, int] = {}
    if origin.at is None:
        for key, _ in itertools.islice(journal.index(), origin.effects):
            if (place := parse_step(key)) is not None:
                last[place[0]] = max(place[1], last.get(place[0], 0))
    return sorted({*origin.ends, *last.values()})


class History:
    """The calls of the shared history that a run has asked for, so that none is made that would contradict it.

    A fork must ask all questions of its first steps again, and gets the recorded answers, whatever its sampling or
    model: from step `at` on it goes its own way. An extension must make the same requests.
    """

    def __init__(self, origin: Origin, keys: Iterator[str], lag: int = 0) -> None:
        """keys: those of the shared effects, which are the first of the run's journal.

        lag: steps by which the run plays ahead (`training.max_lag`): the calls of so many steps come in any order.
        """
        self.origin = origin
        self._lag = lag
        self._last: dict[str, int] = {}
        """The last recorded step, by name."""
        self._waiting: dict[str, Counter[int]] = {}
        """Number of recorded calls that have not been asked for, by name and step."""
        self.asked: set[int] = set()
        """Numbers of the shared effects that have been asked for."""
        places = [place for place in map(parse_step, itertools.islice(keys, origin.effects)) if place is not None]
        for name, step in places:
            self._last[name] = max(step, self._last.get(name, step))
        # A run may end with calls that a longer one does not make, such as a last choice: those may stay unasked. A
        # fork has all recorded calls of its shared steps, or it would not have the recorded past.
        for name, step in places:
            if (origin.at is not None or step < self._last[name]) and step not in origin.ends:
                self._waiting.setdefault(name, Counter())[step] += 1

    def note_asked(self, key: str, number: int) -> None:
        """Note that a recorded effect has been asked for. number: its place in the journal."""
        if number >= self.origin.effects or number in self.asked:
            return
        self.asked.add(number)
        place = parse_step(key)
        if place is not None and (waiting := self._waiting.get(place[0])) and waiting[place[1]]:
            waiting[place[1]] -= 1

    def has_equal_question(self, key: str, recorded: bytes, request: bytes) -> bool:
        """Tell whether a request of a fork's shared steps asks what was recorded, whoever answers it and how."""
        place = parse_step(key)
        shared = self.origin.first_own_step
        if shared is None or place is None or place[1] >= shared:
            return False
        question = encode_question(request)
        return question is not None and question == encode_question(recorded)

    def refuse_new(self, key: str) -> None:
        """Raise HistoryError where a call that nobody recorded would contradict the shared history."""
        place = parse_step(key)
        if place is None:
            return
        name, step = place
        if self.origin.at is not None:
            if step < self.origin.at:
                raise self.contradiction(key)
        elif step < self._last.get(name, 0) - self._lag:
            raise self.contradiction(key)
        waiting = self._waiting.get(name, Counter())
        if skipped := {of_step: count for of_step, count in waiting.items() if count and of_step < step - self._lag}:
            first = min(skipped)
            unasked = f"{skipped[first]} of the recorded calls of step {first} unasked"
            raise self._error(f"leave {unasked}, first on {name}", first)

    def contradiction(self, key: str) -> HistoryError:
        """Return the error for a request that the shared history does not hold."""
        place = parse_step(key)
        difference = f"ask otherwise than recorded, first at {describe_key(key)}"
        return self._error(difference, 0 if place is None else place[1])

    def _error(self, difference: str, step: int) -> HistoryError:
        """Return the error for what the run would do differently, in which of the shared steps."""
        origin = self.origin
        changes = "; ".join(origin.changes) or "the present code and data"
        advice = "start a new run"
        if origin.at is not None and step > 0:
            advice = f"fork at step={step} at the latest, or {advice}"
        return HistoryError(
            f"expected a change that leaves the recorded calls of {display(Path(origin.run))} as they are, but with "
            f"{changes} the run would {difference}: {advice}"
        )
