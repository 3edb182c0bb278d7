"""A sample of a run's rollouts for its page, with excerpts of their texts; the journal holds them whole."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from evorun.errors import JournalError, RunDirectoryError
from evorun.models.base import Message
from evorun.reports.packing import Packed, cut_middle, pack_within, rounded
from evorun.runs.candidates import CandidateId
from evorun.runs.journal_file import Effect
from evorun.runs.recording import open_effects
from evorun.runs.schema import RolloutRecord

MAX_ROLLOUTS = 400
"""Rollouts on a page (ours): a run may have 150 a step, of up to 15,000 tokens each."""
MAX_BLAMED = 8
"""Of a candidate's blamed rollouts, those that the page shows (ours)."""
MAX_BYTES = 3_000_000
"""Size of their data on a page, compressed."""
TEXT_LIMITS = (3000, 1500, 700, 300, 100, 0)
"""Longest excerpt in characters: the first limit that fits."""


class _Asked(msgspec.Struct):
    """The part of a request that is read."""

    messages: list[Message]


class _Completion(msgspec.Struct):
    text: str


class _Reply(msgspec.Struct):
    """The part of a reply that is read: not its token ids and log-probabilities."""

    completions: list[_Completion]
    error: str | None = None


@dataclass(frozen=True)
class RolloutSample:
    """The rollouts that a page shows."""

    rollouts: Sequence[RolloutRecord]
    """In the order of steps."""
    total: int
    """Of the run."""
    packed: Packed
    problem: str | None
    """Why there are no texts; None where there are."""


def shown_of_blamed(rollouts: Sequence[RolloutRecord], blamed: Iterable[Sequence[str]]) -> list[RolloutRecord]:
    """Return the rollouts that a page shows of each candidate's blamed ones, given by their journal keys."""
    by_call = {one.call: one for one in rollouts}
    found = [[by_call[call] for call in calls if call in by_call][:MAX_BLAMED] for calls in blamed]
    return list({one.call: one for one in chain.from_iterable(found)}.values())


def load_sample(
    run_dir: Path,
    rollouts: Sequence[RolloutRecord],
    blamed: Sequence[RolloutRecord],
    position: Mapping[CandidateId, int],
) -> RolloutSample:
    """Choose rollouts, the blamed ones first, and read their texts from the journal.

    position: of each candidate on the page.
    """
    chosen = choose(rollouts, blamed)
    texts: dict[str, str] = {}
    problem = None
    try:
        texts = _texts(run_dir, chosen)
    except (JournalError, RunDirectoryError) as error:
        problem = str(error)

    def data(limit: int) -> dict[str, Any]:
        return {"rollouts": [_row(one, position, texts.get(one.call), limit) for one in chosen]}

    return RolloutSample(chosen, len(rollouts), pack_within(MAX_BYTES, TEXT_LIMITS, data), problem)


def choose(rollouts: Sequence[RolloutRecord], blamed: Sequence[RolloutRecord]) -> list[RolloutRecord]:
    """Return at most `MAX_ROLLOUTS`: the blamed ones, then of each step and prompt the worst, the best, and so on."""
    groups: dict[tuple[int, str], list[RolloutRecord]] = defaultdict(list)
    for one in rollouts:
        groups[one.step, one.candidate or ""].append(one)
    ordered = []
    for group in groups.values():
        by_reward = sorted(group, key=lambda one: (one.reward is not None, one.reward or 0.0, one.index))
        ends = chain.from_iterable(zip(by_reward, reversed(by_reward), strict=True))
        ordered.append(list({one.call: one for one in ends}.values()))
    # more groups than there is room for: those at equal distances
    room = MAX_ROLLOUTS - len(blamed)
    spread = [ordered[i * len(ordered) // room] for i in range(room)] if len(ordered) > room > 0 else ordered
    in_turn = (one for one in chain.from_iterable(zip_longest(*spread)) if one is not None)
    chosen = {one.call: one for one in chain(blamed, in_turn)}
    return sorted(list(chosen.values())[:MAX_ROLLOUTS], key=lambda one: (one.step, one.index))


def _row(one: RolloutRecord, position: Mapping[CandidateId, int], words: str | None, limit: int) -> list[Any]:
    """Return a rollout for the page's script, which names the fields in this order."""
    return [
        one.step,
        one.problem,
        next((position[who] for who in (one.candidate, one.rubric) if isinstance(who, str) and who in position), None),
        rounded(one.reward),
        _advantage(one),
        one.correct,
        one.finish_reason,
        one.prompt_tokens,
        one.completion_tokens,
        one.turns,
        one.call,
        None if words is None else cut_middle(words, limit),
        None if one.normalised is UNSET else rounded(one.normalised),
        None if one.unscored is UNSET else one.unscored,
        None if one.penalised_reward is UNSET else rounded(one.penalised_reward),
        None if one.raw is UNSET or one.maximum is UNSET else f"{one.raw:.3g} of {one.maximum:.3g}",
    ]


def _advantage(one: RolloutRecord) -> str | None:
    """Write what a rollout was learned with; None where that is not known."""
    if one.advantage is UNSET:
        return None
    if one.advantage is None:
        return "none: nothing was learned from it"
    spread = (
        "" if one.advantage_sd is UNSET else f", the mean of its tokens (standard deviation {one.advantage_sd:.3g})"
    )
    return f"{one.advantage:.3g}{spread}"


def _texts(run_dir: Path, rollouts: Sequence[RolloutRecord]) -> dict[str, str]:
    """Return the turns of each rollout as one text, by its call. Raises RunDirectoryError or JournalError."""
    by_call = {one.call: one for one in rollouts}
    with closing(open_effects(run_dir)) as reader:
        # in the order of recording, in which the journal's blocks are read once
        numbers = [number for number, (key, _) in enumerate(reader.index()) if key in by_call]
        effects = (reader.effect(number) for number in numbers)
        return {effect.key: _text(effect, by_call[effect.key].turns, reader.path) for effect in effects}


def _text(effect: Effect, turns: int, journal: Path) -> str:
    try:
        messages = msgspec.json.decode(effect.request, type=_Asked).messages
        reply = msgspec.json.decode(effect.result, type=_Reply)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JournalError(f"{journal}: cannot read the call '{effect.key}': {error}") from error
    last = reply.completions[0].text if reply.completions else f"(refused: {reply.error})"
    if turns < 2:
        return last
    # the model's turn and the tools' answer, for each turn but the last
    earlier = [f"[{one['role']}]\n{one['content']}" for one in messages[-2 * (turns - 1) :]]
    return "\n\n".join([*earlier, f"[assistant]\n{last}"])
