"""A sample of a run's rollouts for its page, with excerpts of their texts; the journal has the whole texts."""

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
"""Rollouts on a page (ours): a run may have 150 per step, of up to 15,000 tokens each."""
MAX_BLAMED = 8
"""Blamed rollouts per candidate that the page shows (ours)."""
MAX_BYTES = 3_000_000
"""Size of their data on a page, compressed."""
TEXT_LIMITS = (3000, 1500, 700, 300, 100, 0)
"""Longest excerpt in characters: the first limit that fits."""


class _Request(msgspec.Struct):
    """The part of a request that the page needs."""

    messages: list[Message]


class _Completion(msgspec.Struct):
    text: str


class _Reply(msgspec.Struct):
    """The part of a reply that the page needs: not its token ids and log-probabilities."""

    completions: list[_Completion]
    error: str | None = None


@dataclass(frozen=True)
class RolloutSample:
    """The rollouts that a page shows."""

    rollouts: Sequence[RolloutRecord]
    """In the order of steps."""
    total: int
    """Number of the run's rollouts."""
    packed: Packed
    problem: str | None
    """The error that prevented reading the texts, if any."""


def choose_blamed(rollouts: Sequence[RolloutRecord], blamed: Iterable[Sequence[str]]) -> list[RolloutRecord]:
    """Return the blamed rollouts that a page shows. blamed: each candidate's, by their journal keys."""
    by_call = {rollout.call: rollout for rollout in rollouts}
    found = [[by_call[call] for call in calls if call in by_call][:MAX_BLAMED] for calls in blamed]
    return list({rollout.call: rollout for rollout in chain.from_iterable(found)}.values())


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
        texts = _read_texts(run_dir, chosen)
    except (JournalError, RunDirectoryError) as error:
        problem = str(error)

    def data(limit: int) -> dict[str, Any]:
        return {"rollouts": [_row(rollout, position, texts.get(rollout.call), limit) for rollout in chosen]}

    return RolloutSample(chosen, len(rollouts), pack_within(MAX_BYTES, TEXT_LIMITS, data), problem)


def choose(rollouts: Sequence[RolloutRecord], blamed: Sequence[RolloutRecord]) -> list[RolloutRecord]:
    """Return at most `MAX_ROLLOUTS`: the blamed ones, then per step and prompt the worst, the best, and so on."""
    groups: dict[tuple[int, str], list[RolloutRecord]] = defaultdict(list)
    for rollout in rollouts:
        groups[rollout.step, rollout.candidate or ""].append(rollout)
    ordered = []
    for group in groups.values():
        by_reward = sorted(
            group, key=lambda rollout: (rollout.reward is not None, rollout.reward or 0.0, rollout.index)
        )
        ends = chain.from_iterable(zip(by_reward, reversed(by_reward), strict=True))
        ordered.append(list({rollout.call: rollout for rollout in ends}.values()))
    # If there is no room for all groups, take groups at equal distances.
    room = MAX_ROLLOUTS - len(blamed)
    spread = [ordered[i * len(ordered) // room] for i in range(room)] if len(ordered) > room > 0 else ordered
    in_turn = (rollout for rollout in chain.from_iterable(zip_longest(*spread)) if rollout is not None)
    chosen = {rollout.call: rollout for rollout in chain(blamed, in_turn)}
    return sorted(list(chosen.values())[:MAX_ROLLOUTS], key=lambda rollout: (rollout.step, rollout.index))


def _row(rollout: RolloutRecord, position: Mapping[CandidateId, int], words: str | None, limit: int) -> list[Any]:
    """Return a rollout for the page's script, which names the fields in this order."""
    return [
        rollout.step,
        rollout.problem,
        next(
            (position[id_] for id_ in (rollout.candidate, rollout.rubric) if isinstance(id_, str) and id_ in position),
            None,
        ),
        rounded(rollout.reward),
        _advantage(rollout),
        rollout.correct,
        rollout.finish_reason,
        rollout.prompt_tokens,
        rollout.completion_tokens,
        rollout.turns,
        rollout.call,
        None if words is None else cut_middle(words, limit),
        None if rollout.normalised is UNSET else rounded(rollout.normalised),
        None if rollout.unscored is UNSET else rollout.unscored,
        None if rollout.penalised_reward is UNSET else rounded(rollout.penalised_reward),
        None if rollout.raw is UNSET or rollout.maximum is UNSET else f"{rollout.raw:.3g} of {rollout.maximum:.3g}",
    ]


def _advantage(rollout: RolloutRecord) -> str | None:
    """Return a rollout's advantage as text; None if it is unknown."""
    if rollout.advantage is UNSET:
        return None
    if rollout.advantage is None:
        return "none: nothing was learned from it"
    spread = (
        ""
        if rollout.advantage_sd is UNSET
        else f", the mean of its tokens (standard deviation {rollout.advantage_sd:.3g})"
    )
    return f"{rollout.advantage:.3g}{spread}"


def _read_texts(run_dir: Path, rollouts: Sequence[RolloutRecord]) -> dict[str, str]:
    """Return the turns of each rollout as one text, by its call. Raises RunDirectoryError or JournalError."""
    by_call = {rollout.call: rollout for rollout in rollouts}
    with closing(open_effects(run_dir)) as reader:
        # In the order of recording, so that each block of the journal is read once.
        numbers = [number for number, (key, _) in enumerate(reader.index()) if key in by_call]
        effects = (reader.effect(number) for number in numbers)
        return {effect.key: _read_text(effect, by_call[effect.key].turns, reader.path) for effect in effects}


def _read_text(effect: Effect, turns: int, journal: Path) -> str:
    try:
        messages = msgspec.json.decode(effect.request, type=_Request).messages
        reply = msgspec.json.decode(effect.result, type=_Reply)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JournalError(f"{journal}: cannot read the call '{effect.key}': {error}") from error
    last = reply.completions[0].text if reply.completions else f"(refused: {reply.error})"
    if turns < 2:
        return last
    # The model's turn and the tools' answer, for each turn but the last.
    earlier = [f"[{message['role']}]\n{message['content']}" for message in messages[-2 * (turns - 1) :]]
    return "\n\n".join([*earlier, f"[assistant]\n{last}"])
