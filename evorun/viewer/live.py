"""A run at a glance while it goes on: its score, rewards or losses by step, and the last texts of its models."""

from collections import Counter
from contextlib import closing
from pathlib import Path

import msgspec

from evorun.errors import JournalError, RunDirectoryError
from evorun.reports.packing import cut_middle
from evorun.runs.call_keys import parse_call_key
from evorun.runs.directory import load_manifest
from evorun.runs.journal_file import JOURNAL
from evorun.runs.journal_reader import JournalReader, open_journal
from evorun.runs.reading import read_metrics, read_steps_without_texts, read_training
from evorun.runs.results import score_series
from evorun.runs.scores import primary_score
from evorun.runs.tournaments import load_tournament_results

MAX_TEXTS = 6
"""Texts that are shown (ours)."""
_MAX_OF_ROLE = 2
"""Texts of a role among them (ours): a judge writes many times what it judges."""
MAX_LENGTH = 4_000
"""Maximum characters of one of them (ours): a long one is cut in its middle."""
_MAX_SEARCHED = 2_000
"""Effects from a journal's end among which texts are looked for (ours): programs and updates have none."""
_MAX_PLAYERS = 50
"""Players whose ratings are shown (ours)."""
TRAINING_CURVES = ("reward", "loss")
"""Figures of training steps that have a curve."""


class Point(msgspec.Struct, frozen=True):
    """A point of a curve."""

    step: int
    value: float
    low: float | None = None
    high: float | None = None


class Curve(msgspec.Struct, frozen=True):
    """A figure by step."""

    name: str
    rate: bool
    points: list[Point]
    scale_low: float | None = None
    """Minimum of the figure; null for no bound. Likewise `scale_high`."""
    scale_high: float | None = None


class Text(msgspec.Struct, frozen=True):
    """A text that a model has written."""

    role: str
    """Of the call: `generate`, `judge`, ..."""
    place: str
    """Problem and step of the call."""
    text: str


class Live(msgspec.Struct, frozen=True):
    """The part of a run that the page shows while the cursor is on it."""

    curves: list[Curve]
    texts: list[Text]
    """The last one first."""
    note: str | None
    """Why there are no texts, if so."""


class _Completion(msgspec.Struct):
    text: str


class _Reply(msgspec.Struct):
    completions: list[_Completion] = []


def load_live(run: Path) -> Live:
    """Read a run's curves and last texts. Raises RunDirectoryError or DataError."""
    declared = load_manifest(run).scores
    primary = primary_score(declared)
    # metrics.jsonl is written at the end of a run
    points = read_metrics(run) or score_series(read_steps_without_texts(run), declared, primary.name)
    curves = [
        Curve(
            primary.shown_name,
            primary.rate,
            [
                Point(point.step, point.value, *(point.ci95 or (None, None)))
                for point in points
                if point.name == primary.name and point.value is not None
            ],
            primary.low,
            primary.high,
        )
    ]
    training = read_training(run)
    curves += [
        Curve(name, False, [Point(record.step, record.figures[name]) for record in training if name in record.figures])
        for name in TRAINING_CURVES
    ]
    try:
        with closing(open_journal(run / JOURNAL)) as journal:
            texts, note = _read_last_texts(journal), None
    except (JournalError, RunDirectoryError) as error:
        texts, note = [], str(error)
    return Live([curve for curve in curves if curve.points], texts, note)


def load_ratings(folder: Path) -> Live:
    """Return the ratings of a tournament that has ended, the best first. Raises RunDirectoryError."""
    players = load_tournament_results(folder).players
    return Live([], [], f"Elo: {', '.join(f'{player.name} {player.elo:,.0f}' for player in players[:_MAX_PLAYERS])}")


def _read_last_texts(journal: JournalReader) -> list[Text]:
    """Return the last texts of a journal, the last one first."""
    end = journal.count()
    found: list[Text] = []
    roles: Counter[str] = Counter()
    for number in reversed(range(max(end - _MAX_SEARCHED, 0), end)):
        for text in _read_texts(journal, number):
            roles[text.role] += 1
            if roles[text.role] <= _MAX_OF_ROLE and len(found) < MAX_TEXTS:
                found.append(text)
    return found


def _read_texts(journal: JournalReader, number: int) -> list[Text]:
    """Return the texts of an effect; none where it is no model call."""
    key, _ = journal.key(number)
    call = parse_call_key(key)
    try:
        reply = msgspec.json.decode(journal.result(number), type=_Reply)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    if call is None:
        return []
    place = f"{call.problem}, step {call.step}"
    return [Text(call.role, place, cut_middle(completion.text, MAX_LENGTH)) for completion in reply.completions]
